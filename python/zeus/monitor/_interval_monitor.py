"""Windows of a ZeusMonitor whose energy is told by intervals of the wall clock."""

from __future__ import annotations

import logging
import math
import weakref
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from zeus.exception import ZeusBaseError
from zeus.monitor._edges import EdgeMarks, Mark, utc_now
from zeus.monitor._parts import Device, Part, curve_of, edges_between, split

if TYPE_CHECKING:
    from zeus.monitor.energy import Measurement, ZeusMonitor

logger = logging.getLogger(__name__)

# A counter may not have moved since an edge that is this close to the window's end.
_CLOSEST_EDGE = timedelta(seconds=0.5)


class IntervalMonitor:
    """Measures windows, and cuts each one's energy at the edges between intervals.

    The energy is that of one window of the ZeusMonitor; what tells its parts are windows of the
    same monitor that begin at the edges.
    """

    def __init__(
        self,
        zeus_monitor: ZeusMonitor,
        floor: Callable[[datetime], datetime],
        period: timedelta,
        after_edge: Callable[[datetime], None],
    ) -> None:
        """Take a monitor.

        Args:
            zeus_monitor: What measures.
            floor: Start of the interval that holds a time.
            period: Length of an interval.
            after_edge: Called at each edge, with the start of the oldest open window.
        """
        self._monitor = zeus_monitor
        self._floor = floor
        self._period = period
        self._starts: dict[str, datetime] = {}
        self._edges = EdgeMarks(zeus_monitor, lambda time: floor(time) + period, after_edge)
        self._finalizer = weakref.finalize(self, self._edges.close_all)

    @property
    def current_keys(self) -> set[str]:
        """Names of the open windows."""
        return set(self._starts)

    def begin(self, key: str, sync_execution: bool, restart: bool) -> None:
        """Open a window.

        Raises:
            ValueError: `key` is open and `restart` is False.
        """
        if key in self._starts and not restart:
            raise ValueError(f"cannot open window {key!r}: it already exists")
        self._monitor.begin_window(key, sync_execution=sync_execution, restart=restart)
        if self._starts.pop(key, None) is not None:
            for mark in self._edges.close(key):
                self._monitor.end_window(mark.key, sync_execution=False, cancel=True)
        start = utc_now()
        self._starts[key] = start
        self._edges.open(key, start)

    def end(self, key: str, sync_execution: bool) -> tuple[Measurement, list[Part]]:
        """Close a window.

        Returns:
            The ZeusMonitor's measurement, and the same energy by interval.

        Raises:
            ValueError: `key` is not open.
        """
        if key not in self._starts:
            raise ValueError(f"cannot close window {key!r}: it does not exist")
        measurement = self._monitor.end_window(key, sync_execution=sync_execution)
        start = self._starts.pop(key)
        # A wall clock that was set back within the window would turn it round.
        end = max(start, utc_now())
        totals_j = energies_of(measurement)
        between: dict[Device, list[tuple[datetime, float]]] = {device: [] for device in totals_j}
        for mark in self._edges.close(key):
            for device, after_j in self._since(mark, end).items():
                if device in totals_j and not math.isnan(after_j):
                    between[device].append((mark.time, totals_j[device] - after_j))
        edges = edges_between(start, end, self._floor, self._period)
        curves = {
            device: curve_of(start, end, total_j, between[device])
            for device, total_j in totals_j.items()
        }
        return measurement, split(start, end, edges, curves, self._floor)

    def _since(self, mark: Mark, end: datetime) -> dict[Device, float]:
        """What was used since an edge; nothing where that is not to be known."""
        too_close = end - mark.time < _CLOSEST_EDGE
        try:
            after = self._monitor.end_window(mark.key, sync_execution=False, cancel=too_close)
        except (ZeusBaseError, RuntimeError, ValueError) as error:
            logger.warning("the energy up to %s is estimated: %s", mark.time, error)
            return {}
        return {} if too_close else energies_of(after)


def energies_of(measurement: Measurement) -> dict[Device, float]:
    """A measurement's energies by device, in joules."""
    energy_j: dict[Device, float] = {}
    for index, joules in measurement.gpu_energy.items():
        energy_j["gpu", index] = joules
    for index, joules in (measurement.cpu_energy or {}).items():
        energy_j["cpu", index] = joules
    for index, joules in (measurement.dram_energy or {}).items():
        energy_j["dram", index] = joules
    return energy_j
