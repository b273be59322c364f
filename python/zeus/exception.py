"""The root of every error that Zeus raises."""

from __future__ import annotations


class ZeusBaseError(Exception):
    """An error of Zeus.

    Attributes:
        message: One sentence: what was tried, on what, why it failed, the way out.
    """

    def __init__(self, message: str) -> None:
        """Keep the message, which `str()` returns."""
        super().__init__(message)
        self.message = message
