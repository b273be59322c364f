"""The Windows energy meter's records, built byte by byte from the layouts of emi.h."""

import struct

import pytest

from zeus.device.cpu import emi
from zeus.device.cpu.common import CpuDramMeasurement, EmptyCPUs


def v2(*channels: tuple[int, str]) -> bytes:
    raw = b"\0" * 64 + struct.pack("<HH", 1, len(channels))
    for unit, name in channels:
        text = (name + "\0").encode("utf-16-le")
        raw += struct.pack("<IH", unit, len(text)) + text
    return raw


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_metadata_that_ends_early_is_refused(cut: int) -> None:
    raw = v2((0, "RAPL_Package0_PKG"), (0, "RAPL_Package0_DRAM"))
    with pytest.raises(emi.ZeusEMIInitError, match="cannot read EMI metadata"):
        emi.EMIFile._parse_channels(version=2, raw=raw[:-cut])


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(emi.ZeusEMIInitError, match="version 3"):
        emi.EMIFile._parse_channels(version=3, raw=v2())


def test_a_short_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    device = object.__new__(emi.EMIFile)
    device.path, device.version, device._handle = "meter", 2, 0
    device.channels = emi.EMIFile._parse_channels(version=2, raw=v2((0, "RAPL_Package0_PKG")))
    monkeypatch.setattr(emi, "_ioctl", lambda *_: b"\0" * 8)
    with pytest.raises(emi.ZeusEMIInitError, match="8 bytes of 16"):
        device.read(0)
    # 1 Wh is 3600 J.
    monkeypatch.setattr(emi, "_ioctl", lambda *_: struct.pack("<QQ", 10**12, 0))
    assert device.read(0) == pytest.approx(3_600_000.0)


# field failure 135
def test_only_package_channels_are_packages() -> None:
    channels = emi.EMIFile._parse_channels(
        version=2, raw=v2((0, "RAPL_Package0_PKG"), (0, "CORE"), (0, "RAPL_Package0_PP0"))
    )
    assert [emi._package_of(channel, "PKG") for channel in channels] == [0, None, None]


def test_emi_is_not_there_off_windows() -> None:
    with pytest.raises(emi.ZeusEMINotSupportedError):
        emi.EMICPUs()


# weakness R6
def test_dram_is_known_only_where_both_readings_have_it() -> None:
    both = CpuDramMeasurement(10.0, 4.0) - CpuDramMeasurement(7.0, 1.0)
    assert both == CpuDramMeasurement(3.0, 3.0)
    assert CpuDramMeasurement(10.0, 4.0) - CpuDramMeasurement(7.0) == CpuDramMeasurement(3.0)
    assert CpuDramMeasurement(10.0) - CpuDramMeasurement(7.0, 1.0) == CpuDramMeasurement(3.0)


def test_energies_divide_by_numbers_only() -> None:
    assert CpuDramMeasurement(1500.0, 500.0) / 1000 == CpuDramMeasurement(1.5, 0.5)
    assert CpuDramMeasurement(1500.0) / 1000.0 == CpuDramMeasurement(1.5)
    with pytest.raises(ZeroDivisionError):
        _ = CpuDramMeasurement(1.0) / 0
    with pytest.raises(TypeError):
        _ = CpuDramMeasurement(1.0) / "2"  # type: ignore[operator]
    with pytest.raises(TypeError):
        _ = CpuDramMeasurement(1.0) - 2  # type: ignore[operator]


def test_no_cpus_refuse_every_reading() -> None:
    assert len(EmptyCPUs()) == 0
    with pytest.raises(ValueError, match="no CPU can be measured"):
        EmptyCPUs().get_total_energy_consumption(0)
    with pytest.raises(ValueError, match="no CPU can be measured"):
        EmptyCPUs().supports_get_dram_energy_consumption(0)
