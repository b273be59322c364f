"""Reads counters at the edges between intervals while any window is open."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

from zeus.monitor._parts import Reading

# The wall clock may be set while the thread waits: it looks again this often.
_LONGEST_WAIT_S = 60.0


def utc_now() -> datetime:
    """The time by the wall clock, in UTC: intervals are of the wall clock."""
    return datetime.now(timezone.utc)


class EdgeReader:
    """A thread that lives while windows are open, and what it read.

    In the child of a fork the windows stay open and the thread is started anew.
    """

    def __init__(
        self,
        read: Callable[[], Reading],
        next_edge: Callable[[datetime], datetime],
        after_edge: Callable[[datetime], None],
    ) -> None:
        """Start nothing yet.

        Args:
            read: Reads the counters.
            next_edge: The first edge after a time.
            after_edge: Called after each reading with the start of the oldest window.
        """
        self._read = read
        self._next_edge = next_edge
        self._after_edge = after_edge
        self._open: dict[str, datetime] = {}
        self._readings: list[Reading] = []
        self._renew()

    def _renew(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def _here(self) -> threading.Condition:
        if self._pid != os.getpid():
            self._renew()
        return self._changed

    def open(self, key: str, start: datetime) -> None:
        """A window starts; or starts again."""
        with self._here():
            self._open[key] = start
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="zeus-interval-edges", daemon=True
                )
                self._thread.start()

    def close(self, key: str) -> list[Reading]:
        """A window ends: the readings since it started, in order."""
        with self._here() as _:
            start = self._open.pop(key)
            found = [reading for reading in self._readings if reading.time > start]
            oldest = min(self._open.values(), default=None)
            self._readings = [
                reading
                for reading in self._readings
                if oldest is not None and reading.time > oldest
            ]
            self._changed.notify_all()
            return found

    def close_all(self) -> None:
        """Forget every window; the thread ends."""
        with self._here():
            self._open.clear()
            self._readings.clear()
            self._changed.notify_all()

    def _run(self) -> None:
        edge = self._next_edge(utc_now())
        while True:
            with self._changed:
                if not self._open:
                    self._thread = None
                    return
                wait_s = (edge - utc_now()) / timedelta(seconds=1)
                if wait_s > 0:
                    self._changed.wait(min(wait_s, _LONGEST_WAIT_S))
                    continue
            reading = self._read()
            with self._changed:
                self._readings.append(reading)
                oldest = min(self._open.values(), default=reading.time)
            edge = self._next_edge(utc_now())
            self._after_edge(oldest)
