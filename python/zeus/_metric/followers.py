"""What follows a window of a metric while it is open: its energy so far, and its power now."""

from __future__ import annotations

import logging
import math
import os
import re
import threading
import warnings
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from zeus.exception import ZeusBaseError
from zeus.monitor.energy import Measurement, ZeusMonitor
from zeus.monitor.power import PowerDomain, PowerMonitor

logger = logging.getLogger(__name__)

# Steps that are too short for a counter are lengthened up to so long.
_LONGEST_STEP_S = 10.0
# What a step is refused for when it is too short: the counter did not move, or but little.
_TOO_SHORT = ("R1", "R5")

# The monitor warns of windows without a number. Steps are nobody's windows: what they miss is added
# later, or counted as missing.
warnings.filterwarnings("ignore", module=re.escape(__name__))


def energies(measurement: Measurement) -> Iterator[tuple[str, int, float]]:
    """Each energy of a measurement as (kind, index, joules)."""
    kinds = {
        "gpu": measurement.gpu_energy,
        "cpu": measurement.cpu_energy,
        "dram": measurement.dram_energy,
    }
    for kind, by_index in kinds.items():
        for index, joules in (by_index or {}).items():
            yield kind, index, joules


class EnergyTotal:
    """Adds what a window has used so far to counters, again and again, and never takes away.

    Steps follow each other at once. Another window spans them all: what was used between a step's
    end and the next one's beginning, and in steps whose energy was not known, is added from it.
    Steps that prove too short for the counters are made longer.

    Attributes:
        monitor: What measures. Nobody else uses it.
    """

    def __init__(
        self,
        name: str,
        monitor: ZeusMonitor,
        counters: Mapping[str, Any],
        missing: Mapping[str, Any],
    ) -> None:
        """Count nothing yet.

        Args:
            name: Of the window, for its label.
            monitor: What measures.
            counters: Of joules, by "gpu", "cpu" and "dram".
            missing: Of steps whose energy was not known.
        """
        self.monitor = monitor
        self._name = name
        self._counters, self._missing = counters, missing
        self._span = f"__EnergyCumulativeCounter_{name}"
        self._step = f"{self._span}_step"
        self._added: dict[tuple[str, int], float] = {}
        self._lost: set[tuple[str, int]] = set()
        self._too_short = False
        self._stride = self._left = 1
        self._lock = threading.Lock()
        self._finished = False
        _alive.add(self)

    def begin(self, sync_execution: bool) -> None:
        """Count from now on."""
        self.monitor.begin_window(self._span, sync_execution=sync_execution)
        self.monitor.begin_window(self._step, sync_execution=False)

    def advance(self) -> None:
        """Add what was used since the last time.

        A step that cannot be ended, since a device raises an error, goes on: nothing is lost.
        """
        with self._lock:
            self._left -= 1
            if self._finished or self._left > 0:
                return
            # A step that could not be begun is in the window that spans all.
            settle = self._step not in self.monitor.measurement_states
            if not settle:
                settle = self._end_step() and bool(self._lost)
            if settle:
                self._settle()
                self.monitor.begin_window(self._span, sync_execution=False)
            self.monitor.begin_window(self._step, sync_execution=False)
            self._left = self._stride

    def finish(self) -> None:
        """Add what was used up to now, and count no more; a second time is nothing."""
        with self._lock:
            if self._finished:
                return
            self._finished = True
            for end in (self._end_step, self._settle):
                try:
                    end()
                except (ZeusBaseError, RuntimeError, ValueError) as error:
                    logger.warning(
                        "the last energy of window %r is not known: %s", self._name, error
                    )

    def _end_step(self) -> bool:
        """Tell whether every energy was known that was not before."""
        measurement = self.monitor.end_window(self._step, sync_execution=False)
        self._add(measurement)
        if self._too_short and measurement.time < _LONGEST_STEP_S:
            self._stride *= 2
        return all(
            not math.isnan(joules)
            for kind, index, joules in energies(measurement)
            if (kind, index) in self._lost
        )

    def _add(self, measurement: Measurement) -> None:
        self._too_short = False
        for kind, index, joules in energies(measurement):
            if not math.isnan(joules):
                self._count(kind, index, joules)
                continue
            self._lost.add((kind, index))
            if measurement.uncertainty[f"{kind}:{index}"].refusal.startswith(_TOO_SHORT):
                self._too_short = True
            else:
                self._miss(kind, index)

    def _settle(self) -> None:
        """End the window that spans all steps, and add what they have less than it."""
        if self._span not in self.monitor.measurement_states:
            return
        for kind, index, joules in energies(
            self.monitor.end_window(self._span, sync_execution=False)
        ):
            if not math.isnan(joules):
                self._count(kind, index, joules - self._added.get((kind, index), 0.0))
            elif (kind, index) in self._lost:
                self._miss(kind, index)
        self._added.clear()
        self._lost.clear()

    def _miss(self, kind: str, index: int) -> None:
        self._missing[kind].labels(window=self._name, index=index).inc()

    def _count(self, kind: str, index: int, joules: float) -> None:
        if joules < 0:
            return
        key = kind, index
        self._added[key] = self._added.get(key, 0.0) + joules
        self._counters[kind].labels(window=self._name, index=index).inc(joules)


class PowerShown:
    """Shows the present power of GPUs in a gauge.

    Attributes:
        monitor: What samples it. It is stopped in the end.
    """

    def __init__(self, name: str, monitor: PowerMonitor, gauge: Any, missing: Any) -> None:
        """Show nothing yet.

        Args:
            name: Of the window, for its label.
            monitor: What samples.
            gauge: Of watts.
            missing: A counter of how often the power was not known.
        """
        self.monitor = monitor
        self._name = name
        self._gauge, self._missing = gauge, missing
        whole = (PowerDomain.DEVICE_INSTANT, PowerDomain.DEVICE_AVERAGE)
        domain = next((d for d in whole if d in monitor.measurement_domains), None)
        if domain is None:
            monitor.stop()
            raise ValueError("cannot show the power of GPUs: they tell that of their memory only")
        self._domain = domain
        self._shown: set[int] = set()
        self._lock = threading.Lock()
        self._finished = False
        _alive.add(self)

    def advance(self) -> None:
        """Show the power now; a GPU whose power is not known loses its value."""
        with self._lock:
            if self._finished:
                return
            known = self.monitor.get_known_power(self._domain)
            for index in self.monitor.gpu_indices:
                if index in known:
                    self._gauge.labels(window=self._name, index=index).set(known[index])
                    self._shown.add(index)
                else:
                    self._hide(index)
                    self._missing.labels(window=self._name, index=index).inc()

    def finish(self) -> None:
        """Show nothing any more; a second time is nothing."""
        with self._lock:
            self._finished = True
            self.monitor.stop()
            for index in list(self._shown):
                self._hide(index)

    def _hide(self, index: int) -> None:
        if index in self._shown:
            self._shown.remove(index)
            self._gauge.remove(self._name, str(index))


_alive: weakref.WeakSet[EnergyTotal | PowerShown] = weakref.WeakSet()


def _after_fork() -> None:
    # A thread of the parent may hold the lock, and is not here to give it back.
    for follower in _alive:
        follower._lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
