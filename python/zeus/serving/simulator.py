"""A serving engine that does not exist, whose energy is known: to try rules and block lengths on.

Requests arrive at random, wait for a seat in the batch, have their prompts computed in chunks, and
generate a token a step. Each step takes time and energy by a law that is linear in its tokens; what
every request truly cost is added up on the way.
"""

from __future__ import annotations

import bisect
import math
import random
from collections import deque
from dataclasses import dataclass, field, replace

from zeus.serving.engine import StepEvent, StepItem
from zeus.serving.rule import Vector
from zeus.serving.source import Timeline


@dataclass(frozen=True, slots=True)
class Costs:
    """What features cost, in time and energy, in the order of `zeus.serving.rule.FEATURES`.

    Attributes:
        energy: Watts of a gap, watts of a busy second, joules per prefill, decode, context token.
        step_s: Seconds of every step.
        token_s: Seconds per prefill, decode and context token.
        spread: Relative standard deviation of a request's own token costs about these
            (log-normal): what no rule can know.
    """

    energy: Vector = (90.0, 260.0, 0.02, 0.15, 1e-5)
    step_s: float = 0.006
    token_s: tuple[float, float, float] = (2e-5, 1e-4, 2e-9)
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of the engine.

    Attributes:
        requests: How many.
        rate_per_s: They arrive by a Poisson process of this rate.
        prompt: Least and greatest prompt, log-uniform, in tokens.
        output: Least and greatest number of tokens generated, log-uniform.
        seats: Requests in a batch.
        chunk: Prompt tokens computed in a step.
        cached: Probability that half of a prompt is found in a cache.
        cancelled: Probability that a request is cancelled half-way.
        preempted: Probability that a request is put back half-way and computed again.
        drafts: Tokens drafted per decode step; each is accepted with probability 0.6 as long as
            those before it were.
    """

    requests: int = 200
    rate_per_s: float = 4.0
    prompt: tuple[int, int] = (16, 1024)
    output: tuple[int, int] = (8, 256)
    seats: int = 16
    chunk: int = 512
    cached: float = 0.0
    cancelled: float = 0.0
    preempted: float = 0.0
    drafts: int = 0


@dataclass(slots=True)
class Truth:
    """What a request truly cost, in joules, and how it ended."""

    prefill_j: float = 0.0
    decode_j: float = 0.0
    end_s: float = 0.0
    reason: str = "finished"

    @property
    def energy_j(self) -> float:
        """Prefill and decode."""
        return self.prefill_j + self.decode_j


@dataclass(slots=True)
class Simulation:
    """A run: its steps, what requests and gaps truly cost, and the energy over time.

    Attributes:
        steps: In order.
        truth: By request.
        preemptions: (after which step, request).
        gap_w: Power while there are no steps.
        gap_j: Energy of that time.
        times: Seconds at which the power changes, from 0.
        joules: True energy up to each of `times`.
    """

    steps: list[StepEvent] = field(default_factory=list)
    truth: dict[str, Truth] = field(default_factory=dict)
    preemptions: list[tuple[int, str]] = field(default_factory=list)
    gap_w: float = 0.0
    gap_j: float = 0.0
    times: list[float] = field(default_factory=lambda: [0.0])
    joules: list[float] = field(default_factory=lambda: [0.0])

    def energy(self, at_s: float) -> float:
        """True energy from 0 to a time. Before and after the run nothing but gaps."""
        if at_s <= 0:
            return self.gap_w * at_s
        if at_s > self.times[-1]:
            return self.joules[-1] + self.gap_w * (at_s - self.times[-1])
        i = min(max(bisect.bisect_left(self.times, at_s), 1), len(self.times) - 1)
        part = (at_s - self.times[i - 1]) / (self.times[i] - self.times[i - 1])
        return self.joules[i - 1] + part * (self.joules[i] - self.joules[i - 1])

    def exact(self) -> Timeline:
        """A meter without error."""
        return Timeline(zip(self.times, self.joules, strict=True), keep=len(self.times))

    def counter(self, update_s: float, seed: int = 0, poll_s: float = 0.02) -> Timeline:
        """A counter that publishes every `update_s`, read every `poll_s`; both at random phases."""
        rng = random.Random(seed)
        comb, phase = rng.random() * update_s, rng.random() * poll_s
        meter = Timeline(update_s=update_s, keep=1 << 30)
        margin = round((2 * update_s + poll_s) / poll_s)
        for k in range(-2 * margin, math.ceil(self.times[-1] / poll_s) + margin):
            at = k * poll_s + phase
            meter.add(at, self.energy(math.floor((at - comb) / update_s) * update_s + comb))
        return meter


@dataclass(slots=True)
class _Request:
    name: str
    arrival_s: float
    prompt: int
    cached: int
    output: int
    stop: int  # after so many tokens it is cancelled
    preempt: int  # after so many tokens it is put back, once
    factor: float
    computed: int = 0
    made: int = 0
    ready: bool = False

    @property
    def to_compute(self) -> int:
        return self.prompt + self.made - self.cached - self.computed


def simulate(
    load: Load | None = None, costs: Costs | None = None, seed: int = 0, tail_s: float = 1.0
) -> Simulation:
    """Runs the engine until every request is done, and `tail_s` longer."""
    load, costs = load or Load(), costs or Costs()
    rng = random.Random(seed)
    waiting = deque(_requests(load, costs, rng))
    run, now = Simulation(gap_w=costs.energy[0]), 0.0
    run.truth = {r.name: Truth() for r in waiting}
    batch: list[_Request] = []
    while waiting or batch:
        if not batch and waiting[0].arrival_s > now:
            now = _gap(run, costs, now, waiting[0].arrival_s)
        while waiting and len(batch) < load.seats and waiting[0].arrival_s <= now:
            batch.append(waiting.popleft())
        now = _step(run, load, costs, batch, now, rng)
        for request in _put_back(run, batch):
            batch.remove(request)
            waiting.appendleft(replace(request, arrival_s=now))
        batch = [r for r in batch if r.made < min(r.output, r.stop)]
    _gap(run, costs, now, now + tail_s)
    return run


def _requests(load: Load, costs: Costs, rng: random.Random) -> list[_Request]:
    def between(low: int, high: int) -> int:
        return round(math.exp(rng.uniform(math.log(low), math.log(high))))

    out, at = [], 0.0
    sigma = math.sqrt(math.log(1 + costs.spread**2))
    for i in range(load.requests):
        at += rng.expovariate(load.rate_per_s)
        prompt, output = between(*load.prompt), between(*load.output)
        out.append(
            _Request(
                name=f"r{i}",
                arrival_s=at,
                prompt=prompt,
                cached=prompt // 2 if rng.random() < load.cached else 0,
                output=output,
                stop=max(1, output // 2) if rng.random() < load.cancelled else output,
                preempt=max(1, output // 2) if rng.random() < load.preempted else 0,
                factor=math.exp(rng.gauss(-sigma * sigma / 2, sigma)),
            )
        )
    return out


def _step(
    run: Simulation,
    load: Load,
    costs: Costs,
    batch: list[_Request],
    now: float,
    rng: random.Random,
) -> float:
    """Runs one step over the batch; returns its end."""
    items, left = [], load.chunk
    for r in batch:
        if r.ready:
            items.append((r, _decode(r, load, rng)))
        elif left > 0:
            tokens = min(left, r.to_compute)
            left -= tokens
            items.append((r, _prefill(r, tokens)))
    counts = [
        (i.tokens * (i.phase == "prefill"), i.tokens * (i.phase == "decode"), i.context_tokens)
        for _, i in items
    ]
    totals = [sum(count[k] for count in counts) for k in range(3)]
    length = costs.step_s + sum(s * n for s, n in zip(costs.token_s, totals, strict=True))
    end, energy = now + length, 0.0
    for (r, item), count in zip(items, counts, strict=True):
        own = r.factor * sum(j * n for j, n in zip(costs.energy[2:], count, strict=True))
        own += costs.energy[1] * length / len(items)
        truth = run.truth[r.name]
        if item.phase == "prefill":
            truth.prefill_j += own
        else:
            truth.decode_j += own
        truth.end_s = end
        truth.reason = "cancelled" if r.made >= r.stop < r.output else "finished"
        energy += own
    run.steps.append(StepEvent(now, end, tuple(item for _, item in items)))
    run.times.append(end)
    run.joules.append(run.joules[-1] + energy)
    return end


def _prefill(r: _Request, tokens: int) -> StepItem:
    first = r.computed == 0
    begin = r.cached + r.computed
    r.computed += tokens
    r.ready = r.to_compute == 0
    sampled = int(r.ready and r.made == 0)
    r.made += sampled
    context = tokens * begin + tokens * (tokens + 1) // 2
    return StepItem(r.name, "prefill", tokens, context, sampled, r.cached if first else 0)


def _decode(r: _Request, load: Load, rng: random.Random) -> StepItem:
    tokens, accepted = 1 + load.drafts, 0
    while accepted < load.drafts and rng.random() < 0.6:
        accepted += 1
    received = min(1 + accepted, r.output - r.made)
    context = tokens * (r.prompt + r.made) + tokens * (tokens - 1) // 2
    r.made += received
    return StepItem(r.name, "decode", tokens, context, received)


def _put_back(run: Simulation, batch: list[_Request]) -> list[_Request]:
    out = [r for r in batch if 0 < r.preempt <= r.made < min(r.output, r.stop)]
    for r in out:
        r.preempt, r.computed, r.ready = 0, 0, False
        run.preemptions.append((len(run.steps) - 1, r.name))
    return out


def _gap(run: Simulation, costs: Costs, begin_s: float, end_s: float) -> float:
    energy = costs.energy[0] * (end_s - begin_s)
    run.gap_j += energy
    run.times.append(end_s)
    run.joules.append(run.joules[-1] + energy)
    return end_s
