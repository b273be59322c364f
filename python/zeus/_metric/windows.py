"""Windows with names, and the threads that follow them."""

from __future__ import annotations

import abc
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import Empty, Queue
from typing import Any

from zeus._metric.exposition import Exposition
from zeus._metric.followers import EnergyTotal, PowerShown

logger = logging.getLogger(__name__)


class Metric(abc.ABC):
    """What is measured of windows that have names."""

    @abc.abstractmethod
    def begin_window(self, name: str, sync_execution: bool = True) -> None:
        """Begin a window, if wanted after the GPUs have done what they were given."""

    @abc.abstractmethod
    def end_window(self, name: str, sync_execution: bool = True) -> None:
        """End a window."""


@dataclass
class MonitoringProcessState:
    """What follows an open window.

    Attributes:
        queue: Anything put into it ends the window's thread.
        proc: The thread. Upstream has a process here.
    """

    queue: Queue[str]
    proc: threading.Thread


class Exposed(Metric):
    """A metric whose registry is pushed and can be served."""

    _exposition: Exposition

    @property
    def registry(self) -> Any:
        """The `prometheus_client.CollectorRegistry` that holds the series."""
        return self._exposition.registry

    def serve(self, port: int, address: str = "127.0.0.1") -> int:
        """Serve the series for Prometheus to scrape, beside or instead of pushing them.

        Args:
            port: 0: any that is free.
            address: Of this host; "" is all of them, for everybody who can reach it.

        Returns:
            The port.

        Raises:
            OSError: The port is taken.
        """
        return self._exposition.serve(port, address)

    def push(self) -> bool:
        """Push now; tell whether the gateway has it. Failures are logged."""
        return self._exposition.push(insist=True)

    def close(self) -> None:
        """End what serves the series."""
        self._exposition.close()


class Followed(Exposed):
    """A metric with a thread for each open window, which refreshes its series and pushes."""

    def __init__(
        self,
        metric: str,
        update_period: float,
        pushgateway_url: str | None,
        job: str,
        grouping_key: Mapping[str, str] | None,
        push_timeout_s: float,
    ) -> None:
        """Begin nothing yet; see `Exposition` for the arguments.

        Raises:
            ValueError: The period is not above zero.
        """
        if not update_period > 0:
            raise ValueError(f"update_period is {update_period!r}: give seconds above zero")
        self.update_period = update_period
        self.window_state: dict[str, MonitoringProcessState] = {}
        self._exposition = Exposition(metric, pushgateway_url, job, grouping_key, push_timeout_s)
        self._followers: dict[str, EnergyTotal | PowerShown] = {}
        # An open window's last energy is not lost with the interpreter or this object.
        self._finalizer = weakref.finalize(
            self, _end_all, os.getpid(), self.window_state, self._followers, self._exposition
        )
        _followed.add(self)

    def close(self) -> None:
        """End all windows, and what serves the series."""
        for name in list(self.window_state):
            self.end_window(name, sync_execution=False)
        super().close()

    def _check_new(self, name: str) -> None:
        if name in self.window_state:
            raise ValueError(f"Window {name!r} of this metric already exists; end it first")

    def _follow(self, name: str, follower: EnergyTotal | PowerShown) -> None:
        queue: Queue[str] = Queue()
        thread = threading.Thread(
            target=repeat,
            args=(queue, self.update_period, follower.advance, self._exposition),
            name=f"zeus-metric-{name}",
            daemon=True,
        )
        self._followers[name] = follower
        self.window_state[name] = MonitoringProcessState(queue, thread)
        thread.start()

    def _unfollow(self, name: str) -> None:
        self._followers.pop(name).finish()
        state = self.window_state.pop(name)
        state.queue.put("stop")
        state.proc.join(self._exposition.push_timeout_s + 1)
        self._exposition.push(insist=True)


def repeat(
    queue: Any, period_s: float, advance: Callable[[], None], exposition: Exposition
) -> None:
    """Advance and push each period until something is in the queue."""
    due = time.monotonic() + period_s
    while not _told(queue, max(0.0, due - time.monotonic())):
        try:
            advance()
        # Whatever a device, or a filter of warnings, raises: the window goes on.
        except Exception:
            logger.exception("cannot tell what a window of a metric has used so far")
        exposition.push()
        due = max(due + period_s, time.monotonic())


def _told(queue: Any, timeout_s: float) -> bool:
    try:
        queue.get(timeout=timeout_s)
    except Empty:
        return False
    return True


def _end_all(
    pid: int,
    states: dict[str, MonitoringProcessState],
    followers: dict[str, EnergyTotal | PowerShown],
    exposition: Exposition,
) -> None:
    """End the windows that nobody ended, in the process that began them."""
    if os.getpid() != pid:
        return
    for name, state in states.items():
        followers[name].finish()
        state.queue.put("stop")
        state.proc.join(exposition.push_timeout_s + 1)
    if states:
        exposition.push(insist=True)
    states.clear()
    exposition.close()


_followed: weakref.WeakSet[Followed] = weakref.WeakSet()


def _after_fork() -> None:
    # The windows are the parent's: no thread follows them here.
    for metric in _followed:
        metric.window_state.clear()
        metric._followers.clear()


os.register_at_fork(after_in_child=_after_fork)
