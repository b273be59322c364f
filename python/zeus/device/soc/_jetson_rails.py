"""The power rails of a Jetson: where sysfs shows them, in which unit, and what each one feeds."""

from __future__ import annotations

import abc
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# The vendor's driver and the mainline one, by the names that L4T releases gave them.
_I2C_DRIVERS = ("sys/bus/i2c/drivers/ina3221x", "sys/bus/i2c/drivers/ina3221")
_HWMON_CLASS = "sys/class/hwmon"

# One rail that carries the whole module: TX1, TX2, NX and Nano; the first Nano; Thor's INA238.
_INPUT_RAILS = ("VDD_IN", "POM_5V_IN", "VIN")
# AGX modules have no such rail. Their supplies run side by side from the module's input, except
# VDDQ_VDD2_1V8AO of the Orin, which hangs on VIN_SYS_5V0 and must not be counted again.
_SIDE_BY_SIDE_RAILS = (
    ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"),
    ("GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"),
)


def check_file(path: Path) -> bool:
    """Whether `path` is a file that this process can read now.

    The channels of a sensor that are switched off exist, and fail to be read.
    """
    try:
        path.read_bytes()
    except OSError:
        return False
    return True


class PowerMeasurementStrategy(abc.ABC):
    """How the power of one rail is read."""

    @abc.abstractmethod
    def measure_power(self) -> float:
        """Power now, in mW.

        Raises:
            OSError: a file cannot be read.
            ValueError: a file does not hold an integer.
        """


@dataclass(frozen=True)
class DirectPower(PowerMeasurementStrategy):
    """A rail whose power is one file.

    Attributes:
        power_path: The file.
        counts_per_mw: 1 for the vendor driver's `in_powerN_input` (milliwatt), 1000 for
            `powerN_input` below hwmon (microwatt, by the kernel's hwmon sysfs interface).
    """

    power_path: Path
    counts_per_mw: int = 1

    def measure_power(self) -> float:
        """Power now, in mW."""
        return int(self.power_path.read_text()) / self.counts_per_mw


@dataclass(frozen=True)
class VoltageCurrentProduct(PowerMeasurementStrategy):
    """A rail whose power is a voltage (mV) times a current (mA)."""

    voltage_path: Path
    current_path: Path

    def measure_power(self) -> float:
        """Power now, in mW."""
        return int(self.voltage_path.read_text()) * int(self.current_path.read_text()) / 1000


def _first_readable(
    power: tuple[Path, int], voltage: Path, current: Path
) -> PowerMeasurementStrategy | None:
    if check_file(power[0]):
        return DirectPower(*power)
    if check_file(voltage) and check_file(current):
        return VoltageCurrentProduct(voltage, current)
    return None


def _hwmon_rail(folder: Path, number: str) -> PowerMeasurementStrategy | None:
    return _first_readable(
        (folder / f"power{number}_input", 1000),
        folder / f"in{number}_input",
        folder / f"curr{number}_input",
    )


def _vendor_rail(folder: Path, number: str) -> PowerMeasurementStrategy | None:
    return _first_readable(
        (folder / f"in_power{number}_input", 1),
        folder / f"in_voltage{number}_input",
        folder / f"in_current{number}_input",
    )


def _read_name(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None


def _sensor_folders(root: Path) -> Iterator[Path]:
    """Folders that may hold a sensor's files, each physical one once."""
    found: list[Path] = []
    for driver in _I2C_DRIVERS:
        for device in sorted((root / driver).glob("*-*")):
            found += [device, *sorted(device.glob("*:*")), *sorted(device.glob("hwmon*/hwmon*"))]
            found += sorted(device.glob("hwmon[0-9]*"))
    for folder in sorted((root / _HWMON_CLASS).glob("hwmon*")):
        if _read_name(folder / "name") in ("ina3221", "ina3221x", "ina238"):
            found.append(folder)
    seen: set[Path] = set()
    for folder in found:
        physical = folder.resolve()
        if folder.is_dir() and physical not in seen:
            seen.add(physical)
            yield folder


def _rails_of(folder: Path) -> Iterator[tuple[str, PowerMeasurementStrategy]]:
    for path in sorted(folder.iterdir()):
        label = re.fullmatch(r"in(\d+)_label", path.name)
        vendor = re.fullmatch(r"rail_name_(\d+)", path.name)
        name = _read_name(path) if label or vendor else None
        # "NC" is a channel without a rail; the seventh channel of an INA3221 is a sum of shunts.
        if name is None or name.upper() == "NC" or "shunt" in name.lower():
            continue
        strategy = (
            _hwmon_rail(folder, label[1]) if label else _vendor_rail(folder, vendor[1])  # type: ignore[index]
        )
        if strategy is not None:
            yield name, strategy
    if _read_name(folder / "name") == "ina238" and check_file(folder / "power1_input"):
        yield _read_name(folder / "label") or "VIN", DirectPower(folder / "power1_input", 1000)


def _names_of(rails: dict[str, PowerMeasurementStrategy], word: str, not_word: str) -> list[str]:
    """Rails whose name has `word` among its parts and `not_word` not."""
    parts = {name: name.upper().split("_") for name in rails}
    return [name for name in rails if word in parts[name] and not_word not in parts[name]]


def _total_of(rails: dict[str, PowerMeasurementStrategy]) -> list[str]:
    by_upper = {name.upper(): name for name in rails}
    for name in _INPUT_RAILS:
        if name in by_upper:
            return [by_upper[name]]
    for group in _SIDE_BY_SIDE_RAILS:
        if all(name in by_upper for name in group):
            return [by_upper[name] for name in group]
    return []


@dataclass(frozen=True)
class DeviceMap:
    """Every rail of a Jetson, and which of them add up to what.

    Attributes:
        rails: How each rail is read, by the name on the board. A name that a second sensor
            repeats carries that sensor's folder after an `@`.
        cpu: Rails that feed the CPU and not the GPU.
        gpu: Rails that feed the GPU and not the CPU.
        total: Rails whose sum is the module's input; empty where the board does not tell it.

    A rail that CPU and GPU share (`VDD_CPU_GPU_CV`) is in `rails` only: nothing says whose part
    is how large.
    """

    rails: dict[str, PowerMeasurementStrategy]
    cpu: tuple[str, ...]
    gpu: tuple[str, ...]
    total: tuple[str, ...]

    @classmethod
    def from_sysfs(cls, root: Path) -> DeviceMap:
        """Find the rails below `root` (`/` on a real board)."""
        rails: dict[str, PowerMeasurementStrategy] = {}
        for folder in _sensor_folders(root):
            for name, strategy in _rails_of(folder):
                rails[name if name not in rails else f"{name}@{folder.name}"] = strategy
        return cls(
            rails=rails,
            cpu=tuple(_names_of(rails, "CPU", "GPU")),
            gpu=tuple(_names_of(rails, "GPU", "CPU")),
            total=tuple(_total_of(rails)),
        )
