"""The history of levels (power, temperature) of GPUs, sampled on a thread; no process is started.

The core samples its own sensors; what Python code reads, a thread here does.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Mapping
from typing import Protocol, TypeVar, cast

from zeus import _core
from zeus.device._machine import machine
from zeus.device.exception import ZeusBaseGPUError

logger = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable, contravariant=True)

# Rings of the core hold thousands of samples; they are emptied long before they are full.
_DRAIN_S = 5.0


class Levels(Protocol[Key]):
    """What is sampled, by key. Times are those of `time.monotonic()`."""

    def integral(self, key: Key, begin_s: float, end_s: float) -> tuple[float, float, float, float]:
        """(integral, standard uncertainty, covered seconds, length); NaN: nothing is covered."""
        ...

    def at(self, key: Key, t_s: float) -> float | None:
        """The value in force at a time."""
        ...

    def latest(self, key: Key) -> tuple[float, float] | None:
        """(time, value) of the last reading."""
        ...

    def changes(self, key: Key) -> list[tuple[float, float, float]]:
        """(first reading, last reading, value) of each run of equal readings."""
        ...

    def health(self, key: Key) -> tuple[str, int]:
        """(why the last reading failed or "", how many failed)."""
        ...

    def stop(self) -> None:
        """End the sampling; what there is can still be asked for."""
        ...


class CoreLevels(Levels[Key]):
    """Sensors that a thread of the core samples."""

    def __init__(
        self, sensors: Mapping[Key, tuple[str, str]], period_s: float, most: int | None
    ) -> None:
        """Begin to sample.

        Args:
            sensors: A device's id and a sensor's name, by key.
            period_s: Seconds between two samples.
            most: How many runs of equal readings are kept of each; None: all.
        """
        self._places = {key: place for place, key in enumerate(sensors)}
        self._watch = _core.Watch(machine(), list(sensors.values()), period_s, most or 0)
        drain_s = min(_DRAIN_S, self._watch.period_s * _core.Watch.ring / 4)
        self._keeper = _Keeper(self._watch, drain_s)

    def integral(self, key: Key, begin_s: float, end_s: float) -> tuple[float, float, float, float]:
        return self._here().integral(self._places[key], begin_s, end_s)

    def at(self, key: Key, t_s: float) -> float | None:
        return self._here().at(self._places[key], t_s)

    def latest(self, key: Key) -> tuple[float, float] | None:
        return self._here().latest(self._places[key])

    def health(self, key: Key) -> tuple[str, int]:
        return self._here().health(self._places[key])

    def changes(self, key: Key) -> list[tuple[float, float, float]]:
        rows = cast("list[list[float]]", self.rows(key, 0.0, time.monotonic()).tolist())
        return [(first, last, value) for first, last, value in rows]

    def rows(self, key: Key, begin_s: float, end_s: float) -> memoryview:
        """The same as an array of doubles, three a row, for NumPy: no copy is made."""
        return self._here().runs(self._places[key], begin_s, end_s)

    def stop(self) -> None:
        self._keeper.stop.set()
        self._watch.stop()

    def _here(self) -> _core.Watch:
        self._keeper.keep_on()
        return self._watch

    def __del__(self) -> None:
        if hasattr(self, "_keeper"):
            self._keeper.stop.set()


class _Stop:
    """Ends a thread. A forked child has a new one: its parent's thread may have held the lock."""

    def __init__(self) -> None:
        self._event = threading.Event()
        _stops.add(self)

    def is_set(self) -> bool:
        """Whether the thread is to end."""
        return self._event.is_set()

    def set(self) -> None:
        """End it."""
        self._event.set()

    def wait(self, seconds: float) -> bool:
        """Wait so long at most; tells whether the thread is to end."""
        return self._event.wait(seconds)

    def renew(self) -> None:
        """For a forked child."""
        former, self._event = self._event, threading.Event()
        if former.is_set():
            self._event.set()


_stops: weakref.WeakSet[_Stop] = weakref.WeakSet()


def _renew_all() -> None:
    for stop in list(_stops):
        stop.renew()


os.register_at_fork(after_in_child=_renew_all)


