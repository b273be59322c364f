"""What a measurement window came to: joules by device, and how far they may be relied on."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from zeus.monitor import _text

if TYPE_CHECKING:
    from zeus import _core
    from zeus.device.soc.common import SoCMeasurement
    from zeus.monitor._sources import Core


# What a number is of, said beside it: none of them is the machine.
_COVERS = {
    "gpu": "the board: GPU, its memory and its own supplies",
    "cpu": "the processor's package, not the machine around it",
    "dram": "the memory of a package",
}


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

    def __str__(self) -> str:
        """As "85.4 J ± 12.0 J (k = 2)"; where there is no number, why."""
        return format(self)

    def __format__(self, spec: str) -> str:
        """Write it out: "" as `str()` does, "c" concisely, as "85.4(60) J" (k = 1).

        Raises:
            ValueError: There is no such format.
        """
        return _text.written(self.value_j, self.u_j, spec, self.refusal)

    def to_dict(self) -> dict[str, Any]:
        """JSON's types only; what is not a finite number is None, and `why` says why."""
        return {
            "energy_j": _text.finite(self.value_j),
            "u_j": _text.finite(self.u_j),
            "u_cmp_j": _text.finite(self.u_cmp_j),
            "bound_j": [_text.finite(limit) for limit in self.bound_j],
            "flags": list(self.flags),
            "method": self.method or None,
            "quality": self.quality or None,
            "why": self.refusal or (_text.UNKNOWN if math.isnan(self.u_j) else None),
        }


@dataclass(frozen=True)
class Span:
    """When a window was.

    Attributes:
        name: Its name.
        begin_s: When it began, by `time.monotonic()`.
        end_s: When it ended, by the same clock.
        wall_s: When it began, in seconds of the wall clock.
    """

    name: str
    begin_s: float
    end_s: float
    wall_s: float


class CoreWindow:
    """A window of which the core read everything: what is known of it is made when asked for."""

    __slots__ = ("core", "name", "wall_s")

    def __init__(self, core: Core, name: str, wall_s: float) -> None:
        """Began at a time of the wall clock."""
        self.core = core
        self.name = name
        self.wall_s = wall_s

    def span(self, record: _core.Record) -> Span:
        """When it was."""
        return Span(self.name, record.begin_s, record.end_s, self.wall_s)


@dataclass(frozen=True)
class PowerRun:
    """Equal readings of power in a row: (first, last) by `time.monotonic()`, and watts."""

    first_s: float
    last_s: float
    power_w: float


