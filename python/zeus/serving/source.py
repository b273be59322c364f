"""Energy sources: recorded timelines, counters that are polled, and sampled power."""

from __future__ import annotations

import bisect
import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from zeus.serving.engine import Clock, EnergySource

if TYPE_CHECKING:
    from zeus.monitor.energy import ZeusMonitor
    from zeus.monitor.power import PowerDomain, PowerMonitor

_CLOCKS: dict[Clock, Callable[[], float]] = {"monotonic": time.monotonic, "time": time.time}


class Timeline:
    """Energy from readings of a counter: (seconds, joules since some time), oldest first.

    A counter publishes every `update_s`, T. A value that is first seen at t was published after the
    one before was last seen, and not more than T ago: at the middle of that time, give or take half
    of its length d. Between publications the energy is interpolated. At a fraction f between two
    that lie T' apart, with power P between them and D the difference of power to the stretch before
    or behind, whichever is greater,

        u_edge^2 = (P d)^2 / 12 + (D T' f (1 - f))^2 / 3,

    the first for the time of publication, the second for a power that changes from one level to the
    other anywhere between the two (rectangles: JCGM 100:2008, 4.3.7). Steps of an engine that are
    much shorter than T are taken to even out in it.

    Args:
        readings: To begin with.
        update_s: The counter's update period; 0 for readings that are exact at their time, with
            constant power between them.
        clock: Whose seconds.
        keep: Publications kept; the oldest go.
    """

    shared_edges = True

    def __init__(
        self,
        readings: Iterable[tuple[float, float]] = (),
        *,
        update_s: float = 0.0,
        clock: Clock = "monotonic",
        keep: int = 1 << 16,
    ) -> None:
        self.clock = clock
        self.update_s = update_s
        self._lock = threading.Lock()
        self._seen = -math.inf  # time and value of the latest reading
        self._value = math.nan
        self._times: list[float] = []
        self._joules: list[float] = []
        self._slack: list[float] = []
        self._epochs: list[int] = []
        self._epoch = 0
        self._keep = keep
        for at, joules in readings:
            self.add(at, joules)

    def add(self, at_s: float, joules: float) -> None:
        """Adds the newest reading.

        A counter that fell has begun anew: what lies across the fall cannot be told.

        Raises:
            ValueError: It is not newer than the last, or no number.
        """
        if not (math.isfinite(at_s) and math.isfinite(joules)):
            raise ValueError(f"a reading of {joules} J at {at_s} s is no number")
        with self._lock:
            if at_s <= self._seen:
                raise ValueError(f"a reading at {at_s} s is not newer than {self._seen} s")
            before, last = self._seen, self._value
            self._seen, self._value = at_s, joules
            if self.update_s and joules == last:
                return  # nothing was published
            if joules < last:
                self._epoch += 1
            slack = min(at_s - before, self.update_s)
            self._times.append(at_s - slack / 2)
            self._joules.append(joules)
            self._slack.append(slack)
            self._epochs.append(self._epoch)
            if len(self._times) > 2 * self._keep:
                for column in (self._times, self._joules, self._slack, self._epochs):
                    del column[: -self._keep]

    def interrupt(self) -> None:
        """Says that readings were lost: what lies across this moment cannot be told."""
        with self._lock:
            self._epoch += 1

    @property
    def reach_s(self) -> float:
        """The latest publication."""
        with self._lock:
            return self._times[-1] if self._times else -math.inf

    def energy(self, begin_s: float, end_s: float) -> tuple[float, float] | None:
        """See `EnergySource.energy`.

        None where publications do not reach around the stretch, or were interrupted in it.
        """
        with self._lock:
            if not self._times or not (self._times[0] <= begin_s <= end_s <= self._times[-1]):
                return None
            before = bisect.bisect_right(self._times, begin_s) - 1
            after = bisect.bisect_left(self._times, end_s)
            if self._epochs[before] != self._epochs[after]:
                return None
            first, first_var = self._at(begin_s)
            last, last_var = self._at(end_s)
        return last - first, math.sqrt(first_var + last_var)

    def _at(self, at_s: float) -> tuple[float, float]:
        """Value of the counter at a time, and its variance."""
        n = len(self._times)
        if n == 1:
            return self._joules[0], 0.0
        i = min(max(bisect.bisect_left(self._times, at_s), 1), n - 1)
        if not self._joined(i) and i + 1 < n:  # the first publication after a gap
            i += 1
        length, power = self._times[i] - self._times[i - 1], self._power(i)
        f = (at_s - self._times[i - 1]) / length
        value = self._joules[i - 1] + power * (at_s - self._times[i - 1])
        if not self.update_s:
            return value, 0.0
        near = [self._power(j) for j in (i - 1, i + 1) if self._joined(j)]
        step = max((abs(power - other) for other in near), default=power)
        slack = max(self._slack[i - 1], self._slack[i])
        timing = (max([power, *near]) * slack) ** 2 / 12
        return value, timing + (step * length * f * (1 - f)) ** 2 / 3

    def _joined(self, i: int) -> bool:
        return 1 <= i < len(self._times) and self._epochs[i] == self._epochs[i - 1]

    def _power(self, i: int) -> float:
        """Mean power before the i-th publication."""
        return (self._joules[i] - self._joules[i - 1]) / (self._times[i] - self._times[i - 1])


