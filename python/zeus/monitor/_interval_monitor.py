"""Windows of a ZeusMonitor whose energy is told by intervals of the wall clock."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from zeus.exception import ZeusBaseError
from zeus.monitor._edges import EdgeReader, utc_now
from zeus.monitor._parts import Device, Part, Reading, curve_of, edges_between, split

if TYPE_CHECKING:
    from zeus.monitor.energy import Measurement, ZeusMonitor

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Start:
    """When a window started, and the counters that its measurement will be subtracted from."""

    time: datetime
    counters_j: dict[Device, float]


class IntervalMonitor:
    """Measures windows, and cuts each one's energy at the edges between intervals.

    There is one stream of counters: a window is one window of the ZeusMonitor, and a thread reads
    the same counters at the edges while windows are open.

    Attributes:
        zeus_monitor: What measures.
        current_keys: Names of the open windows.
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
        self.zeus_monitor = zeus_monitor
        self._floor = floor
        self._period = period
        self._starts: dict[str, _Start] = {}
        self._edges = EdgeReader(
            lambda: _read_counters(zeus_monitor), lambda time: floor(time) + period, after_edge
        )
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
        self.zeus_monitor.begin_window(key, sync_execution=sync_execution, restart=restart)
        start = _Start(utc_now(), _counters_of_window(self.zeus_monitor, key))
        self._starts[key] = start
        self._edges.open(key, start.time)

    def end(self, key: str, sync_execution: bool) -> tuple[Measurement, list[Part]]:
        """Close a window.

        Returns:
            The ZeusMonitor's measurement, and the same energy by interval.

        Raises:
            ValueError: `key` is not open.
        """
        if key not in self._starts:
            raise ValueError(f"cannot close window {key!r}: it does not exist")
        measurement = self.zeus_monitor.end_window(key, sync_execution=sync_execution)
        end = utc_now()
        start = self._starts.pop(key)
        return measurement, self._split(start, end, measurement, self._edges.close(key))

    def _split(
        self, start: _Start, end: datetime, measurement: Measurement, readings: Sequence[Reading]
    ) -> list[Part]:
        # A wall clock that was set back within the window would turn it round.
        end = max(end, start.time)
        edges = edges_between(start.time, end, self._floor, self._period)
        curves = {}
        for device, total_j in _measured(measurement).items():
            begin_j = start.counters_j.get(device)
            if begin_j is None:
                between = self._polled(device, start.time, edges)
            else:
                between = [
                    (reading.time, reading.energy_j[device] - begin_j)
                    for reading in readings
                    if device in reading.energy_j
                ]
            curves[device] = curve_of(start.time, end, total_j, between)
        return split(start.time, end, edges, curves, self._floor)

    def _polled(
        self, device: Device, start: datetime, edges: Sequence[datetime]
    ) -> list[tuple[datetime, float]]:
        """Energy up to each edge of a GPU without a counter, whose power is sampled."""
        power_monitor = self.zeus_monitor.power_monitor
        if power_monitor is None or device[0] != "gpu":
            return []
        points = []
        for edge in edges:
            energy_j = power_monitor.get_energy(start.timestamp(), edge.timestamp())
            if energy_j is not None and device[1] in energy_j:
                points.append((edge, energy_j[device[1]]))
        return points


def _measured(measurement: Measurement) -> dict[Device, float]:
    """A measurement's energies by device, in joules."""
    energy_j: dict[Device, float] = {}
    energy_j.update({("gpu", index): value for index, value in measurement.gpu_energy.items()})
    energy_j.update(
        {("cpu", index): value for index, value in (measurement.cpu_energy or {}).items()}
    )
    energy_j.update(
        {("dram", index): value for index, value in (measurement.dram_energy or {}).items()}
    )
    return energy_j


def _counters_of_window(monitor: ZeusMonitor, key: str) -> dict[Device, float]:
    """The counters that the monitor itself read when it opened a window, in joules."""
    state = monitor.measurement_states[key]
    counters: dict[Device, float] = {}
    counters.update({("gpu", index): value for index, value in state.gpu_energy.items()})
    counters.update({("cpu", index): value for index, value in (state.cpu_energy or {}).items()})
    counters.update({("dram", index): value for index, value in (state.dram_energy or {}).items()})
    return counters


def _read_counters(monitor: ZeusMonitor) -> Reading:
    """The counters now. One that cannot be read is left out: the edge is then interpolated."""
    before = utc_now()
    energy_j: dict[Device, float] = {}
    for index in monitor.gpu_indices:
        try:
            if monitor.gpus.supports_get_total_energy_consumption(index):
                energy_mj = monitor.gpus.get_total_energy_consumption(index)
                energy_j["gpu", index] = energy_mj / 1000.0
        except ZeusBaseError as error:
            logger.warning("the edge of an interval is interpolated for GPU %d: %s", index, error)
    for index in monitor.cpu_indices:
        try:
            energy = monitor.cpus.get_total_energy_consumption(index)
        except ZeusBaseError as error:
            logger.warning("the edge of an interval is interpolated for CPU %d: %s", index, error)
            continue
        energy_j["cpu", index] = energy.cpu_mj / 1000.0
        if energy.dram_mj is not None:
            energy_j["dram", index] = energy.dram_mj / 1000.0
    return Reading(before + (utc_now() - before) / 2, energy_j)
