"""The loop behind `_polling_process` of `zeus.monitor.carbon` and `zeus.monitor.price`.

It speaks the queue protocol of upstream's helper processes: `(operation, key)` comes in, and each
end of a window puts one triple of dictionaries (GPU, CPU, DRAM) out. It measures sub-windows of a
ZeusMonitor of its own, so what is used between two of them is lost; the monitors of this package
cut one stream of counters instead and do not use it.
"""

from __future__ import annotations

import logging
import math
import queue
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from zeus.monitor._interval_monitor import energies_of
from zeus.monitor._parts import Device, floor_utc

if TYPE_CHECKING:
    from zeus.monitor.energy import Measurement, ZeusMonitor

logger = logging.getLogger(__name__)

EnergyByHour = dict[datetime, dict[Device, float]]
Price = Callable[[EnergyByHour], dict[Device, float]]
Totals = tuple[dict[int, float], dict[int, float], dict[int, float]]


class _Window:
    """What one window used: by hour and not priced yet, and what was priced."""

    def __init__(self) -> None:
        self.energy_j: EnergyByHour = defaultdict(lambda: defaultdict(float))
        self.totals: dict[Device, float] = defaultdict(float)
        self.known = True

    def add(self, hour: datetime, measurement: Measurement) -> None:
        """Count a sub-window's energy to its hour."""
        for device, joules in energies_of(measurement).items():
            self.energy_j[hour][device] += joules

    def settle(self, price: Price) -> None:
        """Price what is not priced yet; a failure leaves the totals unknown."""
        try:
            for device, value in price(self.energy_j).items():
                self.totals[device] += value
        except Exception as error:  # A provider may be anyone's code.
            self.known = False
            logger.warning("a window's carbon or cost is unknown: %s", error)
            for by_device in self.energy_j.values():
                self.totals.update(dict.fromkeys(by_device, math.nan))
        self.energy_j.clear()

    def result(self) -> Totals:
        """The totals by kind of device; NaN where they are unknown."""
        by_kind: dict[str, dict[int, float]] = {"gpu": {}, "cpu": {}, "dram": {}}
        for (kind, index), value in self.totals.items():
            by_kind[kind][index] = value if self.known else math.nan
        return by_kind["gpu"], by_kind["cpu"], by_kind["dram"]


class HourlyQueue:
    """Serves commands until the last window has ended."""

    def __init__(
        self,
        finished_q: Any,
        make_monitor: Callable[[], ZeusMonitor],
        price: Price,
        settle_after: int | None,
    ) -> None:
        """Make the monitor.

        Args:
            finished_q: Takes a triple for each window that ends.
            make_monitor: Makes the monitor. Where it fails every window's energy is unknown, and
                each end still gets an answer, so that nobody waits for ever.
            price: Turns joules by hour into carbon or money.
            settle_after: Price after so many hours, for providers that forget; None for only at
                the end.
        """
        self._finished_q = finished_q
        self._price = price
        self._settle_after = settle_after
        self._windows: dict[str, _Window] = {}
        self._hour: datetime
        self._monitor: ZeusMonitor | None = None
        try:
            self._monitor = make_monitor()
        except Exception as error:
            logger.warning("no window can be measured: %s", error)

    def run(self, command_q: Any, now: Callable[[], datetime], period: timedelta) -> None:
        """Serve.

        Args:
            command_q: Gives `(operation, key)`; an operation is named BEGIN, END or NEXTITER.
            now: Tells the time; called once per hour and once after each command.
            period: Length of an "hour".
        """
        hours = 0
        while True:
            time = now()
            self._hour = floor_utc(time, period)
            for key in self._windows:
                self._begin(key)
            if not self._serve_hour(command_q, now, time, self._hour + period):
                return
            hours += 1
            for key, window in self._windows.items():
                self._end(key)
                if self._settle_after is not None and hours % self._settle_after == 0:
                    window.settle(self._price)

    def _serve_hour(
        self, command_q: Any, now: Callable[[], datetime], time: datetime, end: datetime
    ) -> bool:
        """Serve until `end`; False when the last window has ended."""
        while time < end:
            try:
                operation, key = command_q.get(timeout=(end - time) / timedelta(seconds=1))
            except queue.Empty:
                return True
            if operation.name == "NEXTITER":
                return True
            if operation.name == "BEGIN":
                self._windows[key] = _Window()
                self._begin(key)
            elif key not in self._windows:
                logger.warning("cannot end window %r: it does not exist", key)
                self._finished_q.put(({}, {}, {}))
            else:
                self._end(key)
                window = self._windows.pop(key)
                window.settle(self._price)
                self._finished_q.put(window.result())
                if not self._windows:
                    return False
            time = now()
        return True

    def _begin(self, key: str) -> None:
        try:
            if self._monitor is not None:
                self._monitor.begin_window(f"__hour_{key}", sync_execution=False, restart=True)
        except Exception as error:
            self._lose(key, error)

    def _end(self, key: str) -> None:
        window = self._windows[key]
        if self._monitor is None:
            window.known = False
            return
        try:
            measurement = self._monitor.end_window(f"__hour_{key}", sync_execution=False)
            window.add(self._hour, measurement)
        except Exception as error:
            self._lose(key, error)

    def _lose(self, key: str, error: Exception) -> None:
        """The window goes on, so that its end is answered; its total is unknown."""
        self._windows[key].known = False
        logger.warning("the energy of window %r is unknown: %s", key, error)
