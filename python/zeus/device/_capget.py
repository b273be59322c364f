"""The kernel's own word on the capabilities of this process, through libc."""

from __future__ import annotations

import ctypes
import logging

logger = logging.getLogger(__name__)

# linux/capability.h.
_CAPABILITY_VERSION_3 = 0x20080522


class _CapHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _CapData(ctypes.Structure):
    _fields_ = [
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    ]


def _capget() -> int | None:
    """Ask the kernel for the mask of effective capabilities; None where it does not tell."""
    try:
        capget = ctypes.CDLL("libc.so.6").capget
    except (OSError, AttributeError) as error:
        logger.info("Cannot ask libc for capabilities: %s", error)
        return None
    header = _CapHeader(_CAPABILITY_VERSION_3, 0)
    # Version 3 writes two of them: the low and the high 32 bits.
    data = (_CapData * 2)()
    if capget(ctypes.byref(header), data) != 0:
        return None
    return int(data[0].effective) | int(data[1].effective) << 32
