"""The Windows calls that `zeus.device.cpu.emi` needs, through ctypes. Imported on Windows only."""

from __future__ import annotations

import ctypes
import uuid
from typing import Any

_EMI_CLASS = uuid.UUID("45BD8344-7ED6-49CF-A440-C276C933B053")
_PRESENT_INTERFACES = 0x2 | 0x10
_GENERIC_READ = 0x80000000
_FILE_SHARE_READ = 1
_OPEN_EXISTING = 3
_INVALID_HANDLE = ctypes.c_void_p(-1).value
_ERROR_NO_MORE_ITEMS = 259
_RELATION_PROCESSOR_PACKAGE = 3

# ctypes has these names on Windows only.
_windows: Any = ctypes


class _InterfaceData(ctypes.Structure):
    """SP_DEVICE_INTERFACE_DATA."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("guid", ctypes.c_ubyte * 16),
        ("flags", ctypes.c_uint32),
        ("reserved", ctypes.c_void_p),
    )


class _ProcessorNumber(ctypes.Structure):
    """PROCESSOR_NUMBER."""

    _fields_ = (
        ("group", ctypes.c_uint16),
        ("number", ctypes.c_uint8),
        ("reserved", ctypes.c_uint8),
    )


def _kernel32() -> Any:
    library = _windows.WinDLL("kernel32", use_last_error=True)
    library.CreateFileW.restype = ctypes.c_void_p
    return library


def _setupapi() -> Any:
    library = _windows.WinDLL("setupapi", use_last_error=True)
    library.SetupDiGetClassDevsW.restype = ctypes.c_void_p
    return library


def _last_error() -> OSError:
    error: OSError = _windows.WinError(_windows.get_last_error())
    return error


def device_paths() -> list[str]:
    """Paths of the present EMI devices.

    Raises:
        OSError: Windows does not list them.
    """
    setup = _setupapi()
    guid = (ctypes.c_ubyte * 16).from_buffer_copy(_EMI_CLASS.bytes_le)
    devices = setup.SetupDiGetClassDevsW(ctypes.byref(guid), None, None, _PRESENT_INTERFACES)
    if devices == _INVALID_HANDLE:
        raise _last_error()
    devices = ctypes.c_void_p(devices)
    paths: list[str] = []
    try:
        while True:
            data = _InterfaceData(size=ctypes.sizeof(_InterfaceData))
            if not setup.SetupDiEnumDeviceInterfaces(
                devices, None, ctypes.byref(guid), len(paths), ctypes.byref(data)
            ):
                if _windows.get_last_error() != _ERROR_NO_MORE_ITEMS:
                    raise _last_error()
                return paths
            paths.append(_path_of(setup, devices, data))
    finally:
        setup.SetupDiDestroyDeviceInfoList(devices)


def _path_of(setup: Any, devices: Any, data: _InterfaceData) -> str:
    needed = ctypes.c_uint32()
    # The first call fails by design and tells the size.
    setup.SetupDiGetDeviceInterfaceDetailW(
        devices, ctypes.byref(data), None, 0, ctypes.byref(needed), None
    )
    buffer = ctypes.create_string_buffer(max(needed.value, 8))
    # cbSize counts the fixed part of the structure with its padding, not the buffer.
    fixed = 8 if ctypes.sizeof(ctypes.c_void_p) == 8 else 6
    ctypes.c_uint32.from_buffer(buffer).value = fixed
    if not setup.SetupDiGetDeviceInterfaceDetailW(
        devices, ctypes.byref(data), buffer, needed, None, None
    ):
        raise _last_error()
    return buffer.raw[4:].decode("utf-16-le").split("\0", 1)[0]


def open_device(path: str) -> int:
    """Open a device for reading.

    Raises:
        OSError: it cannot be opened.
    """
    handle = _kernel32().CreateFileW(
        ctypes.c_wchar_p(path), _GENERIC_READ, _FILE_SHARE_READ, None, _OPEN_EXISTING, 0, None
    )
    if handle in (None, _INVALID_HANDLE):
        raise _last_error()
    return int(handle)


def close(handle: int) -> None:
    """Close a device."""
    _kernel32().CloseHandle(ctypes.c_void_p(handle))


def ioctl(handle: int, code: int, size: int) -> bytes:
    """DeviceIoControl without input.

    Raises:
        OSError: the device refuses.
    """
    buffer = ctypes.create_string_buffer(size)
    returned = ctypes.c_uint32()
    if not _kernel32().DeviceIoControl(
        ctypes.c_void_p(handle), code, None, 0, buffer, size, ctypes.byref(returned), None
    ):
        raise _last_error()
    return buffer.raw[: returned.value]


def current_processor() -> tuple[int, int]:
    """Group and number of the processor that this thread runs on."""
    processor = _ProcessorNumber()
    _kernel32().GetCurrentProcessorNumberEx(ctypes.byref(processor))
    return processor.group, processor.number


def package_records() -> bytes:
    """GetLogicalProcessorInformationEx(RelationProcessorPackage).

    Raises:
        RuntimeError: Windows does not tell.
    """
    kernel = _kernel32()
    needed = ctypes.c_uint32()
    # The first call fails by design and tells the size.
    kernel.GetLogicalProcessorInformationEx(_RELATION_PROCESSOR_PACKAGE, None, ctypes.byref(needed))
    buffer = ctypes.create_string_buffer(max(needed.value, 1))
    if not kernel.GetLogicalProcessorInformationEx(
        _RELATION_PROCESSOR_PACKAGE, buffer, ctypes.byref(needed)
    ):
        raise RuntimeError(f"cannot list processor packages: {_last_error()}")
    return buffer.raw[: needed.value]
