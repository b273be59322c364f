"""`monitor.window()`: a measurement window that ends with its block, whatever ends the block."""

from __future__ import annotations

import logging
import sys
from types import TracebackType
from typing import TYPE_CHECKING

from zeus.monitor._measurement import Measurement, PowerRun, Uncertain

if TYPE_CHECKING:
    from zeus.monitor.energy import MeasurementState, ZeusMonitor
    from zeus.monitor.power import PowerMonitor

logger = logging.getLogger(__name__)


class Window:
    """A window around a `with` or `async with` block.

    It ends with the block, also by an exception, which goes on. The devices' energy is that of all
    that ran on them meanwhile: other threads, tasks and processes too. It may be entered again once
    it has ended, and is then a new measurement.

    Attributes:
        name: What it is called in results.
    """

    def __init__(
        self,
        monitor: ZeusMonitor,
        name: str,
        sync_execution: bool = True,
        power_monitor: PowerMonitor | None = None,
    ) -> None:
        """Prepare; it begins with its block."""
        self.name = name
        self._monitor = monitor
        self._sync_execution = sync_execution
        self._power_monitor = power_monitor
        self._state: MeasurementState | None = None
        self._measurement: Measurement | None = None
        self._failure: Exception | None = None

    @property
    def measurement(self) -> Measurement:
        """What was measured.

        Raises:
            RuntimeError: The window has not begun, is open, or could not be ended.
        """
        if self._measurement is None:
            if self._failure is not None:
                raise RuntimeError(
                    f"window {self.name!r} could not be ended: {self._failure}"
                ) from self._failure
            state = "has not begun" if self._state is None else "is still open"
            raise RuntimeError(f"window {self.name!r} {state}; ask for its result after its block")
        return self._measurement

    @property
    def energy(self) -> float:
        """Joules of everything that was measured; see `Measurement.energy`."""
        return self.measurement.energy

    @property
    def time(self) -> float:
        """Its length in seconds."""
        return self.measurement.time

    @property
    def uncertainty(self) -> dict[str, Uncertain]:
        """What is known about the error of each device's value; see `Measurement.uncertainty`."""
        return self.measurement.uncertainty

    @property
    def total(self) -> Uncertain:
        """`energy` with its uncertainty; `str()` of it is fit to print."""
        return self.measurement.total

    def __enter__(self) -> Window:
        """Begin.

        Raises:
            RuntimeError: It is open: two blocks at a time take two windows.
        """
        if self._state is not None and self._failure is None:
            raise RuntimeError(
                f"window {self.name!r} is open already; take another monitor.window() for a block "
                "within or beside it"
            )
        self._measurement = self._failure = None
        self._state = self._monitor._begin(self.name, self._sync_execution)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """End; the block's exception goes on, and none of ours takes its place."""
        if error is None:
            self._end(self._sync_execution, depth=5)
            return
        try:
            self._end_without_fail()
        except Exception as failure:
            logger.warning("Window %r could not be ended: %s", self.name, failure)

    def end(self) -> Measurement:
        """End a window once more whose block is over, where that failed the first time.

        Raises:
            RuntimeError: It is not open.
        """
        self._end(self._sync_execution, depth=5)
        return self.measurement

    async def __aenter__(self) -> Window:
        """Begin; other tasks go on while GPUs are waited for."""
        await self._sync_elsewhere()
        wanted, self._sync_execution = self._sync_execution, False
        try:
            return self.__enter__()
        finally:
            self._sync_execution = wanted

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End; other tasks go on while GPUs are waited for."""
        if error is not None:
            return self.__exit__(kind, error, traceback)
        try:
            await self._sync_elsewhere()
        except BaseException:  # Cancelled while it waited, too: the window ends all the same.
            self._end(False, depth=5)
            raise
        self._end(False, depth=5)
        return None

    async def _sync_elsewhere(self) -> None:
        """Wait for the GPUs on a thread, if there is a framework that may keep them busy."""
        if self._sync_execution and self._monitor.sync_with in sys.modules:
            import asyncio

            await asyncio.to_thread(self._monitor._sync, True)

    def _end_without_fail(self) -> None:
        try:
            self._end(self._sync_execution, depth=6)
        except Exception as failure:
            # A GPU that failed in the block fails to be waited for, and is read all the same.
            logger.warning("The GPUs were not waited for at the end of %r: %s", self.name, failure)
            self._end(False, depth=6)

    def _end(self, sync_execution: bool, depth: int) -> None:
        state = self._state
        if state is None:
            raise RuntimeError(f"window {self.name!r} is not open")
        try:
            measurement = self._monitor._end(state, sync_execution, depth)
        except Exception as failure:
            self._failure = failure
            raise
        self._state = self._failure = None
        self._measurement = measurement
        span, samples = measurement.span, self._power_monitor
        if samples is not None and span is not None:
            power = {i: samples._runs(i, span.begin_s, span.end_s) for i in samples.gpu_indices}
            measurement._keep(power=power)

    def _repr_html_(self) -> str | None:
        return None if self._measurement is None else self._measurement._repr_html_()


__all__ = ["PowerRun", "Window"]
