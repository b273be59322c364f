"""Calls of AMD SMI's binding: one thread at a time, its errors as ours."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any, NoReturn

from zeus.device.exception import ZeusBaseGPUError
from zeus.device.gpu.common import (
    ZeusGPUDriverNotLoadedError,
    ZeusGPUInitError,
    ZeusGPUInsufficientSizeError,
    ZeusGPUInvalidArgError,
    ZeusGPULibraryNotFoundError,
    ZeusGPUMemoryError,
    ZeusGPUNoPermissionError,
    ZeusGPUNotFoundError,
    ZeusGPUNotSupportedError,
    ZeusGPUTimeoutError,
    ZeusGPUUnknownError,
)


class MissingModule:
    """Stands for `amdsmi` where it cannot be imported."""

    def __init__(self, reason: BaseException) -> None:
        self._reason = reason

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError(f"cannot use amdsmi.{name}: importing amdsmi failed: {self._reason!r}")


# Versions of the library below 26.2 crash or mix up GPUs when two threads are inside.
_library_lock = threading.RLock()


def _renew_lock() -> None:
    """In the child of a fork: the thread that may hold the lock does not exist there."""
    global _library_lock
    _library_lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


@contextlib.contextmanager
def serialised() -> Iterator[None]:
    with _library_lock:
        yield


# Numbers of amdsmi_status_t.
_ERRORS: dict[int, type[ZeusBaseGPUError]] = {
    1: ZeusGPUInvalidArgError,
    2: ZeusGPUNotSupportedError,
    8: ZeusGPUTimeoutError,
    10: ZeusGPUNoPermissionError,
    15: ZeusGPUMemoryError,
    18: ZeusGPUInitError,
    31: ZeusGPUNotFoundError,
    32: ZeusGPUInitError,
    34: ZeusGPUDriverNotLoadedError,
    41: ZeusGPUInsufficientSizeError,
    45: ZeusGPUDriverNotLoadedError,
    46: ZeusGPUDriverNotLoadedError,
    47: ZeusGPUDriverNotLoadedError,
    48: ZeusGPUNotSupportedError,
    49: ZeusGPUNotSupportedError,
    50: ZeusGPUTimeoutError,
    51: ZeusGPUDriverNotLoadedError,
    52: ZeusGPULibraryNotFoundError,
    53: ZeusGPUInvalidArgError,
    4294967295: ZeusGPUUnknownError,
}
_UNEXPECTED_DATA = 43


def call(module: Any, what: str, function: str, *args: Any, **kwargs: Any) -> Any:
    """Call the library, one thread at a time, and turn its errors into ours.

    Args:
        module: The binding.
        what: Whose call it is, for messages.
        function: Name of the binding's function.
        args: Its arguments.
        kwargs: Its keyword arguments.
    """
    try:
        with serialised():
            return getattr(module, function)(*args, **kwargs)
    except module.AmdSmiLibraryException as error:
        code = error.get_error_code()
        message = f"{what}: {function}: {error.get_error_info()}"
        if code == _UNEXPECTED_DATA:
            message += "; the ROCm installed here may be older than this GPU needs"
        raise _ERRORS.get(code, ZeusGPUUnknownError)(message) from error
