"""CPU energy on Windows through its Energy Meter Interface (EMI).

Layouts and control codes are those of the Windows Driver Kit's `emi.h`; package records those of
`winnt.h`. Counters are 64 bits of picowatt-hours: they do not wrap.
"""

from __future__ import annotations

import functools
import logging
import re
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from zeus.device.cpu.common import CPU, CpuDramMeasurement, CPUs
from zeus.device.exception import ZeusBaseCPUError

logger = logging.getLogger(__name__)

_WINDOWS = sys.platform == "win32"

_IOCTL_VERSION = 0x224000
_IOCTL_METADATA_SIZE = 0x224004
_IOCTL_METADATA = 0x224008
_IOCTL_MEASUREMENT = 0x22400C

_NAME_BYTES = 32  # OEM and model are 16 UTF-16 units each.
_V1_HEADER = struct.Struct(f"<I{2 * _NAME_BYTES}xHH")  # unit, names, revision, name size
_V2_HEADER = struct.Struct(f"<{2 * _NAME_BYTES}xHH")  # names, revision, channel count
_V2_CHANNEL = struct.Struct("<IH")  # unit, name size
_MEASUREMENT = struct.Struct("<QQ")  # energy, time
_UNIT_PICOWATT_HOURS = 0
_MJ_PER_PWH = 3.6e-6

_RELATION_PROCESSOR_PACKAGE = 3


class ZeusEMINotSupportedError(ZeusBaseCPUError):
    """This machine has no EMI with CPU package channels."""


class ZeusEMIInitError(ZeusBaseCPUError):
    """An EMI device cannot be opened, understood or read."""


@dataclass(frozen=True)
class _EMIChannel:
    """One channel of a device: its position, its name and the unit of its energy."""

    index: int
    name: str
    unit: int


def _get_emi_device_paths() -> list[str]:
    """Paths of the EMI devices that are present."""
    from zeus.device.cpu import _emi_windows

    return _emi_windows.device_paths()


def _ioctl(handle: int, code: int, size: int) -> bytes:
    """Ask a device, and return at most `size` bytes of answer."""
    from zeus.device.cpu import _emi_windows

    try:
        return _emi_windows.ioctl(handle, code, size)
    except OSError as error:
        raise ZeusEMIInitError(f"cannot ask the EMI device (code {code:#x}): {error}") from error


class EMIFile:
    """One open EMI device.

    Attributes:
        path: The device's path.
        version: 1 or 2.
        channels: What it measures.
    """

    def __init__(self, path: str) -> None:
        """Open the device and read what it measures.

        Raises:
            ZeusEMIInitError: it cannot be opened, or answers what is not understood.
        """
        from zeus.device.cpu import _emi_windows

        self.path = path
        self._handle = 0
        try:
            self._handle = _emi_windows.open_device(path)
        except OSError as error:
            raise ZeusEMIInitError(f"cannot open the EMI device {path}: {error}") from error
        self.version = int.from_bytes(_ioctl(self._handle, _IOCTL_VERSION, 2), "little")
        size = int.from_bytes(_ioctl(self._handle, _IOCTL_METADATA_SIZE, 4), "little")
        raw = _ioctl(self._handle, _IOCTL_METADATA, size)
        self.channels = self._parse_channels(version=self.version, raw=raw)

    def __del__(self) -> None:
        """Close the device."""
        if getattr(self, "_handle", 0):
            from zeus.device.cpu import _emi_windows

            _emi_windows.close(self._handle)

    @staticmethod
    def _parse_channels(version: int, raw: bytes) -> list[_EMIChannel]:
        if version == 1:
            return _parse_v1(raw)
        if version == 2:
            return _parse_v2(raw)
        raise ZeusEMIInitError(f"cannot read EMI metadata of version {version}: 1 and 2 are known")

    def read(self, channel_index: int) -> float:
        """Cumulative energy of a channel, in mJ.

        Raises:
            ZeusEMIInitError: there is no such channel, its unit is not picowatt-hours, or the
                device does not answer.
        """
        if not 0 <= channel_index < len(self.channels):
            raise ZeusEMIInitError(
                f"cannot read channel {channel_index} of {self.path}: "
                f"it has {len(self.channels)} channels"
            )
        channel = self.channels[channel_index]
        if channel.unit != _UNIT_PICOWATT_HOURS:
            raise ZeusEMIInitError(
                f"cannot convert channel {channel.name} of {self.path}: unit {channel.unit} "
                "is not picowatt-hours"
            )
        size = _MEASUREMENT.size * len(self.channels)
        raw = _ioctl(self._handle, _IOCTL_MEASUREMENT, size)
        if len(raw) < size:
            raise ZeusEMIInitError(
                f"cannot read {self.path}: it answered {len(raw)} bytes of {size}"
            )
        energy_pwh, _ = _MEASUREMENT.unpack_from(raw, channel_index * _MEASUREMENT.size)
        return float(energy_pwh * _MJ_PER_PWH)


