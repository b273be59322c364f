"""Energy of systems on a chip: Apple silicon and NVIDIA Jetson."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any, cast

from zeus._lazy import lazily
from zeus.device.soc.common import EmptySoC, SoC, SoCMeasurement, ZeusSoCInitError

if TYPE_CHECKING:
    from zeus.device.soc.apple import AppleSilicon, ZeusAppleInitError, apple_silicon_is_available
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

__getattr__ = lazily(
    __name__,
    {
        "AppleSilicon": "zeus.device.soc.apple",
        "ZeusAppleInitError": "zeus.device.soc.apple",
        "apple_silicon_is_available": "zeus.device.soc.apple",
        "Jetson": "zeus.device.soc.jetson",
        "ZeusJetsonInitError": "zeus.device.soc.jetson",
        "jetson_is_available": "zeus.device.soc.jetson",
    },
)

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
    here: Any = sys.modules[__name__]
    if here.apple_silicon_is_available():
        return cast("SoC", here.AppleSilicon())
    if here.jetson_is_available():
        return cast("SoC", here.Jetson())
    raise ZeusSoCInitError("no measurable SoC: this is neither Apple silicon nor an NVIDIA Jetson")