@dataclass
class Measurement:
    """The energy of one window.

    `f"{m:u}"` writes the energy of everything as "85.4 J ± 12.0 J (k = 2)", `f"{m:c}"` as
    "85.4(60) J".

    Attributes:
        time: Length of the window in seconds.
        gpu_energy: Joules by GPU, under the indices that the monitor was given. NaN where there is
            no number, never zero; `uncertainty` says why.
        cpu_energy: Joules by CPU package; None where none is measured.
        dram_energy: Joules of the memory by CPU package; None where none is measured.
        soc_energy: Of a system on a chip, in millijoules; None where there is none.
        power: The power of GPUs within it, where it was sampled, by index.
    """

    time: float
    gpu_energy: dict[int, float]
    cpu_energy: dict[int, float] | None = None
    dram_energy: dict[int, float] | None = None
    soc_energy: SoCMeasurement | None = None

    # Not fields: `dataclasses.asdict()` gives numbers, and nothing that cannot be copied.
    power: ClassVar[Mapping[int, Sequence[PowerRun]]] = {}
    _record: ClassVar[_core.Record | None] = None
    _source: ClassVar[CoreWindow | None] = None

    @functools.cached_property
    def span(self) -> Span | None:
        """The window's name and when it was; None of a measurement that was made by hand."""
        return self._source.span(self._record) if self._source and self._record else None

    @functools.cached_property
    def _estimates(self) -> Mapping[str, _core.Estimate | Uncertain]:
        return self._source.core.estimates(self._record) if self._source and self._record else {}

    @functools.cached_property
    def _sum(self) -> Callable[[list[str]], _core.Estimate | None] | None:
        """Adds up values of the core with their uncertainty; None where it cannot tell that."""
        return self._estimates.total if self._source is not None else None  # type: ignore[attr-defined]

    def _keep(self, **known: Any) -> Measurement:
        """Take what is known beside the fields."""
        self.__dict__.update(known)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """For other processes: what the core only keeps a record of is made now."""
        state = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        power = {i: list(runs) for i, runs in self.power.items()}
        return state | {
            "uncertainty": self.uncertainty,
            "total": self.total,
            "span": self.span,
            "power": power,
        }

    @property
    def self_cost_s(self) -> float | None:
        """Seconds that reading the counters took at both edges; None where nobody took them."""
        return self._record.self_cost_s if self._record is not None else None

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

    @functools.cached_property
    def total(self) -> Uncertain:
        """`energy` with what is known about its error.

        The core adds up what it reads (`zeus::estimate`: random parts in quadrature, gains
        linearly). With others' counters all parts add linearly, which holds however they are
        correlated (JCGM 100:2008, 5.2.2).
        """
        names = [name for name, _ in self._values()]
        if not names:
            return Uncertain.missing("nothing was measured")
        parts = [self.uncertainty[name] for name in names]
        # Of a part without a number the core's sum does not say why it has none.
        if self._sum is not None and not any(part.refusal for part in parts):
            estimate = self._sum(names)
            if estimate is not None:
                return Uncertain.of(estimate)
        return Uncertain(
            value_j=math.fsum(joules for _, joules in self._values()),
            u_j=sum(part.u_j for part in parts),
            u_cmp_j=sum(part.u_cmp_j for part in parts),
            bound_j=(sum(p.bound_j[0] for p in parts), sum(p.bound_j[1] for p in parts)),
            flags=tuple(dict.fromkeys(flag for part in parts for flag in part.flags)),
            method="sum",
            refusal="; ".join(
                f"{n}: {self.uncertainty[n].refusal}" for n in names if self.uncertainty[n].refusal
            ),
        )

    @property
    def flags(self) -> dict[str, tuple[str, ...]]:
        """The flags of those values that have any."""
        return {name: e.flags for name, e in self.uncertainty.items() if e.flags}

    @property
    def energy(self) -> float:
        """Joules of all that was measured: GPUs, CPU packages and their memory.

        NaN where a part of it is, or nothing was measured; a system on a chip, whose domains
        overlap, is not in it.
        """
        return self.total.value_j

    def __format__(self, spec: str) -> str:
        """Write the energy of everything: "u" with ±, "c" concisely, "" as `repr()`.

        Raises:
            ValueError: There is no such format.
        """
        return str(self) if not spec else format(self.total, "" if spec == "u" else spec)

    def to_dict(self) -> dict[str, Any]:
        """JSON's types only: seconds, joules, None for what has no number, and why.

        `soc` is in millijoules, as the attribute.
        """
        begin = self.span and self.span.wall_s
        return {
            "name": self.span and self.span.name,
            "begin_unix_s": begin,
            "time_s": _text.finite(self.time),
            "total": self.total.to_dict(),
            "self_cost_s": self.self_cost_s,
            "devices": {
                name: {
                    **self.uncertainty[name].to_dict(),
                    "covers": _COVERS[name.partition(":")[0]],
                }
                for name, _ in self._values()
            },
            "soc_mj": dataclasses.asdict(self.soc_energy) if self.soc_energy else None,
        }

    def _repr_html_(self) -> str:
        from zeus.monitor._html import measurement

        return measurement(self)

    def _values(self) -> list[tuple[str, float]]:
        parts = (("gpu", self.gpu_energy), ("cpu", self.cpu_energy), ("dram", self.dram_energy))
        return [
            (f"{kind}:{index}", joules)
            for kind, energies in parts
            for index, joules in (energies or {}).items()
        ]
