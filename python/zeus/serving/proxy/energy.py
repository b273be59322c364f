"""The energy of requests seen from outside the engine: by the time that they share it.

Between two moments at which a request comes or goes, and at least every second, the counters are
read. The energy in between is divided among the requests in flight by the tokens that were seen to
come back for each; one of which none was seen (its answer comes as a whole, or its prompt is still
being computed) counts as the mean of the others. Without any request the energy is idle. This is a
model of the engine, not a look into it: weights are stated as known to a factor of two (k = 1).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from zeus.serving.account import Account, Totals
from zeus.serving.engine import StepEvent, StepItem
from zeus.serving.ledger import Ledger
from zeus.serving.source import Timeline

METHOD = "overlap-tokens"
Reader = Callable[[], float]


class Spot(Timeline):
    """A counter read just when it is needed: it is behind by anything up to its update period T.

    u = P T / sqrt(6) for a stretch, of which each edge has half the variance (specification of
    accuracy, conclusion 6); P is the mean power of the last ten periods or of the stretch.
    """

    def __init__(self, update_s: float) -> None:
        super().__init__(keep=4096)
        self._behind_s = update_s

    def energy(self, begin_s: float, end_s: float) -> tuple[float, float] | None:
        """See `EnergySource.energy`."""
        told = super().energy(begin_s, end_s)
        if told is None:
            return None
        since = max(self._times[0], min(begin_s, end_s - 10 * self._behind_s))
        around = super().energy(since, end_s)
        if around is None:  # interrupted before the stretch
            since, around = begin_s, told
        power = around[0] / max(end_s - since, 1e-9)
        return told[0], power * self._behind_s / math.sqrt(6)


@dataclass(eq=False, slots=True)
class Flight:
    """A request on its way."""

    number: int
    seen: int = 0  # tokens since the last reading


class Overlap:
    """Divides the counters' energy among requests in flight. Of one event loop.

    Args:
        readers: By device, joules since some time. Called in a thread, one after the other; one
            that raises leaves its device unmeasured for that stretch.
        update_s: The counters' update period.
        period_s: How often they are read at least.
    """

    def __init__(
        self, readers: Mapping[str, Reader], *, update_s: float = 0.1, period_s: float = 1.0
    ) -> None:
        self._readers = dict(readers)
        self._spots = {name: Spot(update_s) for name in readers}
        self._ledger: Ledger | None = None
        self._period_s, self._update_s = period_s, update_s
        self._numbers = itertools.count()
        self._flights: dict[Flight, None] = {}
        self._coming: list[tuple[Flight, asyncio.Future[None]]] = []
        self._going: list[tuple[Flight, str, asyncio.Future[Account | None]]] = []
        self._wake = asyncio.Event()
        self._last: float | None = None
        self._task: asyncio.Task[None] | None = None
        self.errors: dict[str, str] = {}
        self.stray_nj = 0  # of requests whose client went away before anybody took the account

    @property
    def in_flight(self) -> int:
        """How many requests are on their way."""
        return len(self._flights)

    def problems(self) -> dict[str, str]:
        """Why devices cannot be read, by name."""
        if self._task is None or self._task.done():
            return dict.fromkeys(self._readers, "the counters are not followed")
        return dict(self.errors)

    def totals(self) -> Totals | None:
        """All energy so far; None before the start."""
        return self._ledger.totals() if self._ledger else None

    async def start(self) -> None:
        """Begins to follow the counters, after some updates that tell the power."""
        begin = await self._read(-math.inf)
        await asyncio.sleep(min(3 * self._update_s, 3.0))
        self._last = await self._read(begin)
        self._ledger = Ledger(
            self._spots,
            rule="tokens",
            u_weights=math.log(2),
            begin_s=self._last,
            block_s=3600.0,  # blocks end where `settle` says: at every reading
            settle_s=0.0,
            abandon_s=math.inf,
            auto_settle=False,
        )
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Ends following."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def begin(self) -> Flight:
        """A request comes: energy is its own from the next reading on, which this waits for."""
        self._check()
        flight = Flight(next(self._numbers))
        done = asyncio.get_running_loop().create_future()
        self._coming.append((flight, done))
        self._wake.set()
        try:
            await done
        except asyncio.CancelledError:
            if not done.cancelled():  # it had just been let in
                self.end(flight, "cancelled").cancel()
            raise
        return flight

    def end(self, flight: Flight, reason: str = "finished") -> asyncio.Future[Account | None]:
        """A request goes; its account comes with the next reading. None if it never had a share."""
        self._check()
        done = asyncio.get_running_loop().create_future()
        self._going.append((flight, reason, done))
        self._wake.set()
        return done

    def _check(self) -> None:
        """Nobody waits for a task that has ended."""
        if self._task is None or self._task.done():
            raise RuntimeError("the counters are not followed: start() has not run, or has failed")

    async def _run(self) -> None:
        try:
            await self._follow()
        finally:
            for _, ready in self._coming:
                ready.cancel()
            for _, _, done in self._going:
                done.cancel()

    async def _follow(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._period_s)
            self._wake.clear()
            coming, going = self._coming, self._going
            self._coming, self._going = [], []
            await self._advance()
            accounts = self._finish(going)
            for flight, ready in coming:
                if not ready.cancelled():
                    self._flights[flight] = None
                    ready.set_result(None)
            for flight, _, done in going:
                account = accounts.get(flight.number)
                if not done.cancelled():
                    done.set_result(account)
                elif account is not None:
                    self.stray_nj += account.energy_nj

    def _finish(
        self, going: list[tuple[Flight, str, asyncio.Future[Account | None]]]
    ) -> dict[object, Account]:
        assert self._ledger is not None
        for flight, reason, _ in going:
            self._flights.pop(flight, None)
            with contextlib.suppress(KeyError):  # it came and went between two readings
                self._ledger.finish(flight.number, reason=reason)
        return {account.request_id: account for account in self._ledger.accounts()}

    async def _advance(self) -> None:
        """Reads the counters and divides what was used since the last time."""
        assert self._ledger is not None and self._last is not None
        now = await self._read(self._last)
        if now <= self._last:
            return
        if self._flights:
            self._ledger.step(StepEvent(self._last, now, self._items()))
        self._ledger.settle(now)
        self._last = now

    async def _read(self, last_s: float) -> float:
        now, values = await asyncio.get_running_loop().run_in_executor(None, self._values)
        for name, value in values.items() if now > last_s else ():
            if isinstance(value, Exception):
                self.errors[name] = str(value) or type(value).__name__
                self._spots[name].interrupt()
            else:
                self.errors.pop(name, None)
                self._spots[name].add(now, value)
        return now

    def _values(self) -> tuple[float, dict[str, float | Exception]]:
        before, values = time.monotonic(), dict[str, float | Exception]()
        for name, read in self._readers.items():
            try:
                values[name] = _finite(read())
            except Exception as error:  # of any vendor: said in the metrics and in the accounts
                values[name] = error
        return (before + time.monotonic()) / 2, values

    def _items(self) -> list[StepItem]:
        seen = [flight.seen for flight in self._flights if flight.seen]
        mean = sum(seen) / len(seen) if seen else 1.0
        items = []
        for flight in self._flights:
            weight = round(1000 * (flight.seen or mean))
            items.append(StepItem(flight.number, "decode", max(1, weight), output_tokens=0))
            flight.seen = 0
        return items


def _finite(joules: float) -> float:
    if not math.isfinite(joules):
        raise ValueError(f"the counter says {joules}")
    return joules