def _text(raw: bytes, offset: int, size: int) -> str:
    if offset + size > len(raw):
        raise ZeusEMIInitError("cannot read EMI metadata: it ends inside a channel's name")
    return raw[offset : offset + size].decode("utf-16-le").rstrip("\0")


def _parse_v1(raw: bytes) -> list[_EMIChannel]:
    if len(raw) < _V1_HEADER.size:
        raise ZeusEMIInitError(f"cannot read EMI metadata: {len(raw)} bytes are no header")
    unit, _, name_size = _V1_HEADER.unpack_from(raw)
    return [_EMIChannel(0, _text(raw, _V1_HEADER.size, name_size) or "EMI_V1", unit)]


def _parse_v2(raw: bytes) -> list[_EMIChannel]:
    if len(raw) < _V2_HEADER.size:
        raise ZeusEMIInitError(f"cannot read EMI metadata: {len(raw)} bytes are no header")
    _, count = _V2_HEADER.unpack_from(raw)
    offset = _V2_HEADER.size
    channels = []
    for index in range(count):
        if offset + _V2_CHANNEL.size > len(raw):
            raise ZeusEMIInitError(f"cannot read EMI metadata: it ends before channel {index}")
        unit, name_size = _V2_CHANNEL.unpack_from(raw, offset)
        offset += _V2_CHANNEL.size
        channels.append(_EMIChannel(index, _text(raw, offset, name_size), unit))
        offset += name_size
    return channels


def _package_of(channel: _EMIChannel, domain: str) -> int | None:
    """The package that a channel measures the `domain` (PKG or DRAM) of."""
    match = re.match(rf"RAPL_Package(\d+)_{domain}$", channel.name, re.IGNORECASE)
    return int(match[1]) if match else None


@functools.lru_cache(maxsize=1)
def emi_is_available() -> bool:
    """Whether some EMI device measures a CPU package in picowatt-hours. Never raises."""
    if not _WINDOWS:
        return False
    # Probing calls into drivers of any quality: whatever fails there means "not here".
    try:
        return any(
            _package_of(channel, "PKG") is not None and channel.unit == _UNIT_PICOWATT_HOURS
            for path in _get_emi_device_paths()
            for channel in EMIFile(path).channels
        )
    except Exception as error:
        logger.info("EMI is not used: probing its devices failed: %s", error)
        return False


class EMICPU(CPU):
    """One CPU package measured by EMI."""

    def __init__(
        self,
        cpu_index: int,
        emi_file: EMIFile,
        pkg_channel_index: int,
        dram_channel_index: int | None,
    ) -> None:
        """Take a package's channels of one device."""
        super().__init__(cpu_index)
        self.emi_file = emi_file
        self.pkg_channel_index = pkg_channel_index
        self.dram_channel_index = dram_channel_index

    def get_total_energy_consumption(self) -> CpuDramMeasurement:
        """Cumulative energy in mJ."""
        cpu_mj = self.emi_file.read(self.pkg_channel_index)
        if self.dram_channel_index is None:
            return CpuDramMeasurement(cpu_mj)
        return CpuDramMeasurement(cpu_mj, self.emi_file.read(self.dram_channel_index))

    def supports_get_dram_energy_consumption(self) -> bool:
        """Whether the device has the package's DRAM channel."""
        return self.dram_channel_index is not None


