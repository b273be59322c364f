"""Energy of systems on a chip: Apple silicon and NVIDIA Jetson."""

from __future__ import annotations

import os
import threading

from zeus.device.soc.apple import AppleSilicon, ZeusAppleInitError, apple_silicon_is_available
from zeus.device.soc.common import EmptySoC, SoC, SoCMeasurement, ZeusSoCInitError
from zeus.device.soc.jetson import Jetson, ZeusJetsonInitError, jetson_is_available

__all__ = [
    "AppleSilicon",
    "EmptySoC",
    "Jetson",
    "SoC",
    "SoCMeasurement",
    "ZeusAppleInitError",
    "ZeusJetsonInitError",
    "ZeusSoCInitError",
    "apple_silicon_is_available",
    "get_soc",
    "jetson_is_available",
]

_soc: SoC | None = None
_lock = threading.Lock()


def _renew_lock() -> None:
    """In the child of a fork: the thread that may hold the lock does not exist there."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def get_soc() -> SoC:
    """Return the process's one SoC object, made at the first call.

    Raises:
        ZeusSoCInitError: this machine has no SoC that can be measured; the message says whether
            there is none, or which one failed and why.
    """
    global _soc
    with _lock:
        if _soc is None:
            _soc = _open_soc()
        return _soc


def _open_soc() -> SoC:
    if apple_silicon_is_available():
        return AppleSilicon()
    if jetson_is_available():
        return Jetson()
    raise ZeusSoCInitError("no measurable SoC: this is neither Apple silicon nor an NVIDIA Jetson")
