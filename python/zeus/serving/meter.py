"""Reads the devices of a ledger and keeps their totals in whole nanojoules."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from zeus.serving.engine import Clock, EnergySource


@dataclass(slots=True)
class Block:
    """What the devices used in a stretch of time.

    Attributes:
        whole_nj: By device that could be read, in nanojoules.
        carry_nj: By device, what rounding left over for the next stretch.
        missing: Devices that could not be read.
        shared_var: Variance of those whose errors cancel at shared edges, in J^2.
        independent_var: Variance of the others.
        device_var: Variance by device.
    """

    whole_nj: dict[str, int] = field(default_factory=dict)
    carry_nj: dict[str, float] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    shared_var: float = 0.0
    independent_var: float = 0.0
    device_var: dict[str, float] = field(default_factory=dict)

    @property
    def measured(self) -> bool:
        """Whether any device could be read."""
        return bool(self.whole_nj)

    @property
    def energy_j(self) -> float:
        """Of all devices that could be read."""
        return sum(self.whole_nj.values()) * 1e-9

    @property
    def u_j(self) -> float:
        """Standard uncertainty of that."""
        return math.sqrt(self.shared_var + self.independent_var)


class Meter:
    """The devices of a ledger. What rounding to nanojoules leaves is carried to the next reading,
    so that a device's total stays within half a nanojoule of the sum of its readings.
    """

    def __init__(self, sources: Mapping[str, EnergySource], clock: Clock) -> None:
        if not sources:
            raise ValueError("a ledger without an energy source measures nothing: pass one")
        for name, source in sources.items():
            if source.clock != clock:
                raise ValueError(
                    f"energy source {name!r} tells time by time.{_CALL[source.clock]}, the ledger "
                    f"by time.{_CALL[clock]}: pass clock={source.clock!r}, or wrap the source in "
                    f"zeus.serving.on_clock(source, {clock!r})"
                )
        self._sources = dict(sources)
        self._carry = dict.fromkeys(sources, 0.0)
        self._first = dict.fromkeys(sources, 0.0)  # variances of the first and the last edge
        self._last = dict.fromkeys(sources, 0.0)
        self._independent = dict.fromkeys(sources, 0.0)
        self.total_nj = dict.fromkeys(sources, 0)
        self.idle_nj = dict.fromkeys(sources, 0)
        self.unmeasured_s: dict[str, float] = {}
        self.edge = 0.0  # variance of the latest edge, of all devices with shared edges

    def reach_s(self) -> float:
        """Until when all devices can be told."""
        return min(source.reach_s for source in self._sources.values())

    def read(self, begin_s: float, end_s: float) -> Block:
        """Asks every device. Where a source raises, nothing has changed."""
        block = Block()
        for name, source in self._sources.items():
            answer = source.energy(begin_s, end_s)
            energy, u = answer if answer is not None else (math.nan, math.nan)
            if not (0 <= energy < math.inf and 0 <= u < math.inf):
                block.missing.append(name)
                continue
            exact = energy * 1e9 + self._carry[name]
            block.whole_nj[name] = max(0, round(exact))
            block.carry_nj[name] = exact - block.whole_nj[name]
            block.device_var[name] = u * u
            if source.shared_edges:
                block.shared_var += u * u
            else:
                block.independent_var += u * u
        self._carry.update(block.carry_nj)
        return block

    def edge_between(self, block: Block) -> float:
        """Variance of the edge between the last block and this one: an edge has half of each."""
        this = block.shared_var / 2
        return (self.edge + this) / 2 if self.edge and this else self.edge + this

    def commit(self, block: Block, length_s: float) -> None:
        """Adds a block to the totals."""
        for name, whole in block.whole_nj.items():
            self.total_nj[name] += whole
            var = block.device_var[name]
            if self._sources[name].shared_edges:
                self._first[name] = self._first[name] or var / 2
                self._last[name] = var / 2
            else:
                self._independent[name] += var
        for name in block.missing:
            self.unmeasured_s[name] = self.unmeasured_s.get(name, 0.0) + length_s
            # The stretches before and after share no edge: each keeps both of its own.
            self._independent[name] += self._first[name] + self._last[name]
            self._first[name] = self._last[name] = 0.0
        self.edge = block.shared_var / 2

    def u_j(self) -> dict[str, float]:
        """Standard uncertainty of each device's total."""
        return {
            name: math.sqrt(self._independent[name] + self._first[name] + self._last[name])
            for name in self._sources
        }


_CALL = {"monotonic": "monotonic()", "time": "time()"}
