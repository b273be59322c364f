"""What a window cost, and the energy by hour that this was computed from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from zeus.monitor._parts import unknown_energies

if TYPE_CHECKING:
    from zeus.monitor.energy import Measurement

J_PER_KWH = 3.6e6


@dataclass(frozen=True)
class CostInterval:
    """What a window used within one hour of the tariff.

    Attributes:
        start: When, in UTC: with the hour or with the window.
        end: Until when.
        gpu_energy: Energy by GPU, in joules.
        cpu_energy: Energy by CPU, in joules.
        dram_energy: Energy by CPU's DRAM, in joules.
        usd_per_kwh: Mean price of this energy; None where it is unknown.
    """

    start: datetime
    end: datetime
    gpu_energy: dict[int, float]
    cpu_energy: dict[int, float]
    dram_energy: dict[int, float]
    usd_per_kwh: float | None


@dataclass
class EnergyCostMeasurement:
    """Energy and cost of a window.

    Attributes:
        time: Length of the window, in seconds.
        gpu_energy: Energy by GPU, in joules.
        gpu_energy_cost: Cost by GPU, in $; NaN where it is unknown.
        cpu_energy: Energy by CPU, in joules; None where no CPU is measured.
        cpu_energy_cost: Cost by CPU, in $; None where no CPU is measured.
        dram_energy: Energy by CPU's DRAM, in joules; None where none is measured.
        dram_energy_cost: Cost by CPU's DRAM, in $; None where none is measured.
        unavailable: Why costs are NaN; None where they are known.
        intervals: The window by hours of the tariff; their energies add up to the window's.
    """

    time: float
    gpu_energy: dict[int, float]
    gpu_energy_cost: dict[int, float]
    cpu_energy: dict[int, float] | None = None
    cpu_energy_cost: dict[int, float] | None = None
    dram_energy: dict[int, float] | None = None
    dram_energy_cost: dict[int, float] | None = None
    unavailable: str | None = None
    intervals: list[CostInterval] = field(default_factory=list)


def cost(
    measurement: Measurement,
    intervals: list[CostInterval],
    reason: str | None,
) -> EnergyCostMeasurement:
    """Add up the intervals; a `reason` why prices are missing makes the costs NaN."""

    def total(energies: Sequence[dict[int, float]], index: int) -> float:
        if reason:
            return math.nan
        return math.fsum(
            energy[index] / J_PER_KWH * (interval.usd_per_kwh or 0.0)
            for energy, interval in zip(energies, intervals, strict=True)
        )

    gpu = [interval.gpu_energy for interval in intervals]
    cpu = [interval.cpu_energy for interval in intervals]
    dram = [interval.dram_energy for interval in intervals]
    cpu_energy, dram_energy = measurement.cpu_energy or None, measurement.dram_energy or None
    return EnergyCostMeasurement(
        time=measurement.time,
        gpu_energy=measurement.gpu_energy,
        gpu_energy_cost={index: total(gpu, index) for index in measurement.gpu_energy},
        cpu_energy=cpu_energy,
        cpu_energy_cost=cpu_energy and {index: total(cpu, index) for index in cpu_energy},
        dram_energy=dram_energy,
        dram_energy_cost=dram_energy and {index: total(dram, index) for index in dram_energy},
        unavailable=reason or unknown_energies(measurement.gpu_energy, cpu_energy, dram_energy),
        intervals=intervals,
    )
