"""The SoC layer where there is none, and the arithmetic of Apple's record."""

import pytest

from zeus.device import soc
from zeus.device.soc.apple import AppleSiliconMeasurement
from zeus.device.soc.common import EmptySoC, ZeusSoCInitError


def test_a_machine_without_soc_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soc, "_soc", None)
    monkeypatch.setattr(soc, "jetson_is_available", lambda: False)
    with pytest.raises(ZeusSoCInitError, match="neither Apple silicon nor an NVIDIA Jetson"):
        soc.get_soc()
    assert soc._soc is None


def test_the_soc_object_is_one_for_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = EmptySoC()
    monkeypatch.setattr(soc, "_soc", empty)
    assert soc.get_soc() is empty


def test_an_empty_soc_refuses_every_reading() -> None:
    empty = EmptySoC()
    assert empty.get_available_metrics() == set()
    with pytest.raises(ValueError, match="no measurable SoC"):
        empty.get_total_energy_consumption()
    with pytest.raises(ValueError, match="no measurable SoC"):
        empty.begin_window("a")
    with pytest.raises(ValueError, match="no measurable SoC"):
        empty.end_window("a")


def test_apple_readings_subtract_field_by_field_and_refuse_what_does_not_match() -> None:
    end = AppleSiliconMeasurement(cpu_total_mj=50, efficiency_cores_mj=[5, 9])
    begin = AppleSiliconMeasurement(cpu_total_mj=20, efficiency_cores_mj=[1, 2])
    assert end - begin == AppleSiliconMeasurement(cpu_total_mj=30, efficiency_cores_mj=[4, 7])
    with pytest.raises(ValueError, match="efficiency_cores_mj"):
        _ = end - AppleSiliconMeasurement(cpu_total_mj=1, efficiency_cores_mj=[1])
    with pytest.raises(ValueError, match="gpu_mj"):
        _ = end - AppleSiliconMeasurement(cpu_total_mj=1, efficiency_cores_mj=[1, 2], gpu_mj=3)
    with pytest.raises(TypeError, match="int"):
        _ = end - 3  # type: ignore[operator]
