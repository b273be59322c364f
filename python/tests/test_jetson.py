"""Jetson rails over real trees of files with known powers: sums, units, integration, fork."""

import os
import time
from pathlib import Path

import pytest

from zeus.device.exception import ZeusBaseSoCError
from zeus.device.soc.jetson import (
    DeviceMap,
    Jetson,
    JetsonMeasurement,
    ZeusJetsonInitError,
    jetson_is_available,
)


def write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{value}\n")


def board(root: Path) -> Path:
    path = root / "proc/device-tree/model"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"NVIDIA Jetson AGX Orin Developer Kit\0")
    return root


def hwmon(root: Path, chip: str, number: int) -> Path:
    return root / f"sys/bus/i2c/drivers/ina3221/{chip}/hwmon/hwmon{number}"


def rail(folder: Path, k: int, name: str, millivolt: int, milliamp: int) -> None:
    write(folder / f"in{k}_label", name)
    write(folder / f"in{k}_input", millivolt)
    write(folder / f"curr{k}_input", milliamp)


def agx_orin(root: Path) -> Path:
    first, second = hwmon(root, "1-0040", 3), hwmon(root, "1-0041", 4)
    rail(first, 1, "VDD_GPU_SOC", 5000, 2000)  # 10 W
    rail(first, 2, "VDD_CPU_CV", 5000, 1000)  # 5 W
    rail(first, 3, "VIN_SYS_5V0", 5000, 800)  # 4 W
    rail(second, 2, "VDDQ_VDD2_1V8AO", 5000, 200)  # 1 W, out of VIN_SYS_5V0
    write(first / "in7_label", "sum of shunt voltages")
    write(first / "in7_input", 12)
    return board(root)


# field failure 125
def test_a_jetson_is_known_by_its_device_tree_where_l4t_left_no_mark(tmp_path: Path) -> None:
    assert not jetson_is_available(tmp_path)
    assert jetson_is_available(board(tmp_path))


def test_an_l4t_mark_is_enough(tmp_path: Path) -> None:
    write(tmp_path / "etc/nv_tegra_release", "# R35")
    assert jetson_is_available(tmp_path)


# weakness J2
# field failure 118
# field failure 119
def test_an_agx_orin_has_a_total_that_counts_each_supply_once(tmp_path: Path) -> None:
    found = DeviceMap.from_sysfs(agx_orin(tmp_path))
    assert set(found.rails) == {"VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0", "VDDQ_VDD2_1V8AO"}
    assert found.cpu == ("VDD_CPU_CV",)
    assert found.gpu == ("VDD_GPU_SOC",)
    powers = [found.rails[name].measure_power() for name in found.total]
    assert sum(powers) == 19_000  # 10 W + 5 W + 4 W; the fourth rail is inside VIN_SYS_5V0


# weakness J2
# field failure 119
def test_a_rail_that_cpu_and_gpu_share_is_given_to_neither(tmp_path: Path) -> None:
    folder = hwmon(board(tmp_path), "1-0040", 1)
    rail(folder, 1, "VDD_IN", 5000, 3000)
    rail(folder, 2, "VDD_CPU_GPU_CV", 5000, 1000)
    rail(folder, 3, "VDD_SOC", 5000, 500)
    found = DeviceMap.from_sysfs(tmp_path)
    assert (found.cpu, found.gpu, found.total) == ((), (), ("VDD_IN",))
    reading = Jetson(tmp_path).get_total_energy_consumption()
    assert reading.cpu_energy_mj is None
    assert reading.gpu_energy_mj is None
    assert reading.total_energy_mj is not None
    assert set(reading.rails_mj) == {"VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"}


# weakness J2
# field failure 119
def test_two_rails_of_one_class_add_up(tmp_path: Path) -> None:
    rail(hwmon(board(tmp_path), "1-0040", 1), 1, "VDD_CPU_CV", 5000, 1000)
    rail(hwmon(tmp_path, "1-0041", 2), 1, "VDD_CPU_SOC_MSS", 5000, 2000)
    found = DeviceMap.from_sysfs(tmp_path)
    assert sum(found.rails[name].measure_power() for name in found.cpu) == 15_000
    assert found.total == ()


def test_one_name_on_two_sensors_stays_two_rails(tmp_path: Path) -> None:
    rail(hwmon(board(tmp_path), "1-0040", 1), 1, "VDD_CPU", 5000, 1000)
    rail(hwmon(tmp_path, "1-0041", 2), 1, "VDD_CPU", 5000, 3000)
    found = DeviceMap.from_sysfs(tmp_path)
    assert set(found.rails) == {"VDD_CPU", "VDD_CPU@hwmon2"}


# weakness J2
# field failure 120
def test_power_below_hwmon_is_microwatt_and_the_vendor_drivers_is_milliwatt(
    tmp_path: Path,
) -> None:
    new = hwmon(board(tmp_path), "1-0040", 2)
    write(new / "in1_label", "VDD_IN")
    write(new / "power1_input", 25_000_000)
    old = tmp_path / "sys/bus/i2c/drivers/ina3221x/0-0041/iio:device1"
    write(old / "rail_name_0", "VDD_GPU")
    write(old / "in_power0_input", 7_500)
    found = DeviceMap.from_sysfs(tmp_path)
    assert found.rails["VDD_IN"].measure_power() == 25_000
    assert found.rails["VDD_GPU"].measure_power() == 7_500


