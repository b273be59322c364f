"""From steps to the features of a stretch of time, and from shares to open accounts."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from zeus.serving.account import Account
from zeus.serving.engine import Phase, StepItem
from zeus.serving.rule import ZERO, Coefficients, Vector, quadratic_form


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

    def note(self, item: StepItem) -> None:
        """Counts the tokens of an item."""
        received = item.output_tokens
        if item.phase == "prefill":
            self.prefill_tokens += item.tokens
            self.cached_tokens += item.cached_tokens
        else:
            self.decode_tokens += item.tokens
            if received is None:
                received = item.tokens
        if received:
            self.tokens += received

    def fold(self, coefficients: Coefficients) -> None:
        """Makes the gradient to these coefficients an uncertainty: they are about to change."""
        self.fit += self._u_slope(coefficients)
        self.slope = ZERO

    def u_rule(self, coefficients: Coefficients | None) -> float:
        """Of the rule, in joules; with the coefficients in use."""
        fit = self.fit + (self._u_slope(coefficients) if coefficients else 0.0)
        return self.other + min(fit, self.fit_range)

    def _u_slope(self, coefficients: Coefficients) -> float:
        return math.sqrt(max(0.0, quadratic_form(self.slope, coefficients.covariance)))

    def account(self, u_gain: float, edge: float, coefficients: Coefficients | None) -> Account:
        """The finished account; `edge` is the variance of the meter at the end of the block."""
        rule = self.u_rule(coefficients)
        meter = math.sqrt(self.meter + self.last_share**2 * edge)
        gain = u_gain * (self.prefill_nj + self.decode_nj) * 1e-9
        flags = self.flags if self.measured else self.flags | {"unmeasured"}
        return Account(
            request_id=self.request_id,
            prefill_nj=self.prefill_nj,
            decode_nj=self.decode_nj,
            u_j=math.hypot(meter, rule, gain),
            u_meter_j=meter,
            u_rule_j=rule,
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
    features: dict[Kind, dict[Open, list[float]]] = {"prefill": {}, "decode": {}}
    seconds, busy = _seconds(steps, begin_s, end_s)
    without_request = 0.0
    for step, time in zip(steps, seconds, strict=True):
        if not step.items:
            without_request += time
            continue
        length = step.end_s - step.begin_s
        inside = min(step.end_s, end_s) - max(step.begin_s, begin_s)
        part = inside / length if length > 0 else 1.0
        seat = time / len(step.items)
        for account, item in step.items:
            of_phase = features[item.phase]
            v = of_phase.get(account)
            if v is None:
                v = of_phase[account] = [0.0, 0.0, 0.0]
            v[0] += seat
            v[1] += part * item.tokens
            v[2] += part * item.context_tokens
    out = [Party(a, "prefill", (0.0, s, n, 0.0, c)) for a, (s, n, c) in features["prefill"].items()]
    out += [Party(a, "decode", (0.0, s, 0.0, n, c)) for a, (s, n, c) in features["decode"].items()]
    idle = end_s - begin_s if static else max(0.0, end_s - begin_s - busy)
    if idle > 1e-9:  # what rounding of times leaves is no gap
        out.append(Party(gap, "gap", (idle, 0.0, 0.0, 0.0, 0.0)))
    if without_request or not out:
        out.append(Party(empty, "empty", (0.0, without_request, 0.0, 0.0, 0.0)))
    return out


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
