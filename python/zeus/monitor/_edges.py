"""Marks the edges between intervals of the wall clock while windows are open.

A mark is a window of the same ZeusMonitor that begins at the edge and ends with the window that it
is for: what it used is what the window used after the edge.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zeus.monitor.energy import ZeusMonitor

logger = logging.getLogger(__name__)

# The wall clock may be set while the thread waits: it looks again this often.
_LONGEST_WAIT_S = 60.0


def utc_now() -> datetime:
    """The time by the wall clock, in UTC: intervals are of the wall clock."""
    return datetime.now(timezone.utc)


@dataclass(frozen=True)
class Mark:
    """A window of the monitor that began at an edge.

    Attributes:
        time: When, in UTC: the edge, or a little later.
        key: The window's name.
    """

    time: datetime
    key: str


@dataclass
class _Open:
    start: datetime
    marks: list[Mark] = field(default_factory=list)


class EdgeMarks:
    """A thread that lives while windows are open, and what it marked.

    In the child of a fork the windows stay open. The thread is there again once a window is opened;
    until then edges are not marked.
    """

    def __init__(
        self,
        monitor: ZeusMonitor,
        next_edge: Callable[[datetime], datetime],
        after_edge: Callable[[datetime], None],
    ) -> None:
        """Start nothing yet.

        Args:
            monitor: Where the marks are made.
            next_edge: The first edge after a time.
            after_edge: Called after each edge with the start of the oldest window.
        """
        self._monitor = monitor
        self._next_edge = next_edge
        self._after_edge = after_edge
        self._open: dict[str, _Open] = {}
        self._numbers = itertools.count()
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
        """A window starts."""
        with self._here():
            self._open[key] = _Open(start)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="zeus-interval-edges", daemon=True
                )
                self._thread.start()

    def close(self, key: str) -> list[Mark]:
        """A window ends: its marks in order, which are the caller's to end."""
        with self._here():
            marks = self._open.pop(key).marks
            self._changed.notify_all()
            return marks

    def close_all(self) -> None:
        """Forget every window; the thread ends."""
        with self._here():
            self._open.clear()
            self._changed.notify_all()

    def _run(self) -> None:
        edge = self._next_edge(utc_now())
        while True:
            with self._changed:
                if not self._open:
                    self._thread = None
                    return
                oldest = min(window.start for window in self._open.values())
                keys = list(self._open)
                wait_s = (edge - utc_now()) / timedelta(seconds=1)
                if wait_s > 0:
                    self._changed.wait(min(wait_s, _LONGEST_WAIT_S))
                    continue
            for key in keys:
                self._mark(key)
            edge = self._next_edge(utc_now())
            self._after_edge(oldest)

    def _mark(self, key: str) -> None:
        before = utc_now()
        mark_key = f"__edge_{next(self._numbers)}_of_{key}"
        try:
            self._monitor.begin_window(mark_key, sync_execution=False)
        except Exception as error:  # The thread goes on: this edge is then interpolated.
            logger.warning("the energy of window %r up to %s is estimated: %s", key, before, error)
            return
        mark = Mark(before + (utc_now() - before) / 2, mark_key)
        with self._changed:
            window = self._open.get(key)
            if window is not None and window.start < before:
                window.marks.append(mark)
                return
        self._monitor.end_window(mark_key, sync_execution=False, cancel=True)
