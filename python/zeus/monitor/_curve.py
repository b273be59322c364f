"""Curves of each device's energy over a window: what was published of it, and when."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from zeus.device._machine import machine
from zeus.monitor._attribution import Segment
from zeus.monitor._levels import CoreLevels, Levels, PythonLevels

if TYPE_CHECKING:
    from zeus import _core
    from zeus.monitor.energy import ZeusMonitor

Run = tuple[float, float, float]

# A daemon tells CPU energy ten times a second at most to those who may not read it themselves.
_DAEMON_PERIOD_S = 0.1


class Curves:
    """Samples the counters of a monitor, or the power where there is none, on a thread."""

    def __init__(self, monitor: ZeusMonitor, period_s: float) -> None:
        """Begin to sample.

        Args:
            monitor: Whose devices.
            period_s: Seconds between two samples.
        """
        self._monitor = monitor
        self._kinds: dict[str, tuple[bool, float, str]] = {}
        self._levels: dict[str, Levels[str]] = {}
        core = monitor._core
        sensors = core.sensors if core is not None else {}
        if sensors:
            devices = {d.id: d for d in machine().devices}
            for name, (device, sensor) in sensors.items():
                self._kinds[name] = _kind(devices[device], sensor)
            if any(devices[device].backend == "zeusd" for device, _ in sensors.values()):
                period_s = max(period_s, _DAEMON_PERIOD_S)
            self._levels.update(dict.fromkeys(sensors, CoreLevels(sensors, period_s, None)))
        readers = monitor._objects.readers() if monitor._objects is not None else {}
        if readers:
            self._kinds.update(dict.fromkeys(readers, (True, 0.0, "counter")))
            self._levels.update(dict.fromkeys(readers, PythonLevels(readers, 1e-3, period_s, None)))

    def stop(self) -> None:
        """End the sampling; what was sampled stays."""
        for levels in {id(levels): levels for levels in self._levels.values()}.values():
            levels.stop()

    def segments(self, name: str, begin_s: float, end_s: float) -> list[Segment]:
        """What is known of one device's energy within a window, without a gap.

        Args:
            name: As "gpu:0".
            begin_s: The window's begin by the monotonic clock.
            end_s: Its end.
        """
        if name in self._levels:
            is_counter, update_s, kind = self._kinds[name]
            runs: Iterable[Run] = self._levels[name].changes(name)
        else:
            is_counter, update_s, kind = False, 0.0, "unknown"
            runs = self._polled(name, begin_s, end_s)
        if kind == "running":
            # A mean over a second shows edges nowhere: no shape is better than a false one.
            return [Segment(begin_s, end_s, None)]
        inner = counted(runs, update_s) if is_counter else integrated(runs, update_s)
        return _within(inner, begin_s, end_s)

    def _polled(self, name: str, begin_s: float, end_s: float) -> list[Run]:
        """Of a GPU that only the monitor's own power monitor reads."""
        polled = self._monitor.power_monitor
        index = int(name.partition(":")[2])
        if polled is None or index not in polled.gpu_indices or not name.startswith("gpu:"):
            return []
        return [(r.first_s, r.last_s, r.power_w) for r in polled._runs(index, begin_s, end_s)]


def counted(runs: Iterable[Run], update_s: float) -> list[Segment]:
    """Segments between the publications of a counter; where it fell, nothing is known."""
    segments = []
    knot: tuple[float, float, float] | None = None
    for (_, last, _), (first, _, value) in itertools.pairwise(runs):
        # It was published after the last reading that did not show it, and at most an update ago.
        doubt = min(first - last, update_s) if update_s > 0 else first - last
        at = first - doubt / 2
        if knot is not None:
            gained = value - knot[1]
            blur = max(doubt, knot[2]) / 2
            segments.append(Segment(knot[0], at, gained if gained >= 0 else None, blur))
        knot = (at, value, doubt)
    return segments


def integrated(runs: Iterable[Run], update_s: float) -> list[Segment]:
    """Segments of a power sensor: each value is the mean of the update period before it came.

    Specification of a boxcar as wide as its update period; a value that is published again counts
    for as many periods as it was read.
    """
    segments: list[Segment] = []
    for before, after in itertools.pairwise(runs):
        begin, end = before[0] - update_s, after[0] - update_s
        blur = (after[0] - before[1]) / 2
        pieces = max(1, round((end - begin) / update_s)) if update_s > 0 else 1
        step = (end - begin) / pieces
        for i in range(pieces):
            at = begin + i * step
            segments.append(Segment(at, at + step, before[2] * step, blur))
    return segments


def _within(inner: list[Segment], begin_s: float, end_s: float) -> list[Segment]:
    """Those that lie in the window, and unknown ones before, between and behind them."""
    out: list[Segment] = []
    at = begin_s
    for segment in inner:
        if segment.begin_s < begin_s or segment.end_s > end_s or segment.length_s <= 0:
            continue
        if segment.begin_s > at + 1e-9:
            out.append(Segment(at, segment.begin_s, None))
        out.append(segment)
        at = segment.end_s
    if end_s > at:
        out.append(Segment(at, end_s, None))
    return out


def _kind(device: _core.Device, sensor: str) -> tuple[bool, float, str]:
    """(whether it is a counter, its update period or 0, what it shows)."""
    info: dict[str, Any] = device.sensor_info(sensor)
    return info["quantity"] == "energy", info["update_s"] or 0.0, info["kind"]