# field failure 121
# field failure 122
def test_a_sensor_listed_twice_counts_once_and_non_rails_are_skipped(tmp_path: Path) -> None:
    folder = hwmon(board(tmp_path), "1-0040", 1)
    write(folder / "name", "ina3221")
    rail(folder, 1, "VDD_IN", 5000, 1000)
    rail(folder, 2, "NC", 0, 0)
    write(folder / "in3_label", "VDD_SOC")  # switched off: label without readings
    link = tmp_path / "sys/class/hwmon/hwmon1"
    link.parent.mkdir(parents=True)
    link.symlink_to(folder)
    assert set(DeviceMap.from_sysfs(tmp_path).rails) == {"VDD_IN"}


def test_a_thor_is_read_at_its_input_sensor(tmp_path: Path) -> None:
    folder = board(tmp_path) / "sys/class/hwmon/hwmon0"
    write(folder / "name", "ina238")
    write(folder / "power1_input", 60_000_000)
    found = DeviceMap.from_sysfs(tmp_path)
    assert found.total == ("VIN",)
    assert found.rails["VIN"].measure_power() == 60_000


def test_a_jetson_without_rails_says_what_to_mount(tmp_path: Path) -> None:
    with pytest.raises(ZeusJetsonInitError, match="mount the host's /sys"):
        Jetson(board(tmp_path))
    with pytest.raises(ZeusJetsonInitError, match="does not look like one"):
        Jetson(tmp_path / "elsewhere")


# weakness J1
def test_a_window_shorter_than_the_period_has_its_own_energy(tmp_path: Path) -> None:
    jetson = Jetson(agx_orin(tmp_path))
    before_s = time.monotonic()
    jetson.begin_window("short")
    inner_s = time.monotonic()
    time.sleep(0.02)
    inner_s = time.monotonic() - inner_s
    energy = jetson.end_window("short")
    outer_s = time.monotonic() - before_s
    jetson.stop()
    assert energy.gpu_energy_mj is not None
    # Constant 10 W: the energy is 10 W times a time between the two that bracket the reads.
    assert 10_000 * inner_s <= energy.gpu_energy_mj <= 10_000 * outer_s


# weakness J1
def test_readings_are_records_of_their_own(tmp_path: Path) -> None:
    jetson = Jetson(agx_orin(tmp_path))
    first = jetson.get_total_energy_consumption()
    kept = first.rails_mj["VIN_SYS_5V0"]
    time.sleep(0.25)
    second = jetson.get_total_energy_consumption()
    assert first.rails_mj["VIN_SYS_5V0"] == kept < second.rails_mj["VIN_SYS_5V0"]


def test_a_rail_that_fails_is_said_and_bridged_when_it_returns(tmp_path: Path) -> None:
    jetson = Jetson(agx_orin(tmp_path))
    current = hwmon(tmp_path, "1-0040", 3) / "curr1_input"
    start = jetson.get_total_energy_consumption()
    current.write_text("not a number")
    with pytest.raises(ZeusBaseSoCError, match="VDD_GPU_SOC"):
        jetson.get_total_energy_consumption()
    time.sleep(0.05)
    current.write_text("2000")
    energy = jetson.get_total_energy_consumption() - start
    assert energy.gpu_energy_mj is not None
    assert energy.gpu_energy_mj >= 10_000 * 0.05


def test_windows_say_by_key_error_what_is_wrong_with_their_key(tmp_path: Path) -> None:
    jetson = Jetson(agx_orin(tmp_path))
    jetson.begin_window("a")
    with pytest.raises(KeyError, match="already open"):
        jetson.begin_window("a")
    jetson.begin_window("a", restart=True)
    jetson.end_window("a")
    with pytest.raises(KeyError, match="not open"):
        jetson.end_window("a")


def test_readings_go_on_after_stop(tmp_path: Path) -> None:
    jetson = Jetson(agx_orin(tmp_path))
    jetson.stop()
    jetson.stop()
    assert jetson.get_total_energy_consumption(timeout=1.0).total_energy_mj is not None


# weakness F1
def test_a_forked_child_measures_on_and_leaves_the_parents_thread_alone(tmp_path: Path) -> None:
    jetson = Jetson(agx_orin(tmp_path))
    before = jetson.get_total_energy_consumption()
    child = os.fork()
    if child == 0:
        energy = jetson.get_total_energy_consumption(timeout=5.0) - before
        jetson.stop()
        os._exit(0 if (energy.total_energy_mj or 0.0) > 0.0 else 1)
    assert os.waitpid(child, 0)[1] == 0
    after = jetson.get_total_energy_consumption(timeout=5.0)
    assert (after - before).rails_mj["VDD_CPU_CV"] > 0.0


def test_subtraction_refuses_readings_that_do_not_match() -> None:
    whole = JetsonMeasurement(3.0, 2.0, 9.0, {"VDD_IN": 9.0})
    half = JetsonMeasurement(1.0, 1.0, 4.0, {"VDD_IN": 4.0})
    assert whole - half == JetsonMeasurement(2.0, 1.0, 5.0, {"VDD_IN": 5.0})
    with pytest.raises(TypeError, match="total_energy_mj"):
        _ = whole - JetsonMeasurement(1.0, 1.0, None, {"VDD_IN": 4.0})
    with pytest.raises(TypeError, match="rails_mj"):
        _ = whole - JetsonMeasurement(1.0, 1.0, 1.0)
    whole.zero_all_fields()
    assert whole == JetsonMeasurement(0.0, 0.0, 0.0, {"VDD_IN": 0.0})
