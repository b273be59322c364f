"""Output to a file and the console at once."""

from __future__ import annotations

import sys
from pathlib import Path


class FileAndConsole:
    """A stream that writes to a file and to what `sys.stdout` was when it was made."""

    def __init__(self, filepath: Path | str) -> None:
        """Open the file.

        Args:
            filepath: Emptied where it exists.

        Raises:
            OSError: It cannot be written.
        """
        self.file = open(filepath, "w")  # noqa: SIM115 (it lives as long as this object)
        self.stdout = sys.stdout

    def write(self, message: str) -> None:
        """Write to both, at once."""
        self.file.write(message)
        self.stdout.write(message)
        self.flush()

    def flush(self) -> None:
        """Flush both."""
        self.file.flush()
        self.stdout.flush()
