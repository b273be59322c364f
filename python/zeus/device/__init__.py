"""The devices whose energy can be measured: GPUs, CPUs, and systems on a chip.

Importing this opens nothing and loads no vendor's library; the three functions do, when called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zeus._lazy import lazily

if TYPE_CHECKING:
    from zeus.device.cpu import get_cpus
    from zeus.device.gpu import get_gpus
    from zeus.device.soc import get_soc

__all__ = ["get_cpus", "get_gpus", "get_soc"]

__getattr__ = lazily(
    __name__,
    {
        "get_cpus": "zeus.device.cpu",
        "get_gpus": "zeus.device.gpu",
        "get_soc": "zeus.device.soc",
    },
)
