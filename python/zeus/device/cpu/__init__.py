"""The energy of CPU packages and of their memory."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any, cast

from zeus._lazy import lazily
from zeus.device.cpu.common import CPUs, ZeusCPUInitError
from zeus.device.cpu.rapl import (
    RAPLCPUs,
    ZeusRAPLFileInitError,
    ZeusRAPLNotSupportedError,
    _not_supported,
    rapl_is_available,
)

__all__ = [
    "CPUs",
    "EMICPUs",
    "RAPLCPUs",
    "ZeusCPUInitError",
    "emi_is_available",
    "get_cpus",
    "rapl_is_available",
]

if TYPE_CHECKING:
    from zeus.device.cpu.emi import EMICPUs, emi_is_available

# There is nothing of it but on Windows.
__getattr__ = lazily(
    __name__, {"EMICPUs": "zeus.device.cpu.emi", "emi_is_available": "zeus.device.cpu.emi"}
)

_cpus: CPUs | None = None
_lock = threading.Lock()


def get_cpus() -> CPUs:
    """Return the process's one object of CPU packages, made at the first call that succeeds.

    Raises:
        ZeusCPUInitError: No package can be measured; the message says why.
        ZeusCPUNoPermissionError: There are some, and this process may not read them.
    """
    global _cpus
    with _lock:
        if _cpus is None:
            _cpus = _open_cpus()
        return _cpus


def _open_cpus() -> CPUs:
    here: Any = sys.modules[__name__]
    if (sys.platform == "win32" or "emi_is_available" in globals()) and here.emi_is_available():
        return cast("CPUs", here.EMICPUs())
    if not rapl_is_available():
        raise ZeusCPUInitError(_not_supported())
    try:
        return RAPLCPUs()
    except (ZeusRAPLNotSupportedError, ZeusRAPLFileInitError) as error:
        raise ZeusCPUInitError(error.message) from error


def _forget_lock() -> None:
    # Another thread may have held it while this process was forked.
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock)
