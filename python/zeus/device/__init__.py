"""The devices whose energy can be measured: GPUs, CPUs, and systems on a chip.

Importing this opens nothing and loads no vendor's library; the three functions do, when called.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zeus.device.cpu import get_cpus
    from zeus.device.gpu import get_gpus
    from zeus.device.soc import get_soc

__all__ = ["get_cpus", "get_gpus", "get_soc"]

_MODULES = {
    "get_cpus": "zeus.device.cpu",
    "get_gpus": "zeus.device.gpu",
    "get_soc": "zeus.device.soc",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for at its first use: a function, or the package it comes from."""
    if f"{__name__}.{name}" in _MODULES.values():
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    function = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = function
    return function
