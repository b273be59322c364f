"""Counting how often a RAPL counter that is read from a file has wrapped."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from typing import Any

from zeus.device.cpu._rapl_files import read_number

logger = logging.getLogger(__name__)

# What 1000 W add in 0.1 s, in microjoules.
RAPL_COUNTER_MAX_INCREASE = 1000 * 1e6 * 0.1

# A counter is published every millisecond, and a reader may be held up beside its file.
_SLACK_S = 1.0


def _polling_process(rapl_file_path: str, max_energy_uj: float, wraparound_counter: Any) -> None:
    """Count the falls of a counter, until interrupted.

    It needs no process: any thread may run it. `RaplWraparoundTracker` does not use it, since a
    count that comes later than the reading it belongs to is off by a whole range.

    Args:
        rapl_file_path: The counter's file, in microjoules.
        max_energy_uj: The highest value it shows.
        wraparound_counter: A `multiprocessing.Value`, or what has its `value` and `get_lock()`.
    """
    try:
        before_uj = read_number(rapl_file_path)
        while True:
            energy_uj = read_number(rapl_file_path)
            if energy_uj < before_uj:
                with wraparound_counter.get_lock():
                    wraparound_counter.value += 1
            before_uj = energy_uj
            near = max_energy_uj - energy_uj < RAPL_COUNTER_MAX_INCREASE
            time.sleep(0.1 if near else 1.0)
    except KeyboardInterrupt:
        return


class RaplWraparoundTracker:
    """Counts the wraps of one counter, on a thread that looks four times in the shortest of them.

    A count is worth something only together with the reading it belongs to. So whoever reads the
    counter holds `lock`, and hands over what it read:

        with tracker.lock:
            energy_uj = ...
            wraps = tracker.get_num_wraparounds(energy_uj)

    The thread ends with this object. A forked child has one of its own from its first use on.

    Attributes:
        lock: Held from a reading until it was handed over.
    """

    def __init__(self, rapl_file_path: str, max_energy_uj: float, most_w: float = 1000.0) -> None:
        """Begin to count.

        Args:
            rapl_file_path: The counter's file, in microjoules.
            max_energy_uj: What a wrap adds, in microjoules.
            most_w: The highest power that can be. A fall that would need more is a reset.

        Raises:
            ValueError: There is no such file, or it holds no number.
        """
        if not os.path.exists(rapl_file_path):
            raise ValueError(f"cannot count the wraps of {rapl_file_path}: there is no such file")
        self.rapl_file_path = rapl_file_path
        self.max_energy_uj = max_energy_uj
        self.lock = threading.RLock()
        self._most_uw = most_w * 1e6
        # In a shorter time it cannot wrap.
        self._safe_s = max_energy_uj / self._most_uw
        self._wraps = 0
        self._uj = read_number(rapl_file_path)
        self._at_s = time.monotonic()
        self._watch()
        _trackers.add(self)

    def get_num_wraparounds(self, energy_uj: float | None = None) -> int:
        """Tell how often the counter has wrapped.

        Args:
            energy_uj: What was read under `lock` just now; by default the counter is read here.

        Raises:
            OSError: The counter cannot be read.
            ValueError: It holds no number.
        """
        with self.lock:
            if self._gate is None:
                self._watch()
            self._follow(read_number(self.rapl_file_path) if energy_uj is None else energy_uj)
            return self._wraps

    def _follow(self, energy_uj: float) -> None:
        now_s = time.monotonic()
        elapsed_s = now_s - self._at_s
        if energy_uj < self._uj:
            gained_uj = self.max_energy_uj - self._uj + energy_uj
            if gained_uj <= self._most_uw * (elapsed_s + _SLACK_S):
                self._wraps += 1
            else:
                logger.warning(
                    "%s fell from %.0f to %.0f uJ within %.1f s, which is no wrap: it was reset, "
                    "and energy before that is missing",
                    *(self.rapl_file_path, self._uj, energy_uj, elapsed_s),
                )
        if elapsed_s > self._safe_s:
            logger.warning(
                "%s was not looked at for %.0f s, in which it may have wrapped unseen: its energy "
                "is a lower bound",
                *(self.rapl_file_path, elapsed_s),
            )
        self._uj, self._at_s = energy_uj, now_s

    def _watch(self) -> None:
        # Not an Event: the garbage collector may run a finalizer while this thread holds the
        # Event's own lock, and a plain lock is released without taking another.
        self._gate: threading.Lock | None = threading.Lock()
        self._gate.acquire()
        self._finalizer = weakref.finalize(self, self._gate.release)
        self._finalizer.atexit = False
        threading.Thread(
            target=_look,
            args=(weakref.ref(self), self._gate, min(max(self._safe_s / 4, 0.05), 60.0)),
            name="zeus-rapl-wraps",
            daemon=True,
        ).start()

    def _after_fork(self) -> None:
        """Leave the parent's thread and what it may have held alone."""
        self._finalizer.detach()
        self.lock = threading.RLock()
        self._gate = None


def _look(
    tracker_ref: weakref.ref[RaplWraparoundTracker], gate: threading.Lock, period_s: float
) -> None:
    failed = False
    while not gate.acquire(timeout=period_s):
        tracker = tracker_ref()
        if tracker is None:
            return
        try:
            tracker.get_num_wraparounds()
            failed = False
        except (OSError, ValueError) as error:
            if not failed:
                logger.warning("cannot look at %s: %s", tracker.rapl_file_path, error)
            failed = True
        del tracker


_trackers: weakref.WeakSet[RaplWraparoundTracker] = weakref.WeakSet()


def _after_fork() -> None:
    for tracker in list(_trackers):
        tracker._after_fork()


os.register_at_fork(after_in_child=_after_fork)
