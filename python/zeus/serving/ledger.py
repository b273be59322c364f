"""The ledger: steps of an inference engine in, the energy of each request out."""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Literal

from zeus.serving.account import Account, Totals
from zeus.serving.block import Open, Party, Step, parties_of
from zeus.serving.divide import Terms, divide
from zeus.serving.engine import Clock, EnergySource, StepEvent
from zeus.serving.meter import Block, Meter
from zeus.serving.rule import Coefficients, Fit, total_of


class Ledger:
    """Divides measured energy among the requests of an inference engine.

    Time is cut into blocks of about `block_s`. Each block's energy is measured as a whole, and
    divided by the rule of `zeus.serving.rule`: a step is shorter than what a meter can tell, a
    block is not. Energy is counted in whole nanojoules from the moment it is read, and divided by
    largest remainders, so that requests and idle add up to the devices exactly.

    Any thread may call any method, and no method waits for anything but the sources: call it from
    an event loop as it is, or have `settle` called by a thread and pass `auto_settle=False`.
    Memory is bounded by the requests in flight, the steps not yet settled and `keep`.

    Args:
        sources: A meter, or several by name. The batch bears the energy of all of them (tensor or
            pipeline parallel). Data-parallel replicas have a ledger each.
        clock: Whose seconds the steps tell. All sources must have the same (`on_clock` converts).
        rule: "fitted" divides by coefficients found from the blocks, and by plain tokens until
            they can be told apart; "tokens" always by plain tokens; `Coefficients` by these.
        idle: "gaps": idle is the time without any step, and requests bear all energy of their
            steps. "static": idle is `idle_power_w` times all time, and requests bear what is above.
        idle_power_w: Power of all devices together while nothing runs and its standard
            uncertainty, in watts, where it is known.
        u_gain: Relative standard uncertainty of the meters' gain, common to all energies.
        u_weights: Relative standard uncertainty of each request's weight, beside what the fit
            says: for requests that cost differently though their features are equal.
        block_s: Length of a block; at most twice as long where steps straddle its end.
        settle_s: How much later than others a step may be told.
        patience_s: How long a block waits for sources that have not come so far; then the device
            counts as not read.
        hold_blocks: How many blocks may wait to be divided for the first coefficients; beyond it
            the waiting ones are divided by plain tokens. Until then accounts come late.
        begin_s: Since when energy counts; by default since the first step begins.
        on_account: Called with every finished account, in the thread whose call settled it and
            without a lock held. Without it `accounts` hands them out.
        keep: Accounts kept for `accounts`; the oldest are dropped beyond it, and counted.
        abandon_s: A request without a step for so long is closed as "abandoned".
        auto_settle: Whether `step` settles what is old enough.

    Raises:
        ValueError: Options that contradict each other.
    """

    def __init__(
        self,
        sources: EnergySource | Mapping[str, EnergySource],
        *,
        clock: Clock = "monotonic",
        rule: Literal["fitted", "tokens"] | Coefficients = "fitted",
        idle: Literal["gaps", "static"] = "gaps",
        idle_power_w: tuple[float, float] | None = None,
        u_gain: float = 0.0,
        u_weights: float = 0.0,
        block_s: float = 1.0,
        settle_s: float = 0.5,
        patience_s: float = 10.0,
        hold_blocks: int = 30,
        begin_s: float | None = None,
        on_account: Callable[[Account], object] | None = None,
        keep: int = 65536,
        abandon_s: float = 3600.0,
        auto_settle: bool = True,
    ) -> None:
        if rule not in ("fitted", "tokens") and not isinstance(rule, Coefficients):
            raise ValueError(f"rule {rule!r} is none of 'fitted', 'tokens' and Coefficients")
        if idle not in ("gaps", "static"):
            raise ValueError(f"idle {idle!r} is neither 'gaps' nor 'static'")
        if idle == "static" and idle_power_w is None:
            raise ValueError(
                "idle='static' needs the idle power: measure the devices while nothing runs and "
                "pass idle_power_w=(watts, uncertainty)"
            )
        if min(block_s, keep) <= 0 or min(settle_s, patience_s, hold_blocks, u_gain, u_weights) < 0:
            raise ValueError(
                "block_s and keep must be above zero; settle_s, patience_s, hold_blocks, u_gain "
                "and u_weights not below"
            )
        self._meter = Meter(sources if isinstance(sources, Mapping) else {"device": sources}, clock)
        self._fit = Fit()
        self._rule = rule
        self._coefficients = rule if isinstance(rule, Coefficients) else None
        self._static = idle == "static"
        self._terms = Terms(idle_power_w, u_weights)
        if idle_power_w is not None and rule == "fitted":
            watts, u = idle_power_w
            self._fit.add((1.0, 0.0, 0.0, 0.0, 0.0), watts, max(u, 1e-6))
        self._u_gain = u_gain
        self._block_s, self._settle_s, self._patience_s = block_s, settle_s, patience_s
        self._abandon_s, self._auto = abandon_s, auto_settle
        self._on_account = on_account
        self._lock = threading.Lock()
        _ledgers.add(self)
        self._begin = begin_s
        self._settled = begin_s
        self._divided = begin_s  # behind `_settled` by the blocks held back
        self._held: list[tuple[list[Party], Block, float]] = []
        self._hold = hold_blocks
        self._seen = -math.inf  # the latest time that an event told
        self._steps: list[Step] = []
        self._current: dict[Hashable, Open] = {}
        self._open: dict[Open, None] = {}  # in the order of their first steps
        self._gap, self._empty = Open("gap"), Open("empty")
        self._before: set[Open] = set()  # who had a share in the last block
        self._fitted_at = 0
        self._closed_nj = self._requests = self._tokens = self._late = self._dropped = 0
        self._outbox: deque[Account] = deque()
        self._keep = keep

    # --- what the engine tells ---

    def step(self, event: StepEvent) -> None:
        """Tells a step that has ended. Steps may come in any order within `settle_s`."""
        with self._lock:
            if self._settled is None:
                self._begin = self._settled = self._divided = event.begin_s
            items = [(self._account_of(item.request_id, event), item) for item in event.items]
            for account, item in items:
                account.note(item)
            begin = max(event.begin_s, self._settled)
            late = event.begin_s < self._settled
            if late:
                self._late += 1
                for account, _ in items:
                    account.flags.add("late")
            if event.end_s > begin or not late:
                self._steps.append(Step(begin, event.end_s, items))
            self._seen = max(self._seen, event.end_s)
            if self._auto:
                until = self._seen - self._settle_s
                self._advance(min(until, max(self._meter.reach_s(), until - self._patience_s)))
        self._deliver()

    def finish(
        self, request_id: Hashable, at_s: float | None = None, reason: str = "finished"
    ) -> None:
        """Tells that a request has no further steps; its account follows once they are settled.

        A request of that name that comes later is another one.

        Args:
            request_id: Of a request that had a step.
            at_s: When; by default the end of its last step.
            reason: "finished", "cancelled" or words of the caller's.

        Raises:
            KeyError: No such request is in flight.
        """
        with self._lock:
            account = self._current.pop(request_id, None)
            if account is None:
                raise KeyError(
                    f"cannot finish request {request_id!r}: it had no step since it last finished"
                )
            account.reason = reason
            account.finish_s = max(account.end_s, at_s if at_s is not None else -math.inf)
            if self._divided is not None and account.finish_s <= self._divided:
                self._hand_out()
        self._deliver()

    def cancel(self, request_id: Hashable, at_s: float | None = None) -> None:
        """`finish` with the reason "cancelled"."""
        self.finish(request_id, at_s, "cancelled")

    def preempt(self, request_id: Hashable) -> None:
        """Notes that a request was put back; what it computes again is counted and paid again.

        Raises:
            KeyError: No such request is in flight.
        """
        with self._lock:
            if request_id not in self._current:
                raise KeyError(f"cannot preempt request {request_id!r}: it is not in flight")
            self._current[request_id].flags.add("preempted")

    # --- settling ---

    def settle(self, until_s: float) -> None:
        """Measures all whole blocks that end by `until_s`, and the rest up to there."""
        with self._lock:
            self._advance(until_s)
            if self._settled is not None and self._settled < until_s:
                self._settle_block(until_s)
        self._deliver()

    def close(self, at_s: float | None = None) -> Totals:
        """Settles everything up to `at_s` (by default the last step's end) and closes all accounts.

        Requests still in flight are handed out with the reason "open".
        """
        with self._lock:
            until = max(self._seen, at_s if at_s is not None else -math.inf)
            self._advance(until)
            if self._settled is not None and (self._settled < until or self._steps):
                self._settle_block(until)
            for account in self._open:
                if account.finish_s is None or account.finish_s > until:
                    account.finish_s = account.end_s
            self._current.clear()
            self._divide_held()
        self._deliver()
        return self.totals()

    # --- what comes out ---

    def accounts(self) -> Iterator[Account]:
        """Hands out the accounts that are finished, each once. None of them waits for others."""
        while True:
            with self._lock:
                if not self._outbox:
                    return
                account = self._outbox.popleft()
            yield account

    def totals(self) -> Totals:
        """All energy so far."""
        with self._lock:
            idle = self._gap, self._empty
            edge = self._meter.edge
            return Totals(
                begin_s=self._begin,
                settled_s=self._divided,
                device_nj=dict(self._meter.total_nj),
                device_u_j=self._meter.u_j(),
                device_idle_nj=dict(self._meter.idle_nj),
                gap_nj=self._gap.decode_nj,
                empty_nj=self._empty.decode_nj,
                idle_u_j=math.hypot(
                    math.sqrt(sum(a.meter + a.last_share**2 * edge for a in idle)),
                    sum(a.u_rule(self._coefficients) for a in idle),
                ),
                closed_nj=self._closed_nj,
                open_nj=sum(a.prefill_nj + a.decode_nj for a in self._open),
                requests=self._requests,
                tokens=self._tokens,
                unmeasured_s=dict(self._meter.unmeasured_s),
                late_steps=self._late,
                dropped_accounts=self._dropped,
                coefficients=self._coefficients,
            )

    # --- inside, with the lock held ---

    def _account_of(self, request_id: Hashable, event: StepEvent) -> Open:
        account = self._current.get(request_id)
        if account is None:
            account = self._current[request_id] = Open(request_id)
            self._open[account] = None
        if event.begin_s < account.begin_s:
            account.begin_s = event.begin_s
        if event.end_s > account.end_s:
            account.end_s = event.end_s
        return account

    def _advance(self, until_s: float) -> None:
        """Settles whole blocks that end by `until_s`."""
        while self._settled is not None and self._settled + self._block_s <= until_s:
            end = self._block_end(until_s)
            if end > until_s:
                return
            self._settle_block(end)

    def _block_end(self, until_s: float) -> float:
        """Where the block ends: at the end of a step that another follows, if that is not too far.

        Not where steps begin or stop for a while: a counter smooths that change over its update, so
        that blocks that always ended there would always have too much or too little. A long time
        without steps is cut more coarsely.
        """
        assert self._settled is not None
        plain, last = self._settled + self._block_s, self._settled + 2 * self._block_s
        next_s = min((s.begin_s for s in self._steps), default=math.inf)
        if next_s > plain:
            far = min(next_s - self._block_s / 2, until_s, self._settled + 60 * self._block_s)
            return max(plain, far)
        end = plain
        while ends := [s.end_s for s in self._steps if s.begin_s < end < s.end_s]:
            end = max(ends)
        soon = end + self._block_s / 100
        goes_on = any(s.begin_s <= soon < s.end_s for s in self._steps)
        return end if goes_on and end <= last else plain

    def _settle_block(self, end: float) -> None:
        begin = self._settled
        assert begin is not None
        inside = [s for s in self._steps if s.begin_s < end or s.end_s <= end]
        reading = self._meter.read(begin, end)  # may raise: nothing has been changed so far
        parties = parties_of(inside, begin, end, self._gap, self._empty, self._static)
        self._settled = end
        self._steps = [s for s in self._steps if s.end_s > end]
        self._held.append((parties, reading, end - begin))
        self._learn(parties, reading)
        self._abandon(end)
        if self._rule == "tokens" or self._coefficients or len(self._held) > self._hold:
            self._divide_held()

    def _divide_held(self) -> None:
        """Divides all blocks that have been measured."""
        for parties, reading, length in self._held:
            shares: dict[Open, float] = {}
            if parties and reading.measured:
                shares, idle_nj = divide(parties, reading, length, self._coefficients, self._terms)
                for name, idle in idle_nj.items():
                    self._meter.idle_nj[name] += idle
            self._carry(reading, shares)
            if reading.missing:
                for party in parties:
                    party.account.flags.add("missing")
            self._meter.commit(reading, length)
        self._held.clear()
        self._divided = self._settled
        self._hand_out()

    def _carry(self, reading: Block, shares: dict[Open, float]) -> None:
        """Adds the meter's variance of a block: independent, or by edges shared with the last.

        Where energies telescope, sum s_k (C_k - C_(k-1)) has the variance
        sum (s_k - s_(k+1))^2 u(C_k)^2: only changes of the share let an edge's error through.
        """
        between = self._meter.edge_between(reading)
        for account in self._before | shares.keys():
            share = shares.get(account, 0.0)
            account.meter += (share - account.last_share) ** 2 * between
            account.meter += share * share * reading.independent_var
            account.last_share = share
        self._before = set(shares)

    def _learn(self, parties: list[Party], reading: Block) -> None:
        """Adds the block to the fit, and fits anew now and then."""
        if self._rule != "fitted" or reading.missing or not parties:
            return
        self._fit.add(total_of([p.vector for p in parties]), reading.energy_j, reading.u_j)
        if self._fit.blocks - self._fitted_at < max(1, min(64, self._fitted_at // 4)):
            return
        self._fitted_at = self._fit.blocks
        found = self._fit.solve()
        if self._coefficients is not None:
            for account in (*self._open, self._gap, self._empty):
                account.fold(self._coefficients)
        self._coefficients = found

    def _abandon(self, now: float) -> None:
        for name, account in list(self._current.items()):
            if now - account.end_s > self._abandon_s:
                account.reason, account.finish_s = "abandoned", account.end_s
                del self._current[name]

    def _hand_out(self) -> None:
        """Closes finished accounts whose steps are all divided."""
        divided = self._divided if self._divided is not None else -math.inf
        for account in [a for a in self._open if a.finish_s is not None]:
            assert account.finish_s is not None
            if account.finish_s > divided:
                continue
            del self._open[account]
            self._before.discard(account)
            self._closed_nj += account.prefill_nj + account.decode_nj
            self._requests += 1
            self._tokens += account.tokens
            self._outbox.append(account.account(self._u_gain, self._meter.edge, self._coefficients))
            if self._on_account is None and len(self._outbox) > self._keep:
                self._outbox.popleft()
                self._dropped += 1

    def _deliver(self) -> None:
        """Calls back, without the lock. What a callback raises reaches the caller; none is lost."""
        if self._on_account is not None:
            for account in self.accounts():
                self._on_account(account)


_ledgers: weakref.WeakSet[Ledger] = weakref.WeakSet()


def _after_fork() -> None:
    for ledger in list(_ledgers):
        ledger._lock = threading.Lock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_after_fork)
