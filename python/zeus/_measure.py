"""`@zeus.measure`: the energy of every call of a function."""

from __future__ import annotations

import collections
import functools
import inspect
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast, overload

if TYPE_CHECKING:
    from zeus.monitor.energy import Measurement, Window, ZeusMonitor

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_lock = threading.Lock()
_monitor: ZeusMonitor | None = None


class Measured(Protocol[P, R_co]):
    """A function whose calls are measured."""

    measurements: collections.deque[Measurement]
    """Of the last calls, in the order in which they ended."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call it."""
        ...

    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., R_co]:
        """Bind it, as a method."""
        ...


@overload
def measure(function: Callable[P, R], /) -> Measured[P, R]: ...


@overload
def measure(
    *,
    name: str | None = None,
    monitor: ZeusMonitor | None = None,
    callback: Callable[[Measurement], object] | None = None,
    keep: int = 1000,
    sync_execution: bool = True,
) -> Callable[[Callable[P, R]], Measured[P, R]]: ...


def measure(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    monitor: ZeusMonitor | None = None,
    callback: Callable[[Measurement], object] | None = None,
    keep: int = 1000,
    sync_execution: bool = True,
) -> Any:
    """Measure every call of a function, also those that raise, and at any time in any threads.

    Of a coroutine function, a call lasts until what it returns is awaited to its end, of a
    generator from the first item until it is exhausted or closed; what other tasks, or the
    consumer of the items, do meanwhile is in its energy.

    Args:
        function: What to measure; a plain `@zeus.measure`.
        name: What its windows are called; None: the function's own name.
        monitor: Measures; None: one for the process, of all devices, made at the first call.
        callback: Gets each measurement.
        keep: How many of the last are kept in `function.measurements`.
        sync_execution: Wait for the GPUs at both ends of a call.

    Raises:
        TypeError: It is no function, or an asynchronous generator.
    """

    def decorate(function: Callable[P, R]) -> Measured[P, R]:
        title = name or str(getattr(function, "__qualname__", function))
        measurements: collections.deque[Measurement] = collections.deque(maxlen=keep)

        def window() -> Window:
            return (monitor or _shared_monitor()).window(title, sync_execution)

        def take(window: Window) -> None:
            measurement = window._measurement
            if measurement is None:  # It could not begin or end, which was raised or logged.
                return
            measurements.append(measurement)
            if callback is not None:
                callback(measurement)

        measured = cast("Measured[P, R]", _wrap(function, window, take))
        measured.measurements = measurements
        return measured

    return decorate if function is None else decorate(function)


def _wrap(
    function: Callable[..., Any], window: Callable[[], Window], take: Callable[[Window], None]
) -> Callable[..., Any]:
    if inspect.isclass(function) or not callable(function):
        raise TypeError(f"cannot measure {function!r}: give a function; for a class, its methods")
    if inspect.isasyncgenfunction(function):
        raise TypeError(
            f"cannot measure {function!r}, an asynchronous generator: put "
            "`async with monitor.window()` into it"
        )
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            measured = window()
            try:
                async with measured:
                    return await function(*args, **kwargs)
            finally:
                take(measured)

        return coroutine
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generator(*args: Any, **kwargs: Any) -> Any:
            measured = window()
            try:
                with measured:
                    return (yield from function(*args, **kwargs))
            finally:
                take(measured)

        return generator

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        measured = window()
        try:
            with measured:
                return function(*args, **kwargs)
        finally:
            take(measured)

    return call


def _shared_monitor() -> ZeusMonitor:
    global _monitor
    with _lock:
        if _monitor is None:
            from zeus.monitor.energy import ZeusMonitor

            _monitor = ZeusMonitor()
        return _monitor


def _after_fork() -> None:
    # Another thread of the parent may have held it.
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
