"""GPUs of every vendor: `get_gpus()` finds those that this process sees."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from zeus._lazy import lazily
from zeus.device.gpu.common import *
from zeus.device.gpu.common import GPUs, ZeusGPUInitError
from zeus.device.gpu.nvidia import NVIDIAGPUs, nvml_is_available

if TYPE_CHECKING:
    from zeus.device.gpu.amd import AMDGPUs as AMDGPUs
    from zeus.device.gpu.amd import amdsmi_is_available as amdsmi_is_available

# AMD's binding is worth its import only where it is asked for.
__getattr__ = lazily(
    __name__,
    {"AMDGPUs": "zeus.device.gpu.amd", "amdsmi_is_available": "zeus.device.gpu.amd"},
)

_gpus: GPUs | None = None
_lock = threading.Lock()


def _forget_lock() -> None:
    # Another thread may have held it while this process was forked.
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock)


def get_gpus(ensure_homogeneous: bool = False) -> GPUs:
    """The GPUs that this process sees: NVIDIA's, else AMD's. Found once, the same ever after.

    Args:
        ensure_homogeneous: Raise where they are of several models.

    Raises:
        ZeusGPUInitError: There is none; the sentence says why.
        ZeusGPUHeterogeneousError: They are of several models, and must not be.
    """
    global _gpus
    with _lock:
        if _gpus is None:
            here: Any = sys.modules[__name__]
            if nvml_is_available():
                _gpus = NVIDIAGPUs()
            elif here.amdsmi_is_available():
                _gpus = here.AMDGPUs()
            else:
                raise ZeusGPUInitError(_why_none())
        if ensure_homogeneous:
            _gpus._ensure_homogeneous()
        return _gpus


def _why_none() -> str:
    """Why no GPU is seen, as the core tells it."""
    from zeus.device._machine import machine

    reasons = [f"{where}: {why}" for where, _, why in machine().problems if "rapl" not in where]
    return "This process sees no GPU: " + ("; ".join(reasons) or "no vendor's library is here")
