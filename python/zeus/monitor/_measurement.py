"""What a measurement window came to: joules by device, and how far they may be relied on."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zeus import _core
    from zeus.device.soc.common import SoCMeasurement


@dataclass(frozen=True)
class Uncertain:
    """One device's joules in a window with what is known about their error.

    Attributes:
        value_j: Joules; NaN where there is no number.
        u_j: Standard uncertainty of the value (k = 1), the sensor's gain included where it is
            known; NaN where nothing is known about the error, as of counters read by Python code.
        u_cmp_j: The same for comparing windows of one sensor: without its gain and offset.
        bound_j: Lowest and highest value that are possible, whatever the load did; gain apart.
        flags: What a reader must know: "short_window", "integrated", "approximated" ...
        method: How the joules were told: "counter", "integrated", "power x time" ...
        refusal: Why there is no number; empty where there is one.
        quality: "A" to "D" by `u_cmp_j`, or "refused"; empty where it is not judged.
    """

    value_j: float
    u_j: float = math.nan
    u_cmp_j: float = math.nan
    bound_j: tuple[float, float] = (math.nan, math.nan)
    flags: tuple[str, ...] = ()
    method: str = ""
    refusal: str = ""
    quality: str = ""

    @classmethod
    def of(cls, estimate: _core.Estimate) -> Uncertain:
        """What the core says."""
        return cls(
            value_j=estimate.value_j,
            u_j=estimate.u_abs_j,
            u_cmp_j=estimate.u_cmp_j,
            bound_j=(estimate.low_j, estimate.high_j),
            flags=tuple(estimate.flags),
            method=estimate.method,
            refusal=estimate.refusal or "",
            quality=estimate.quality,
        )

    @classmethod
    def missing(cls, reason: str) -> Uncertain:
        """No number, and why."""
        return cls(math.nan, flags=("missing",), refusal=reason)


@dataclass
class Measurement:
    """The energy of one window.

    Attributes:
        time: Length of the window in seconds.
        gpu_energy: Joules by GPU, under the indices that the monitor was given. NaN where there is
            no number, never zero; `uncertainty` says why.
        cpu_energy: Joules by CPU package; None where none is measured.
        dram_energy: Joules of the memory by CPU package; None where none is measured.
        soc_energy: Of a system on a chip, in millijoules; None where there is none.
    """

    time: float
    gpu_energy: dict[int, float]
    cpu_energy: dict[int, float] | None = None
    dram_energy: dict[int, float] | None = None
    soc_energy: SoCMeasurement | None = None
    _estimates: Mapping[str, _core.Estimate | Uncertain] = field(
        default_factory=dict, repr=False, compare=False
    )
    _record: _core.Record | None = field(default=None, repr=False, compare=False)

    @functools.cached_property
    def total_energy(self) -> float:
        """Joules of all GPUs. Of GPUs only, as upstream's; `energy` is that of everything."""
        return sum(self.gpu_energy.values())

    @functools.cached_property
    def uncertainty(self) -> dict[str, Uncertain]:
        """What is known about the error of each value: "gpu:0", "cpu:0", "dram:0" ..."""
        known = {
            name: e if isinstance(e, Uncertain) else Uncertain.of(e)
            for name, e in self._estimates.items()
        }
        for name, joules in self._values():
            known.setdefault(name, Uncertain(joules))
        return known

    @property
    def flags(self) -> dict[str, tuple[str, ...]]:
        """The flags of those values that have any."""
        return {name: e.flags for name, e in self.uncertainty.items() if e.flags}

    @property
    def energy(self) -> float:
        """Joules of all that was measured: GPUs, CPU packages and their memory.

        NaN where a part of it is; a system on a chip, whose domains overlap, is not in it.
        """
        return math.fsum(joules for _, joules in self._values())

    def _values(self) -> list[tuple[str, float]]:
        parts = (("gpu", self.gpu_energy), ("cpu", self.cpu_energy), ("dram", self.dram_energy))
        return [
            (f"{kind}:{index}", joules)
            for kind, energies in parts
            for index, joules in (energies or {}).items()
        ]