class Counter(Timeline):
    """A counter that a thread reads every `period_s`, until `stop` or until nobody holds it.

    A reading that fails leaves a gap: stretches that reach into it are not told. The child of a
    fork has no such thread: its copy tells nothing, and it makes one of its own.

    Args:
        read: Joules since some time. Raises what it likes where it cannot.
        period_s: How often.
        update_s: The counter's update period.
        clock: Whose seconds.

    Attributes:
        failures: The latest errors of `read`.
    """

    def __init__(
        self,
        read: Callable[[], float],
        *,
        period_s: float = 0.02,
        update_s: float = 0.1,
        clock: Clock = "monotonic",
    ) -> None:
        super().__init__(update_s=update_s, clock=clock)
        self._read = read
        self._stop = threading.Event()
        self.failures: deque[Exception] = deque(maxlen=8)
        self.sample()
        self._thread = threading.Thread(
            target=_poll,
            args=(weakref.ref(self), self._stop, period_s),
            name="zeus-serving-counter",
            daemon=True,
        )
        weakref.finalize(self, self._stop.set)
        _polled.add(self)
        self._thread.start()

    def sample(self) -> None:
        """Reads once, now."""
        before = _CLOCKS[self.clock]()
        try:
            joules = self._read()
        except Exception as error:  # of any vendor: kept, and told by the gap that it leaves
            self.failures.append(error)
            self.interrupt()
            return
        at = (before + _CLOCKS[self.clock]()) / 2
        if at > self._seen:  # a clock that stands still, or was set back, gives no reading
            self.add(at, joules)

    def stop(self) -> None:
        """Ends the thread."""
        self._stop.set()
        self._thread.join()

    def _forked(self) -> None:
        self._lock = threading.Lock()  # the parent's thread may have held it
        for column in (self._times, self._joules, self._slack, self._epochs):
            column.clear()


_polled: weakref.WeakSet[Counter] = weakref.WeakSet()


def _poll(ref: weakref.ref[Counter], stop: threading.Event, period_s: float) -> None:
    while not stop.wait(period_s):
        counter = ref()
        if counter is None:
            return
        counter.sample()
        del counter


def _after_fork() -> None:
    for counter in list(_polled):
        counter._forked()


os.register_at_fork(after_in_child=_after_fork)


def gpu_counters(
    monitor: ZeusMonitor,
    *,
    period_s: float = 0.02,
    update_s: float = 0.1,
    clock: Clock = "monotonic",
) -> dict[str, Counter]:
    """A polled counter for every GPU that a `ZeusMonitor` measures, by name.

    Stop each of them when done.
    """

    def reader(index: int) -> Callable[[], float]:
        return lambda: monitor.gpus.get_total_energy_consumption(index) / 1000.0

    return {
        f"gpu{i}": Counter(reader(i), period_s=period_s, update_s=update_s, clock=clock)
        for i in monitor.gpu_indices
    }


class SampledPower:
    """The power that a `PowerMonitor` sampled of one GPU, integrated. Its clock is `time.time()`.

    The uncertainty is the monitor's. A stretch that samples do not stand for in full is not told.

    Args:
        monitor: A running one.
        gpu_index: Which of its GPUs.
        power_domain: Which power; None: the monitor's choice for energy.
    """

    clock: Clock = "time"
    shared_edges = False
    reach_s = math.inf  # the latest sample stands until the next

    def __init__(
        self, monitor: PowerMonitor, gpu_index: int, power_domain: PowerDomain | str | None = None
    ) -> None:
        if gpu_index not in monitor.gpu_indices:
            raise ValueError(
                f"GPU {gpu_index} is not among {monitor.gpu_indices}, which the monitor samples"
            )
        self._monitor, self._index, self._domain = monitor, gpu_index, power_domain

    def energy(self, begin_s: float, end_s: float) -> tuple[float, float] | None:
        """See `EnergySource.energy`."""
        integral = self._monitor.get_energy_integral(begin_s, end_s, self._domain)[self._index]
        # The wall clock has a resolution, and is 1.7e9: a microsecond that is missing is none.
        if not integral.covered_s >= integral.length_s - 1e-6:
            return None
        return integral.energy_j, integral.u_j


class _OnClock:
    def __init__(self, source: EnergySource, clock: Clock) -> None:
        self.clock = clock
        self.shared_edges = source.shared_edges
        self._source = source

    @property
    def reach_s(self) -> float:
        return self._source.reach_s - self._offset_s()

    def energy(self, begin_s: float, end_s: float) -> tuple[float, float] | None:
        offset = self._offset_s()
        return self._source.energy(begin_s + offset, end_s + offset)

    def _offset_s(self) -> float:
        return _CLOCKS[self._source.clock]() - _CLOCKS[self.clock]()


def on_clock(source: EnergySource, clock: Clock) -> EnergySource:
    """The same source by another clock of this machine.

    The offset is taken whenever energy is asked for. A step of `time.time()` between then and the
    stretch (an administrator, NTP at boot) shifts the stretch by as much.
    """
    return source if source.clock == clock else _OnClock(source, clock)
