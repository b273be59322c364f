"""The ledger against engines whose energy is known: right, as sure as it says, and not vaguer."""

import math
import statistics
from dataclasses import dataclass, field

import pytest

from zeus.serving import Account, Ledger, Timeline, Totals
from zeus.serving.simulator import Costs, Load, Simulation, simulate

SEEDS = range(12)


def run(sim: Simulation, source: Timeline, **options: object) -> tuple[list[Account], Totals]:
    """Tells a ledger all that the simulated engine did."""
    ledger = Ledger(source, begin_s=0.0, **options)  # type: ignore[arg-type]
    ends: dict[float, list[tuple[str, str]]] = {}
    for name, truth in sim.truth.items():
        ends.setdefault(truth.end_s, []).append((name, truth.reason))
    for k, step in enumerate(sim.steps):
        ledger.step(step)
        for after, name in sim.preemptions:
            if after == k:
                ledger.preempt(name)
        for name, reason in ends.get(step.end_s, ()):
            ledger.finish(name, reason=reason)
    totals = ledger.close(sim.times[-1])
    accounts = list(ledger.accounts())
    assert {a.request_id for a in accounts} == set(sim.truth)
    assert sum(a.energy_nj for a in accounts) == totals.closed_nj
    assert totals.closed_nj + totals.idle_nj == sum(totals.device_nj.values())
    assert totals.open_nj == 0
    return accounts, totals


@dataclass
class Errors:
    """Over many requests: errors by stated uncertainty, by truth, and stated u by truth."""

    z: list[float] = field(default_factory=list)
    relative: list[float] = field(default_factory=list)
    width: list[float] = field(default_factory=list)

    def coverage(self, k: float) -> float:
        return sum(abs(z) <= k for z in self.z) / len(self.z)


def errors(load: Load, costs: Costs, update_s: float, **options: object) -> Errors:
    out = Errors()
    for seed in SEEDS:
        sim = simulate(load, costs, seed)
        source = sim.counter(update_s, seed) if update_s else sim.exact()
        for account in run(sim, source, **options)[0]:
            true_j = sim.truth[str(account.request_id)].energy_j
            error = account.energy_j - true_j
            out.z.append(error / account.u_j)
            out.relative.append(error / true_j)
            out.width.append(account.u_j / true_j)
    return out


def test_a_meter_without_error_gives_every_request_its_true_energy() -> None:
    sim = simulate(seed=1)
    accounts, totals = run(sim, sim.exact())
    for account in accounts:
        truth = sim.truth[str(account.request_id)]
        assert account.prefill_j == pytest.approx(truth.prefill_j, rel=1e-5)
        assert account.decode_j == pytest.approx(truth.decode_j, rel=1e-5)
        assert account.rule == "fitted"
    assert totals.gap_nj * 1e-9 == pytest.approx(sim.gap_j, rel=1e-5)
    assert totals.coefficients is not None
    assert totals.coefficients.values == pytest.approx(Costs().energy, rel=1e-5)


def test_energies_from_a_slow_counter_are_as_right_as_they_say_and_not_vaguer() -> None:
    # A counter that publishes every 100 ms, steps of about 8 ms, blocks of 1 s.
    found = errors(Load(), Costs(), 0.1)
    assert found.coverage(2) >= 0.95
    assert 0.68 <= found.coverage(1) <= 0.97  # a huge interval would hold everything
    assert statistics.median(found.width) < 0.02
    assert math.sqrt(statistics.mean(r * r for r in found.relative)) < 0.03


def test_idle_energy_is_as_right_as_it_says() -> None:
    z, width = [], []
    for seed in range(20):
        sim = simulate(Load(requests=100, rate_per_s=2.0), Costs(), seed)
        _, totals = run(sim, sim.counter(0.1, seed))
        z.append((totals.gap_nj * 1e-9 - sim.gap_j) / totals.idle_u_j)
        width.append(totals.idle_u_j / sim.gap_j)
    assert sum(abs(x) < 2 for x in z) >= 19
    assert statistics.median(width) < 0.05


def test_every_way_of_a_request_is_divided_as_rightly() -> None:
    load = Load(cached=0.2, cancelled=0.1, preempted=0.1, drafts=2)
    found = errors(load, Costs(), 0.1)
    assert found.coverage(2) >= 0.95
    assert statistics.median(found.width) < 0.03


def test_requests_that_cost_what_no_rule_can_know_have_wider_intervals() -> None:
    # Token costs that scatter by 30 % from request to request, unknown to the ledger.
    found = errors(Load(), Costs(spread=0.3), 0.1)
    assert found.coverage(2) >= 0.90
    assert 0.03 < statistics.median(found.width) < 0.2


def test_plain_tokens_are_rough_but_say_so() -> None:
    found = errors(Load(requests=80), Costs(), 0.1, rule="tokens")
    assert found.coverage(2) >= 0.95
    assert statistics.median(map(abs, found.relative)) > 0.1


def test_requests_before_the_first_fit_are_held_back_for_it() -> None:
    sim = simulate(seed=2)
    held, _ = run(sim, sim.exact())
    at_once, _ = run(sim, sim.exact(), hold_blocks=0)
    assert {a.rule for a in held} == {"fitted"}
    assert at_once[0].rule == "tokens"


def test_idle_power_apart_is_found_without_being_drawn_alone() -> None:
    # Dynamic energy only: idle power times all time is idle, of which gaps are the smaller part.
    sim = simulate(seed=3)
    costs = Costs().energy
    accounts, totals = run(sim, sim.exact(), idle="static", idle_power_w=(costs[0], 0.01))
    assert totals.gap_nj * 1e-9 == pytest.approx(costs[0] * sim.times[-1], rel=1e-3)
    assert sum(a.energy_j for a in accounts) == pytest.approx(
        sim.joules[-1] - costs[0] * sim.times[-1], rel=1e-3
    )


def test_the_truth_of_a_simulation_adds_up() -> None:
    sim = simulate(Load(preempted=0.2, cancelled=0.2, drafts=3, cached=0.5), Costs(spread=0.5), 5)
    requests = math.fsum(truth.energy_j for truth in sim.truth.values())
    assert requests + sim.gap_j == pytest.approx(sim.joules[-1], rel=1e-9)
