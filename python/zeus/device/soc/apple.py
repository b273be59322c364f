"""Apple silicon, read through the module `zeus_apple_silicon` (IOReport, no privilege needed).

The numbers are the chip's own model, published at about 1 mJ.
"""

from __future__ import annotations

import functools
import platform
import sys
from dataclasses import dataclass, fields
from typing import Any, NoReturn

from zeus.device.soc.common import SoC, SoCMeasurement, ZeusSoCInitError


class _MissingModule:
    """Stands for `zeus_apple_silicon` where it is not installed."""

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError(
            f"cannot use zeus_apple_silicon.{name}: the module is not installed; "
            "pip install zeus-apple-silicon (macOS on Apple silicon only)"
        )


try:
    import zeus_apple_silicon
except ImportError:
    zeus_apple_silicon = _MissingModule()
    zeus_apple_available = False
else:
    zeus_apple_available = True


class ZeusAppleInitError(ZeusSoCInitError):
    """Apple silicon cannot be measured; the message says why."""


@functools.lru_cache(maxsize=1)
def apple_silicon_is_available() -> bool:
    """Whether this is macOS on Apple silicon and `zeus_apple_silicon` is installed."""
    return zeus_apple_available and sys.platform == "darwin" and platform.processor() == "arm"


def _difference(name: str, end: Any, begin: Any) -> Any:
    """`end - begin` of one field: both None, both int, or both lists of one length."""
    if end is None and begin is None:
        return None
    if type(end) is not type(begin):
        raise ValueError(
            f"cannot subtract {name}: one reading has {type(end).__name__} "
            f"and the other {type(begin).__name__}"
        )
    if not isinstance(end, list):
        return end - begin
    if len(end) != len(begin):
        raise ValueError(
            f"cannot subtract {name}: the readings have {len(end)} and {len(begin)} entries"
        )
    return [later - earlier for later, earlier in zip(end, begin, strict=True)]


@dataclass
class AppleSiliconMeasurement(SoCMeasurement):
    """Energy of an Apple chip's domains in mJ; None where the chip does not publish it."""

    cpu_total_mj: int | None = None
    efficiency_cores_mj: list[int] | None = None
    performance_cores_mj: list[int] | None = None
    efficiency_cluster_mj: list[int] | None = None
    performance_cluster_mj: list[int] | None = None
    efficiency_core_manager_mj: int | None = None
    performance_core_manager_mj: int | None = None
    dram_mj: int | None = None
    gpu_mj: int | None = None
    gpu_sram_mj: int | None = None
    ane_mj: int | None = None

    def __sub__(self, other: SoCMeasurement) -> AppleSiliconMeasurement:
        """The energy between two readings, in mJ.

        Raises:
            TypeError: `other` is of another SoC.
            ValueError: a field is present, or has entries, in one reading only.
        """
        if not isinstance(other, AppleSiliconMeasurement):
            raise TypeError(f"cannot subtract {type(other).__name__} from AppleSiliconMeasurement")
        return AppleSiliconMeasurement(
            **{
                field.name: _difference(
                    field.name, getattr(self, field.name), getattr(other, field.name)
                )
                for field in fields(self)
            }
        )

    def zero_all_fields(self) -> None:
        """Numbers become 0 and lists empty; None stays."""
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                setattr(self, field.name, [] if isinstance(value, list) else 0)

    @classmethod
    def from_metrics(cls, metrics: Any) -> AppleSiliconMeasurement:
        """Copy the attributes of the same names from the native module's record."""
        return cls(**{field.name: getattr(metrics, field.name) for field in fields(cls)})


class AppleSilicon(SoC):
    """The chip of an Apple silicon Mac."""

    def __init__(self) -> None:
        """Open the chip's energy channels.

        Raises:
            ZeusAppleInitError: the native monitor could not be made.
        """
        try:
            self._monitor: Any = zeus_apple_silicon.AppleEnergyMonitor()
        except RuntimeError as error:
            raise ZeusAppleInitError(
                f"cannot open the energy channels of Apple silicon: {error}"
            ) from error
        self._available_metrics: set[str] | None = None

    def get_available_metrics(self) -> set[str]:
        """Names of the fields that the chip publishes."""
        if self._available_metrics is None:
            reading = self.get_total_energy_consumption()
            self._available_metrics = {
                field.name for field in fields(reading) if getattr(reading, field.name) is not None
            }
        return self._available_metrics

    def get_total_energy_consumption(self) -> AppleSiliconMeasurement:
        """Cumulative energy in mJ."""
        return AppleSiliconMeasurement.from_metrics(self._monitor.get_cumulative_energy())

    def begin_window(self, key: str, restart: bool = False) -> None:
        """Open a window.

        Raises:
            RuntimeError: `key` is open and `restart` is False (the native module's error).
        """
        self._monitor.begin_window(key, restart=restart)

    def end_window(self, key: str) -> AppleSiliconMeasurement:
        """Close a window and return its energy in mJ.

        Raises:
            RuntimeError: `key` is not open (the native module's error).
        """
        return AppleSiliconMeasurement.from_metrics(self._monitor.end_window(key))