class _Keeper:
    """Empties the rings of a watch now and then, on a daemon thread; anew in a forked child."""

    def __init__(self, watch: _core.Watch, drain_s: float) -> None:
        self._watch = weakref.ref(watch)
        self.stop = _Stop()
        self._drain_s = drain_s
        self._pid = 0
        self.keep_on()

    def keep_on(self) -> None:
        """Start the thread, unless this process has it already or there is nothing to keep."""
        if self._pid == os.getpid() or self.stop.is_set():
            return
        self._pid = os.getpid()
        thread = threading.Thread(
            target=_drain_until, args=(self._watch, self.stop, self._drain_s), daemon=True
        )
        thread.name = "zeus-keeper"
        thread.start()


def _drain_until(watch: Callable[[], _core.Watch | None], stopped: _Stop, drain_s: float) -> None:
    while not stopped.wait(drain_s):
        live = watch()
        if live is None or live.stopped:
            return
        live.drain()
        del live


class PythonLevels(Levels[Key]):
    """Readings that Python code makes, on a daemon thread; anew in a forked child."""

    def __init__(
        self,
        readers: Mapping[Key, Callable[[], int]],
        scale: float,
        period_s: float,
        most: int | None,
    ) -> None:
        """Read everything once, and go on on a thread.

        Args:
            readers: What reads a value, in raw units, by key.
            scale: One raw unit in SI.
            period_s: Seconds between two readings.
            most: How many runs of equal readings are kept of each; None: all.
        """
        self._readers = dict(readers)
        self._period_s = period_s
        self._lock = threading.Lock()
        self._stopped = _Stop()
        self._make: Callable[[], dict[Key, _core.History]] = lambda: {
            key: _core.History.make(str(key), scale, period_s, most=most or 0) for key in readers
        }
        self._pid = 0
        self._keep_on()

    def _keep_on(self) -> None:
        if self._pid == os.getpid() or self._stopped.is_set():
            return
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._histories = self._make()
        self._failed: dict[Key, tuple[str, int]] = {}
        self._tick()
        ref = weakref.ref(self)
        threading.Thread(
            target=_tick_until, args=(ref, self._stopped, self._period_s), daemon=True
        ).start()

    def _tick(self) -> None:
        for key, read in self._readers.items():
            failed = ""
            before = time.monotonic()
            try:
                raw = read()
            except (ZeusBaseGPUError, OSError) as error:
                failed = str(error)
            now = (before + time.monotonic()) / 2
            with self._lock:
                if failed:
                    self._histories[key].fail(now)
                    self._failed[key] = (failed, self._failed.get(key, ("", 0))[1] + 1)
                    continue
                self._histories[key].add(now, raw)
                if key in self._failed:
                    self._failed[key] = ("", self._failed[key][1])

    def integral(self, key: Key, begin_s: float, end_s: float) -> tuple[float, float, float, float]:
        self._keep_on()
        with self._lock:
            return self._histories[key].integral(begin_s, end_s)

    def at(self, key: Key, t_s: float) -> float | None:
        self._keep_on()
        with self._lock:
            return self._histories[key].at(t_s)

    def latest(self, key: Key) -> tuple[float, float] | None:
        runs = self.changes(key)
        return (runs[-1][1], runs[-1][2]) if runs else None

    def changes(self, key: Key) -> list[tuple[float, float, float]]:
        self._keep_on()
        with self._lock:
            return self._histories[key].runs

    def health(self, key: Key) -> tuple[str, int]:
        return self._failed.get(key, ("", 0))

    def stop(self) -> None:
        self._stopped.set()

    def __del__(self) -> None:
        if hasattr(self, "_stopped"):
            self._stopped.set()


def _tick_until(
    levels: Callable[[], PythonLevels[Key] | None], stopped: _Stop, period_s: float
) -> None:
    deadline = time.monotonic() + period_s
    while not stopped.wait(max(0.0, deadline - time.monotonic())):
        live = levels()
        if live is None:
            return
        live._tick()
        del live
        # On a grid: a late tick shortens the next wait, a missed one is left out.
        deadline += period_s * max(1, round((time.monotonic() - deadline) / period_s + 0.5))
