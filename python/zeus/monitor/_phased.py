"""What a window came to, by phase."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zeus.monitor._measurement import Measurement, Uncertain

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class PhaseSpan:
    """When a phase ran once, in seconds of `time.monotonic()`, as the program saw it."""

    name: str
    begin_s: float
    end_s: float


@dataclass(frozen=True)
class Phase:
    """What one phase used, all its runs together.

    Attributes:
        name: Its name.
        time: How long it ran, in seconds.
        count: How often.
        energy_nj: Nanojoules by device; what has no number is not in it.
        uncertainty: What is known about the value of each device, and why there is none.
    """

    name: str
    time: float
    count: int
    energy_nj: Mapping[str, int]
    uncertainty: Mapping[str, Uncertain]

    @property
    def energy(self) -> float:
        """Joules of all devices; NaN where one has no number."""
        return self.total.value_j

    @property
    def total(self) -> Uncertain:
        """The same with its uncertainty; devices add linearly (JCGM 100:2008, 5.2.2)."""
        parts = list(self.uncertainty.values())
        return Uncertain(
            math.fsum(part.value_j for part in parts),
            sum(part.u_j for part in parts),
            sum(part.u_cmp_j for part in parts),
            (sum(part.bound_j[0] for part in parts), sum(part.bound_j[1] for part in parts)),
            tuple(dict.fromkeys(flag for part in parts for flag in part.flags)),
            "sum",
            "; ".join(f"{d}: {u.refusal}" for d, u in self.uncertainty.items() if u.refusal),
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON's types only."""
        return {
            "name": self.name,
            "time_s": self.time,
            "count": self.count,
            "total": self.total.to_dict(),
            "devices": {
                device: {"energy_nj": self.energy_nj.get(device)} | uncertain.to_dict()
                for device, uncertain in self.uncertainty.items()
            },
        }


@dataclass(frozen=True)
class Phased:
    """A window and its phases.

    Of each device, the nanojoules of all phases add up to those of the window, rounded to one.

    Attributes:
        measurement: The window as a whole.
        phases: By name, `other` last.
        spans: When each phase ran, in the order of time.
    """

    measurement: Measurement
    phases: Mapping[str, Phase]
    spans: list[PhaseSpan]

    def __getitem__(self, name: str) -> Phase:
        """One phase."""
        return self.phases[name]

    def __str__(self) -> str:
        """A table."""
        width = max(len(name) for name in [*self.phases, "window"])
        rows = [(p.name, f"{p.time:.3f} s", f"{p.count} x", p.total) for p in self.phases.values()]
        lines = [f"{name:{width}}  {t:>12}  {n:>8}  {total}" for name, t, n, total in rows]
        whole = self.measurement
        lines.append(f"{'window':{width}}  {f'{whole.time:.3f} s':>12}  {'':>8}  {whole.total}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from zeus.monitor import _html

        rows = [(p.name, f"{p.time:.3f} s", str(p.total)) for p in self.phases.values()]
        whole = self.measurement
        return _html.table("phases", [*rows, ("window", f"{whole.time:.3f} s", str(whole.total))])

    def to_dict(self) -> dict[str, Any]:
        """JSON's types only."""
        return {
            "window": self.measurement.to_dict(),
            "phases": [phase.to_dict() for phase in self.phases.values()],
        }

    def to_frame(self) -> pandas.DataFrame:
        """One row a phase and device: phase, device, time_s, count, energy_j, u_j, u_cmp_j.

        Raises:
            ImportError: pandas is not installed.
        """
        from zeus.monitor._extras import extra

        rows = [
            {
                "phase": phase.name,
                "device": device,
                "time_s": phase.time,
                "count": phase.count,
                "energy_j": uncertain.value_j,
                "u_j": uncertain.u_j,
                "u_cmp_j": uncertain.u_cmp_j,
            }
            for phase in self.phases.values()
            for device, uncertain in phase.uncertainty.items()
        ]
        return extra("pandas", "a table of phases").DataFrame(rows)
