"""What a window emitted, and the energy by interval that this was computed from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from zeus.monitor._carbon_intensity import CarbonIntensity
from zeus.monitor._parts import unknown_energies

J_PER_KWH = 3.6e6


@dataclass(frozen=True)
class CarbonInterval:
    """What a window used within one interval of the provider.

    Attributes:
        interval: Start of the interval, in UTC.
        start: When the window's part starts: with the interval or with the window.
        end: When it ends.
        gpu_energy: Energy by GPU, in joules.
        cpu_energy: Energy by CPU, in joules.
        dram_energy: Energy by CPU's DRAM, in joules.
        intensity: The interval's value, with its provider, method and age; None where there is
            none.
    """

    interval: datetime
    start: datetime
    end: datetime
    gpu_energy: dict[int, float]
    cpu_energy: dict[int, float]
    dram_energy: dict[int, float]
    intensity: CarbonIntensity | None


@dataclass
class CarbonEmissionMeasurement:
    """Energy and carbon emission of a window.

    Attributes:
        time: Length of the window, in seconds.
        gpu_energy: Energy by GPU, in joules.
        gpu_carbon_emission: Emission by GPU, in gCO2eq; NaN where it is unknown.
        cpu_energy: Energy by CPU, in joules; None where no CPU is measured.
        cpu_carbon_emission: Emission by CPU, in gCO2eq; None where no CPU is measured.
        dram_energy: Energy by CPU's DRAM, in joules; None where none is measured.
        dram_carbon_emission: Emission by CPU's DRAM, in gCO2eq; None where none is measured.
        unavailable: Why emissions are NaN; None where they are known.
        intervals: The window by intervals of the provider; their energies add up to the window's.
    """

    time: float
    gpu_energy: dict[int, float]
    gpu_carbon_emission: dict[int, float]
    cpu_energy: dict[int, float] | None = None
    cpu_carbon_emission: dict[int, float] | None = None
    dram_energy: dict[int, float] | None = None
    dram_carbon_emission: dict[int, float] | None = None
    unavailable: str | None = None
    intervals: list[CarbonInterval] = field(default_factory=list)

    def with_intensities(self, values: Iterable[CarbonIntensity]) -> CarbonEmissionMeasurement:
        """The same energy priced with other values, such as ones that were published later.

        Args:
            values: Values by the starts of the same intervals, as `get_intensities` of a provider
                gives them. An interval without one keeps what it has.
        """
        by_start = {value.start: value for value in values}
        intervals = [
            replace(interval, intensity=by_start.get(interval.interval, interval.intensity))
            for interval in self.intervals
        ]
        return emission(
            self.time, self.gpu_energy, self.cpu_energy, self.dram_energy, intervals, None
        )


def emission(
    time: float,
    gpu_energy: dict[int, float],
    cpu_energy: dict[int, float] | None,
    dram_energy: dict[int, float] | None,
    intervals: list[CarbonInterval],
    reason: str | None,
) -> CarbonEmissionMeasurement:
    """Price the intervals; one without a value makes the emissions NaN."""
    unknown = [interval for interval in intervals if interval.intensity is None]

    def total(energies: Sequence[dict[int, float]], index: int) -> float:
        if unknown:
            return math.nan
        return math.fsum(
            energy[index] / J_PER_KWH * interval.intensity.g_per_kwh
            for energy, interval in zip(energies, intervals, strict=True)
            if interval.intensity is not None
        )

    gpu = [interval.gpu_energy for interval in intervals]
    cpu = [interval.cpu_energy for interval in intervals]
    dram = [interval.dram_energy for interval in intervals]
    return CarbonEmissionMeasurement(
        time=time,
        gpu_energy=gpu_energy,
        gpu_carbon_emission={index: total(gpu, index) for index in gpu_energy},
        cpu_energy=cpu_energy,
        cpu_carbon_emission=cpu_energy and {index: total(cpu, index) for index in cpu_energy},
        dram_energy=dram_energy,
        dram_carbon_emission=dram_energy and {index: total(dram, index) for index in dram_energy},
        unavailable=_why(unknown, reason) or unknown_energies(gpu_energy, cpu_energy, dram_energy),
        intervals=intervals,
    )


def _why(unknown: Sequence[CarbonInterval], reason: str | None) -> str | None:
    if not unknown:
        return None
    since = f"{unknown[0].interval:%Y-%m-%d %H:%M} UTC"
    return (
        f"no carbon intensity for {len(unknown)} interval(s) of the window, the first from "
        f"{since}: {reason or 'the provider has no value for it'}"
    )
