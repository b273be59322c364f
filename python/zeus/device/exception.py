"""The base errors of devices. The concrete ones are beside what raises them."""

from __future__ import annotations

from zeus.exception import ZeusBaseError


class ZeusBaseGPUError(ZeusBaseError):
    """An error of a GPU."""


class ZeusBaseCPUError(ZeusBaseError):
    """An error of a CPU package."""


class ZeusBaseSoCError(ZeusBaseError):
    """An error of a system on a chip."""


class ZeusdError(ZeusBaseGPUError):
    """The daemon refused a request, or could not carry it out; of CPUs too, as upstream's.

    Attributes:
        status: The HTTP status of its answer; None where the error is not an answer.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        """Keep the message and the status."""
        super().__init__(message)
        self.status = status
