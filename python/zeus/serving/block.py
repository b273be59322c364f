"""From steps to the features of a stretch of time, and from shares to open accounts."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from zeus.serving.account import Account
from zeus.serving.engine import Phase, StepEvent, StepItem
from zeus.serving.rule import BUSY, GAP, ZERO, Coefficients, Vector, quadratic_form


@dataclass(eq=False, slots=True)
class Open:
    """An account that energy is still written to: of a request, of the gaps or of empty steps."""

    request_id: Hashable = None
    prefill_nj: int = 0
    decode_nj: int = 0
    prefill_tokens: int = 0
    cached_tokens: int = 0
    decode_tokens: int = 0
    tokens: int = 0
    begin_s: float = math.inf
    end_s: float = -math.inf
    finish_s: float | None = None
    reason: str = "open"
    pending: int = 0  # steps told, but not settled
    measured: bool = False
    rules: set[str] = field(default_factory=set)
    flags: set[str] = field(default_factory=set)
    # Uncertainty: the meter's variance; what each rule adds, linearly, because its error is common
    # to all blocks; the gradient to the coefficients in use, until they are fitted anew.
    meter: float = 0.0
    last_share: float = 0.0
    fit: float = 0.0
    fit_range: float = 0.0
    other: float = 0.0
    slope: Vector = ZERO

    def note(self, item: StepItem, event: StepEvent) -> None:
        """Counts the tokens of an item."""
        if item.phase == "prefill":
            self.prefill_tokens += item.tokens
        else:
            self.decode_tokens += item.tokens
        self.cached_tokens += item.cached_tokens
        self.tokens += item.received
        self.begin_s = min(self.begin_s, event.begin_s)
        self.end_s = max(self.end_s, event.end_s)

    def fold(self, coefficients: Coefficients) -> None:
        """Makes the gradient to these coefficients an uncertainty: they are about to change."""
        self.fit += math.sqrt(max(0.0, quadratic_form(self.slope, coefficients.covariance)))
        self.slope = ZERO

    def u_rule(self) -> float:
        """Of the rule, in joules."""
        return self.other + min(self.fit, self.fit_range)

    def account(self, u_gain: float, edge: float) -> Account:
        """The finished account; `edge` is the variance of the meter at the end of the block."""
        meter = math.sqrt(self.meter + self.last_share**2 * edge)
        gain = u_gain * (self.prefill_nj + self.decode_nj) * 1e-9
        flags = self.flags if self.measured else self.flags | {"unmeasured"}
        return Account(
            request_id=self.request_id,
            prefill_nj=self.prefill_nj,
            decode_nj=self.decode_nj,
            u_j=math.hypot(meter, self.u_rule(), gain),
            u_meter_j=meter,
            u_rule_j=self.u_rule(),
            prefill_tokens=self.prefill_tokens,
            cached_tokens=self.cached_tokens,
            decode_tokens=self.decode_tokens,
            tokens=self.tokens,
            begin_s=self.begin_s,
            end_s=self.end_s,
            reason=self.reason,
            rule="+".join(sorted(self.rules)) or "none",
            flags=tuple(sorted(flags)),
        )


@dataclass(eq=False, slots=True)
class Step:
    """A step with the accounts that its items belong to."""

    begin_s: float
    end_s: float
    items: list[tuple[Open, StepItem]]


Kind = Phase | Literal["gap", "empty"]


@dataclass(slots=True)
class Party:
    """Who shares in a block."""

    account: Open
    kind: Kind
    vector: Vector


def parties_of(
    steps: Sequence[Step], begin_s: float, end_s: float, gap: Open, empty: Open, static: bool
) -> list[Party]:
    """The parties of a block and their features.

    A step that reaches beyond the block has its tokens in it in proportion to its time. Where steps
    overlap, each has an equal part of that time.

    Args:
        steps: All that overlap the block, and those without duration that lie in it.
        begin_s: Begin of the block.
        end_s: End of the block.
        gap: The account of the gaps.
        empty: The account of steps without a request.
        static: Whether the gaps' feature is all time, for idle power counted apart.
    """
    features: dict[tuple[Open, Kind], list[float]] = {}
    seconds, busy = _seconds(steps, begin_s, end_s)
    for step, time in zip(steps, seconds, strict=True):
        if not step.items:
            features.setdefault((empty, "empty"), [0.0] * 5)[BUSY] += time
            continue
        length = step.end_s - step.begin_s
        inside = min(step.end_s, end_s) - max(step.begin_s, begin_s)
        part = inside / length if length > 0 else 1.0
        for account, item in step.items:
            v = features.setdefault((account, item.phase), [0.0] * 5)
            v[BUSY] += time / len(step.items)
            v[2 if item.phase == "prefill" else 3] += part * item.tokens
            v[4] += part * item.context_tokens
    idle = end_s - begin_s if static else max(0.0, end_s - begin_s - busy)
    if idle > 1e-9:  # what rounding of times leaves is no gap
        features.setdefault((gap, "gap"), [0.0] * 5)[GAP] = idle
    return [
        Party(account, kind, (a, b, c, d, e))
        for (account, kind), (a, b, c, d, e) in features.items()
    ]


def _seconds(steps: Sequence[Step], begin_s: float, end_s: float) -> tuple[list[float], float]:
    """Of each step its part of the block's time, and the time in which any ran."""
    edges = []
    for i, step in enumerate(steps):
        first, last = max(step.begin_s, begin_s), min(step.end_s, end_s)
        if first < last:
            edges += [(first, 1, i), (last, 0, i)]
    edges.sort()
    seconds, busy, running, before = [0.0] * len(steps), 0.0, set[int](), begin_s
    for at, starts, i in edges:
        if running:
            busy += at - before
            for j in running:
                seconds[j] += (at - before) / len(running)
        before = at
        if starts:
            running.add(i)
        else:
            running.discard(i)
    return seconds, busy
