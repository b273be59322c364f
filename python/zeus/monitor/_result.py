"""From what the sources of a window say to its measurement."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zeus import _core
from zeus.monitor._measurement import Measurement, Uncertain
from zeus.monitor._sources import Joules

if TYPE_CHECKING:
    from zeus.device.soc.common import SoCMeasurement
    from zeus.monitor.energy import ZeusMonitor

_ZERO = (
    "The energy consumption of one or more GPUs was measured as zero. This means that the time "
    "duration of the measurement window was shorter than the GPU's energy counter update period. "
    "Consider turning on the `approx_instant_energy` option in `ZeusMonitor`, which approximates "
    "the energy consumption of a short time window as instant power draw x window duration."
)

TOO_SHORT = 1
"""R1 of the core's refusals: no update of the counter in so short a window."""


@dataclass
class Result:
    """Joules by kind and index, and what is known about them."""

    gpu_energy: dict[int, float]
    cpu_energy: dict[int, float]
    dram_energy: dict[int, float]
    estimates: dict[str, _core.Estimate | Uncertain] = field(default_factory=dict)
    sum: Any = None
    record: _core.Record | None = None

    def measurement(self, seconds: float, soc: SoCMeasurement | None) -> Measurement:
        """What users get."""
        return Measurement(
            time=seconds,
            gpu_energy=self.gpu_energy,
            cpu_energy=self.cpu_energy or None,
            dram_energy=self.dram_energy or None,
            soc_energy=soc,
        )._keep(_estimates=self.estimates, _sum=self.sum, _record=self.record)


def put_together(
    monitor: ZeusMonitor,
    begin_wall_s: float,
    end_wall_s: float,
    parts: list[Joules],
) -> Result:
    """Sort what the sources say by device."""
    only = parts[0] if len(parts) == 1 and monitor.power_monitor is None else None
    if only is not None:  # The usual way, and a hot one.
        gpus, cpus, drams = only.tables.values()
        if len(gpus) == len(monitor.gpu_indices):
            return Result(gpus, cpus, drams, only.estimates, only.sum, only.record)
    energies: dict[str, dict[int, float]] = {"gpu": {}, "cpu": {}, "dram": {}}
    estimates: dict[str, _core.Estimate | Uncertain] = {}
    record = None
    for part in parts:
        for kind, table in part.tables.items():
            energies[kind].update(table)
        # Those of the core come last, and are made when somebody asks for them.
        part.estimates.update(estimates)
        estimates = part.estimates
        record = part.record or record
    if monitor.power_monitor is not None:
        polled = monitor.power_monitor.get_energy(begin_wall_s, end_wall_s) or {}
        for i in monitor.power_monitor.gpu_indices:
            energies["gpu"][i] = polled.get(i, math.nan)
            if math.isnan(energies["gpu"][i]):
                estimates[f"gpu:{i}"] = Uncertain.missing("no sample of its power stands for it")
    gpu_energy = {i: energies["gpu"].get(i, math.nan) for i in monitor.gpu_indices}
    add = only.sum if only is not None else None
    return Result(gpu_energy, energies["cpu"], energies["dram"], estimates, add, record)


def warn_of_zero(depth: int) -> None:
    """Say in upstream's words that a window was too short for the counters of GPUs."""
    warnings.warn(_ZERO, stacklevel=depth)


def complete(monitor: ZeusMonitor, result: Result, seconds: float, depth: int) -> None:
    """Say that GPUs told no number, or take power x time for it where that is wanted."""
    estimates = result.estimates
    if monitor.approx_instant_energy:
        for i, joules in result.gpu_energy.items():
            if not joules > 0 or _too_short(estimates.get(f"gpu:{i}"), seconds):
                estimate = _approximate(monitor, i, seconds)
                result.gpu_energy[i], estimates[f"gpu:{i}"] = estimate.value_j, estimate
                result.sum = None
        return
    silent = [i for i, joules in result.gpu_energy.items() if not joules > 0]
    if not silent:
        return
    reasons = {i: _refusal(estimates, f"gpu:{i}") for i in silent}
    if any(reason.startswith("R1") or not reason for reason in reasons.values()):
        warnings.warn(_ZERO, stacklevel=depth)
    for i, reason in reasons.items():
        if reason and not reason.startswith("R1"):
            warnings.warn(f"The energy of GPU {i} is not known: {reason}", stacklevel=depth)


def _approximate(monitor: ZeusMonitor, index: int, seconds: float) -> Uncertain:
    """Present power x length."""
    joules = monitor.gpus.get_instant_power_usage(index) / 1e3 * seconds
    # The load was seen but once: it may have been anything from nothing to twice as much, with a
    # rectangular distribution (JCGM 100:2008, 4.3.7).
    u = joules / math.sqrt(3)
    return Uncertain(joules, u, u, (0.0, math.inf), flags=("approximated",), method="power x time")


def _refusal(estimates: dict[str, _core.Estimate | Uncertain], name: str) -> str:
    """Why a value is no number; empty where nobody said."""
    estimate = estimates.get(name)
    return (estimate.refusal if estimate is not None else "") or ""


def _too_short(estimate: _core.Estimate | Uncertain | None, seconds: float) -> bool:
    """Whether a window is shorter than two updates of the counter, which tells little of it."""
    return isinstance(estimate, _core.Estimate) and seconds < 2 * estimate.update_s
