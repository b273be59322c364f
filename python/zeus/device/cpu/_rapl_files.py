"""The files of RAPL zones: how they are read, and what is raised where they cannot be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

from zeus.device.cpu.common import ZeusCPUNoPermissionError, ZeusCPUNotFoundError
from zeus.device.exception import ZeusBaseCPUError

_T = TypeVar("_T")

_WAYS_OUT = "run zeusd and set ZEUSD_SOCK_PATH, join the group that owns this file, or run as root"


class ZeusRAPLNotSupportedError(ZeusBaseCPUError):
    """This machine has no RAPL counters that can be read."""


class ZeusRAPLFileInitError(ZeusBaseCPUError):
    """A zone's files are missing, unreadable or not understood."""


class ZeusRAPLPermissionError(ZeusBaseCPUError):
    """A zone may not be read. For callers that name it: what is raised is the common error."""


def read_number(path: str) -> float:
    """Read a counter.

    Raises:
        OSError: The file cannot be read.
        ValueError: It holds no number that a counter could show.
    """
    text = read_text(path)
    if not text.isdecimal():
        raise ValueError(f"it holds {text[:40]!r} and no number")
    return float(text)


def read(path: str, reader: Callable[[str], _T], failure: type[ZeusBaseCPUError]) -> _T:
    """Read a file; raise `failure`, or ZeusCPUNoPermissionError, with one sentence."""
    try:
        return reader(path)
    except PermissionError as error:
        raise ZeusCPUNoPermissionError(
            f"cannot read {path}: permission denied; {_WAYS_OUT}"
        ) from error
    except (OSError, ValueError) as error:
        raise failure(_sentence(path, error)) from error


def read_text(path: str) -> str:
    """Read a line of text; raises OSError."""
    with open(path, errors="replace") as file:
        return file.read().strip()


def socket_of(pid: int | Literal["current"]) -> tuple[str, str]:
    """The physical package and die of the processor on which a process ran last."""
    stat = f"/proc/{'self' if pid == 'current' else pid}/stat"
    try:
        # The name, field 2, may hold blanks and parentheses. The processor is field 39: proc(5).
        processor = int(read_text(stat).rpartition(")")[2].split()[36])
    except OSError as error:
        raise ZeusCPUNotFoundError(
            f"cannot tell where process {pid} runs: {_sentence(stat, error)}; is it alive?"
        ) from error
    topology = f"/sys/devices/system/cpu/cpu{processor}/topology"
    try:
        package = read_text(f"{topology}/physical_package_id")
    except OSError as error:
        raise ZeusRAPLNotSupportedError(
            f"cannot tell the package of processor {processor}: "
            f"{_sentence(f'{topology}/physical_package_id', error)}"
        ) from error
    try:
        die = read_text(f"{topology}/die_id")
    except OSError:  # Kernels before 5.2 tell none.
        die = "0"
    return package, die


def _sentence(path: str, error: OSError | ValueError) -> str:
    """What was tried and why it failed."""
    if isinstance(error, ValueError):
        return f"cannot use {path}: {error}"
    return f"cannot read {path}: {error.strerror or 'no such file'}"