def _channels_by_package(path: str, device: EMIFile, domain: str) -> dict[int, int]:
    """Package number to channel index, for the usable channels of one domain."""
    found = {}
    for channel in device.channels:
        package = _package_of(channel, domain)
        if package is None:
            continue
        if channel.unit != _UNIT_PICOWATT_HOURS:
            logger.warning(
                "channel %s of %s is skipped: unexpected measurement unit %d",
                channel.name,
                path,
                channel.unit,
            )
            continue
        found[package] = channel.index
    return found


class EMICPUs(CPUs):
    """The CPU packages that EMI measures, in the order of their numbers."""

    def __init__(self) -> None:
        """Open every device with package channels.

        Raises:
            ZeusEMINotSupportedError: no device has one.
        """
        if not emi_is_available():
            raise ZeusEMINotSupportedError(
                "cannot measure CPUs by EMI: no Windows energy meter with package channels"
            )
        by_package: dict[int, EMICPU] = {}
        for path in _get_emi_device_paths():
            try:
                device = EMIFile(path)
            except ZeusEMIInitError as error:
                logger.warning("EMI device is skipped: %s", error)
                continue
            dram = _channels_by_package(path, device, "DRAM")
            for package, channel in _channels_by_package(path, device, "PKG").items():
                by_package[package] = EMICPU(package, device, channel, dram.get(package))
        if not by_package:
            raise ZeusEMINotSupportedError(
                "cannot measure CPUs by EMI: its devices have no package channel"
            )
        self._cpus = [by_package[package] for package in sorted(by_package)]

    @property
    def cpus(self) -> Sequence[CPU]:
        """The packages."""
        return self._cpus


def _find_package_of_processor(raw: bytes, group: int, number: int, ptr_size: int) -> int | None:
    """Position of the package record that holds processor `number` of `group`.

    Args:
        raw: Records of GetLogicalProcessorInformationEx(RelationProcessorPackage).
        group: Processor group.
        number: Number within the group.
        ptr_size: Bytes of an affinity mask: 8, or 4 on 32-bit Windows.

    Raises:
        ValueError: a record or its affinities do not fit.
    """
    offset = 0
    package = 0
    while offset < len(raw):
        if offset + 8 > len(raw):
            raise ValueError(f"cannot read processor packages: a record is cut at byte {offset}")
        relation, size = struct.unpack_from("<II", raw, offset)
        if size < 8 or offset + size > len(raw):
            raise ValueError(f"cannot read processor packages: a record claims {size} bytes")
        if relation == _RELATION_PROCESSOR_PACKAGE:
            if _holds(raw[offset : offset + size], group, number, ptr_size):
                return package
            package += 1
        offset += size
    return None


def _holds(record: bytes, group: int, number: int, ptr_size: int) -> bool:
    if len(record) < 32:
        raise ValueError("cannot read processor packages: a record is too short")
    (count,) = struct.unpack_from("<H", record, 30)
    for index in range(count):
        start = 32 + index * (ptr_size + 8)
        if start + ptr_size + 8 > len(record):
            raise ValueError("cannot read processor packages: an affinity lies past its record")
        mask = int.from_bytes(record[start : start + ptr_size], "little")
        (mask_group,) = struct.unpack_from("<H", record, start + ptr_size)
        if mask_group == group and mask >> number & 1:
            return True
    return False


def get_current_emi_cpu_index() -> int:
    """The package that this thread runs on.

    Raises:
        ZeusEMINotSupportedError: this is not Windows.
        RuntimeError: Windows does not tell.
    """
    if not _WINDOWS:
        raise ZeusEMINotSupportedError("cannot ask EMI for the current package: not on Windows")
    import ctypes

    from zeus.device.cpu import _emi_windows

    group, number = _emi_windows.current_processor()
    package = _find_package_of_processor(
        _emi_windows.package_records(), group, number, ctypes.sizeof(ctypes.c_void_p)
    )
    if package is None:
        raise RuntimeError(
            f"cannot find the package of processor {number} in group {group}: "
            "Windows lists no package with it"
        )
    return package
