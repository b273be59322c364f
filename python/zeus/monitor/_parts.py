"""A window's energy in parts: one per interval of a price or of a carbon intensity.

Every device has one curve of cumulative energy over the window: zero at its start, what was read
at or near each edge between intervals, and the measured energy at its end. A part is a difference
of two points of this curve, so that the parts add up to the measurement. An edge that was not
read, or was read late, lies on the straight line between its neighbours.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Literal

Device = tuple[Literal["gpu", "cpu", "dram"], int]


@dataclass(frozen=True)
class Part:
    """What a window used within one interval.

    Attributes:
        interval: Start of the interval, in UTC.
        start: When the part starts: with the interval or with the window.
        end: When it ends.
        energy_j: Energy by device, in joules.
    """

    interval: datetime
    start: datetime
    end: datetime
    energy_j: dict[Device, float]

    def of(self, kind: Literal["gpu", "cpu", "dram"]) -> dict[int, float]:
        """The energy of one kind of devices, by index."""
        return {
            index: energy for (of_kind, index), energy in self.energy_j.items() if of_kind == kind
        }


def floor_utc(time: datetime, period: timedelta) -> datetime:
    """Start of the interval of `period`, counted from 1970 in UTC, that holds `time`."""
    seconds = int(period.total_seconds() * 1e6)
    since = time - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return time - timedelta(microseconds=(since // timedelta(microseconds=1)) % seconds)


def edges_between(
    start: datetime, end: datetime, floor: Callable[[datetime], datetime], period: timedelta
) -> list[datetime]:
    """Starts of the intervals that begin after `start` and before `end`."""
    edges = []
    edge = floor(start) + period
    while edge < end:
        edges.append(edge)
        # Floored again: a time zone may change its offset within the window.
        edge = floor(edge) + period
    return edges


def energy_at(curve: Sequence[tuple[datetime, float]], time: datetime) -> float:
    """Cumulative energy of a curve at a time within it, by the line between two points."""
    after = bisect_left(curve, time, key=lambda point: point[0])
    if after == 0:
        return curve[0][1]
    if after == len(curve):
        return curve[-1][1]
    (left_time, left), (right_time, right) = curve[after - 1], curve[after]
    span = (right_time - left_time) / timedelta(seconds=1)
    return left + (right - left) * ((time - left_time) / timedelta(seconds=1) / span)


def curve_of(
    start: datetime,
    end: datetime,
    total_j: float,
    between: Sequence[tuple[datetime, float]],
) -> list[tuple[datetime, float]]:
    """A device's curve; points out of order, as after a reset of its counter, are left out."""
    curve = [(start, 0.0)]
    for time, energy_j in between:
        if curve[-1][0] < time < end and curve[-1][1] <= energy_j <= total_j:
            curve.append((time, energy_j))
    curve.append((end, total_j))
    return curve


def split(
    start: datetime,
    end: datetime,
    edges: Sequence[datetime],
    curves: Mapping[Device, Sequence[tuple[datetime, float]]],
    floor: Callable[[datetime], datetime],
) -> list[Part]:
    """Cut every device's curve at the edges."""
    times = [start, *edges, end]
    levels = {
        device: [0.0, *(energy_at(curve, edge) for edge in edges), curve[-1][1]]
        for device, curve in curves.items()
    }
    return [
        Part(
            interval=floor(times[position]),
            start=times[position],
            end=times[position + 1],
            energy_j={
                device: level[position + 1] - level[position] for device, level in levels.items()
            },
        )
        for position in range(len(times) - 1)
    ]


def unknown_energies(
    gpu: Mapping[int, float], cpu: Mapping[int, float] | None, dram: Mapping[int, float] | None
) -> str | None:
    """Which devices' energy is not known, as a sentence; None where all is."""
    kinds = {"GPU": gpu, "CPU": cpu or {}, "DRAM": dram or {}}
    names = [
        f"{kind} {index}"
        for kind, energies in kinds.items()
        for index, joules in energies.items()
        if math.isnan(joules)
    ]
    return f"the energy of {', '.join(names)} is not known" if names else None
