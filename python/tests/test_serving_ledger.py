"""The ledger: exact sums, all ways of a request, devices that fail, threads, bounded memory."""

import asyncio
import itertools
import json
import threading
from collections.abc import Callable

import pytest

from zeus.serving import (
    Account,
    Coefficients,
    Ledger,
    StepEvent,
    StepItem,
    Timeline,
    Totals,
    on_clock,
    table,
)


def constant(watts: float, end_s: float = 1000.0) -> Timeline:
    return Timeline([(-1.0, 0.0), (end_s, watts * (end_s + 1))])


def prefill(name: object, tokens: int, **more: int) -> StepItem:
    return StepItem(name, "prefill", tokens, **more)


def decode(name: object, tokens: int = 1, **more: int) -> StepItem:
    return StepItem(name, "decode", tokens, **more)


def tokens_ledger(watts: float = 100.0, **more: object) -> Ledger:
    return Ledger(constant(watts), rule="tokens", begin_s=0.0, **more)  # type: ignore[arg-type]


def closed(ledger: Ledger, at_s: float | None = None) -> tuple[dict[object, Account], Totals]:
    totals = ledger.close(at_s)
    assert sum(totals.device_nj.values()) == totals.closed_nj + totals.open_nj + totals.idle_nj
    assert sum(totals.device_idle_nj.values()) == totals.idle_nj
    return {account.request_id: account for account in ledger.accounts()}, totals


def test_one_request_bears_its_steps_and_gaps_are_idle() -> None:
    ledger = tokens_ledger(100.0)
    ledger.step(StepEvent(0.2, 0.5, [prefill("a", 30)]))
    ledger.step(StepEvent(0.5, 0.8, [decode("a")]))
    ledger.finish("a")
    accounts, totals = closed(ledger, 1.0)
    assert totals.energy_nj == 100_000_000_000
    assert totals.idle_nj == 40_000_000_000
    assert accounts["a"].energy_nj == 60_000_000_000
    assert accounts["a"].tokens == 1
    assert accounts["a"].joules_per_token == pytest.approx(60.0)


def test_given_coefficients_divide_a_batch_by_their_closed_form() -> None:
    # Shares 2 x 30 + 1 x 0 and 0 + 4 x 10 joules of a block that used 50: 30 J and 20 J.
    rule = Coefficients((0.0, 0.0, 2.0, 4.0, 0.0))
    ledger = Ledger(constant(50.0), rule=rule, begin_s=0.0)
    ledger.step(StepEvent(0.0, 1.0, [prefill("a", 30), decode("b", 10)]))
    accounts, _ = closed(ledger)
    assert accounts["a"].prefill_nj == 30_000_000_000
    assert accounts["b"].decode_nj == 20_000_000_000
    assert accounts["a"].rule == "given"


def test_the_uncertainty_of_coefficients_reaches_the_account() -> None:
    # w = (t p) / (t p + d) with t = 1 +- 0.1, p = d: u(E) = E / 4 * 0.1 (JCGM 100:2008, 5.1.2).
    rows = [[0.0] * 5 for _ in range(5)]
    rows[2][2] = 0.01
    rule = Coefficients((0.0, 0.0, 1.0, 1.0, 0.0), tuple(map(tuple, rows)))  # type: ignore[arg-type]
    ledger = Ledger(constant(100.0), rule=rule, begin_s=0.0)
    ledger.step(StepEvent(0.0, 1.0, [prefill("a", 10), decode("b", 10)]))
    accounts, _ = closed(ledger)
    assert accounts["a"].u_rule_j == pytest.approx(2.5)
    assert accounts["b"].u_rule_j == pytest.approx(2.5)


def test_the_uncertainty_of_coefficients_is_never_more_than_the_range_of_shares() -> None:
    # Coefficients known to nothing: the share of 1/2 lies between 0 and 1, a rectangle.
    rows = [[0.0] * 5 for _ in range(5)]
    rows[2][2] = 1e6
    rule = Coefficients((0.0, 0.0, 1.0, 1.0, 0.0), tuple(map(tuple, rows)))  # type: ignore[arg-type]
    ledger = Ledger(constant(100.0), rule=rule, begin_s=0.0)
    ledger.step(StepEvent(0.0, 1.0, [prefill("a", 10), decode("b", 10)]))
    accounts, _ = closed(ledger)
    assert accounts["a"].u_rule_j == pytest.approx(50 / 3**0.5)


def test_what_rounding_leaves_is_carried_to_the_next_block() -> None:
    ledger = tokens_ledger(1.4e-9)  # 1.4 nJ in each of a thousand blocks
    ledger.step(StepEvent(0.0, 1000.0, [decode("a")]))
    for k in range(1, 1001):
        ledger.settle(k)
    accounts, _ = closed(ledger)
    assert accounts["a"].energy_nj == 1400


def test_plain_tokens_say_how_wrong_they_may_be() -> None:
    # Seats share equally, tokens 3 : 1. Truth lies between 1/2 and 3/4 of the energy.
    ledger = tokens_ledger(100.0)
    ledger.step(StepEvent(0.0, 1.0, [decode("a", 3), decode("b", 1)]))
    accounts, _ = closed(ledger)
    assert accounts["a"].energy_j == 75.0
    assert accounts["a"].u_j == pytest.approx(25 / 3**0.5)


def test_speculation_pays_for_rejected_drafts_and_counts_accepted_ones() -> None:
    ledger = tokens_ledger()
    ledger.step(StepEvent(0, 1, [decode("a", 5, output_tokens=2), decode("b", 5, output_tokens=5)]))
    accounts, _ = closed(ledger)
    assert accounts["a"].energy_nj == accounts["b"].energy_nj
    assert (accounts["a"].decode_tokens, accounts["a"].tokens) == (5, 2)
    assert accounts["a"].joules_per_token == pytest.approx(25.0)


def test_a_cached_prefix_is_counted_and_costs_nothing() -> None:
    ledger = tokens_ledger()
    ledger.step(StepEvent(0, 1, [prefill("hit", 10, cached_tokens=90), prefill("miss", 100)]))
    accounts, _ = closed(ledger)
    assert accounts["miss"].energy_nj == pytest.approx(10 * accounts["hit"].energy_nj, abs=10)
    assert accounts["hit"].cached_tokens == 90


def test_a_prompt_in_chunks_is_one_account() -> None:
    ledger = tokens_ledger()
    for k in range(4):
        ledger.step(StepEvent(k, k + 1, [prefill("a", 64, output_tokens=int(k == 3))]))
    accounts, _ = closed(ledger)
    assert accounts["a"].prefill_tokens == 256
    assert accounts["a"].prefill_nj == 400_000_000_000
    assert accounts["a"].tokens == 1


def test_a_preempted_request_pays_for_what_it_computes_again() -> None:
    ledger = tokens_ledger()
    ledger.step(StepEvent(0, 1, [prefill("a", 8)]))
    ledger.preempt("a")
    ledger.step(StepEvent(2, 3, [prefill("a", 8)]))
    accounts, totals = closed(ledger)
    assert accounts["a"].energy_nj == 200_000_000_000
    assert accounts["a"].prefill_tokens == 16
    assert "preempted" in accounts["a"].flags
    assert totals.idle_nj == 100_000_000_000


def test_a_cancelled_request_keeps_what_it_used() -> None:
    ledger = tokens_ledger()
    ledger.step(StepEvent(0, 1, [prefill("a", 8), decode("b")]))
    ledger.cancel("a")
    accounts, _ = closed(ledger)
    assert accounts["a"].reason == "cancelled"
    assert accounts["a"].energy_nj > 0
    assert accounts["a"].joules_per_token is None
    assert accounts["b"].reason == "open"


def test_steps_without_a_request_are_idle_but_told_apart() -> None:
    ledger = tokens_ledger()
    ledger.step(StepEvent(0, 1))
    ledger.step(StepEvent(1, 2, [decode("a")]))
    accounts, totals = closed(ledger, 4.0)
    assert totals.empty_nj == 100_000_000_000
    assert totals.gap_nj == 200_000_000_000
    assert accounts["a"].energy_nj == 100_000_000_000


def test_overlapping_steps_share_their_time() -> None:
    # Alone 1 s each and together 1 s: 1.5 s of 100 W each, whatever their order of arrival.
    rule = Coefficients((0.0, 1.0, 0.0, 0.0, 0.0))
    ledger = Ledger(constant(100.0), rule=rule, begin_s=0.0, block_s=10.0)
    ledger.step(StepEvent(1, 3, [decode("b")]))
    ledger.step(StepEvent(0, 2, [decode("a")]))
    accounts, totals = closed(ledger)
    assert accounts["a"].energy_nj == accounts["b"].energy_nj == 150_000_000_000
    assert totals.idle_nj == 0


def test_a_step_longer_than_blocks_is_divided_by_time() -> None:
    ledger = tokens_ledger(block_s=0.3)
    ledger.step(StepEvent(0.0, 10.0, [prefill("a", 7), decode("b", 3)]))
    accounts, _ = closed(ledger)
    assert accounts["a"].energy_nj == pytest.approx(700_000_000_000, abs=100)


def test_steps_without_duration_bear_energy_by_their_tokens() -> None:
    ledger = tokens_ledger()
    ledger.step(StepEvent(1.0, 1.0, [decode("a")]))
    ledger.step(StepEvent(1.0, 2.0, [decode("b")]))
    accounts, totals = closed(ledger)
    assert accounts["a"].energy_nj + accounts["b"].energy_nj + totals.idle_nj == totals.energy_nj


def test_idle_power_apart_leaves_requests_what_is_above() -> None:
    # accuracy 5.7: E - P_idle L, with L u(P_idle) among its uncertainties.
    ledger = Ledger(
        constant(300.0), rule="tokens", idle="static", idle_power_w=(100.0, 2.0), begin_s=0.0
    )
    ledger.step(StepEvent(0, 1, [decode("a")]))
    accounts, totals = closed(ledger)
    assert accounts["a"].energy_j == pytest.approx(200.0)
    assert totals.idle_j == pytest.approx(100.0)
    assert totals.idle_u_j == pytest.approx(2.0)


def test_idle_power_apart_without_an_idle_power_is_refused() -> None:
    with pytest.raises(ValueError, match="idle_power_w"):
        Ledger(constant(1.0), idle="static")


# field failure 152
def test_eight_models_on_eight_gpus_are_each_charged_their_own() -> None:
    ledgers = [tokens_ledger(100.0 * (k + 1)) for k in range(8)]
    for ledger in ledgers:
        ledger.step(StepEvent(0, 1, [decode("model")]))
    energies = [closed(ledger)[0]["model"].energy_nj for ledger in ledgers]
    assert energies == [100_000_000_000 * (k + 1) for k in range(8)]
    assert sum(energies) == 3_600_000_000_000


def test_a_batch_on_two_devices_bears_both_and_each_adds_up() -> None:
    sources = {"gpu0": constant(100.0), "gpu1": constant(33.3)}
    ledger = Ledger(sources, rule="tokens", begin_s=0.0)
    ledger.step(StepEvent(0, 0.7, [decode("a"), decode("b"), decode("c")]))
    accounts, totals = closed(ledger, 1.0)
    assert sum(a.energy_nj for a in accounts.values()) == totals.requests_nj
    assert totals.device_nj == {"gpu0": 100_000_000_000, "gpu1": 33_300_000_000}
    assert totals.device_idle_nj["gpu1"] == pytest.approx(0.3 * 33.3e9, abs=1)


def test_a_lost_device_is_said_and_the_other_is_divided() -> None:
    lost = Timeline([(-1.0, 0.0), (1.0, 200.0)])
    ledger = Ledger({"gpu0": constant(100.0), "gpu1": lost}, rule="tokens", begin_s=0.0)
    for k in range(3):
        ledger.step(StepEvent(k, k + 1, [decode(f"r{k}")]))
        ledger.finish(f"r{k}")
    accounts, totals = closed(ledger)
    assert accounts["r0"].energy_nj == 200_000_000_000
    assert accounts["r1"].energy_nj == 100_000_000_000
    assert accounts["r1"].flags == ("missing",)
    assert totals.unmeasured_s == {"gpu1": 2.0}
    assert "could not be read for 2.000 s" in table(accounts.values(), totals)


def test_a_request_that_nobody_measured_has_no_energy_not_zero() -> None:
    ledger = Ledger(Timeline([(0.0, 0.0), (1.0, 1.0)]), rule="tokens", begin_s=0.0)
    ledger.step(StepEvent(5, 6, [decode("a")]))
    accounts, totals = closed(ledger)
    assert accounts["a"].to_dict()["energy_j"] is None
    assert accounts["a"].joules_per_token is None
    assert "unmeasured" in accounts["a"].flags
    assert totals.unmeasured_s["device"] == 5.0


def test_blocks_wait_for_a_source_that_lags() -> None:
    source = Timeline([(-1.0, 0.0)])
    ledger = Ledger(source, rule="tokens", begin_s=0.0, settle_s=0.0)
    for k in range(8):
        if k >= 3:  # three seconds behind
            source.add(k - 3.0, 100.0 * (k - 2))
        ledger.step(StepEvent(k, k + 1, [decode("a")]))
    source.add(9.0, 1000.0)
    accounts, totals = closed(ledger)
    assert accounts["a"].energy_nj == 800_000_000_000
    assert not totals.unmeasured_s


def test_blocks_do_not_wait_for_ever_for_a_source_that_is_gone() -> None:
    ledger = Ledger(Timeline(), rule="tokens", begin_s=0.0, settle_s=0.0, patience_s=5.0)
    for k in range(100):
        ledger.step(StepEvent(k, k + 1, [decode("a")]))
    assert len(ledger._steps) <= 7
    assert ledger.totals().unmeasured_s["device"] == pytest.approx(94, abs=1)


def test_a_step_told_too_late_is_flagged_and_the_sums_hold() -> None:
    ledger = tokens_ledger(settle_s=0.5)
    ledger.step(StepEvent(0, 4, [decode("a")]))
    ledger.step(StepEvent(0.1, 0.2, [decode("late", 9)]))
    accounts, totals = closed(ledger)
    assert accounts["late"].flags == ("late", "unmeasured")
    assert accounts["late"].tokens == 9
    assert totals.late_steps == 1


def test_a_name_used_again_is_another_request() -> None:
    ledger = tokens_ledger()
    for k in range(2):
        ledger.step(StepEvent(k, k + 1, [decode("same")]))
        ledger.finish("same")
    ledger.close()
    assert [a.energy_nj for a in ledger.accounts()] == [100_000_000_000] * 2


def test_a_request_that_is_not_in_flight_cannot_be_finished_or_preempted() -> None:
    ledger = tokens_ledger()
    with pytest.raises(KeyError, match="'x'"):
        ledger.finish("x")
    with pytest.raises(KeyError, match="'x'"):
        ledger.preempt("x")


@pytest.mark.parametrize(
    "make",
    [
        lambda: StepEvent(1.0, 0.5),
        lambda: StepEvent(float("nan"), 1.0),
        lambda: StepItem("a", "decode", -1),
        lambda: StepItem("a", "training", 1),  # type: ignore[arg-type]
        lambda: Ledger({}),
        lambda: tokens_ledger(block_s=0.0),
        lambda: Ledger(constant(1.0), rule="fair"),  # type: ignore[arg-type]
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        make()


def test_another_clock_is_refused_with_the_way_out() -> None:
    source = Timeline([(0.0, 0.0), (1.0, 1.0)], clock="time")
    with pytest.raises(ValueError, match="on_clock"):
        Ledger(source)
    assert Ledger(on_clock(source, "monotonic")) is not None


def test_memory_is_bounded_and_what_is_dropped_is_counted() -> None:
    ledger = tokens_ledger(keep=10, block_s=0.1, settle_s=0.0)
    for k in range(500):
        ledger.step(StepEvent(k / 10, (k + 1) / 10, [decode(k)]))
        ledger.finish(k)
    assert len(ledger._open) < 20 and len(ledger._steps) < 20 and len(ledger._outbox) <= 10
    _, totals = closed(ledger)
    assert totals.dropped_accounts == 490
    assert totals.requests == 500


def test_a_request_that_nobody_finished_is_abandoned() -> None:
    ledger = tokens_ledger(abandon_s=5.0, settle_s=0.0)
    ledger.step(StepEvent(0, 1, [decode("gone")]))
    for k in range(1, 20):
        ledger.step(StepEvent(k, k + 1, [decode("here")]))
    assert [(a.request_id, a.reason) for a in ledger.accounts()] == [("gone", "abandoned")]


def test_a_source_that_raises_leaves_the_ledger_as_it_was() -> None:
    class Broken(Timeline):
        broken = True

        def energy(self, begin_s: float, end_s: float) -> tuple[float, float] | None:
            if self.broken:
                raise OSError("no route to the meter")
            return super().energy(begin_s, end_s)

    source = Broken([(-1.0, 0.0), (100.0, 10100.0)])
    ledger = Ledger(source, rule="tokens", begin_s=0.0)
    with pytest.raises(OSError, match="no route"):
        ledger.step(StepEvent(0, 3, [decode("a")]))
    source.broken = False
    accounts, _ = closed(ledger)
    assert accounts["a"].energy_nj == 300_000_000_000


def test_callbacks_come_without_a_lock_and_an_error_in_one_loses_no_account() -> None:
    seen: list[Account] = []

    def take(account: Account) -> None:
        seen.append(account)
        ledger.totals()  # would wait for ever if the lock were held
        if len(seen) == 1:
            raise RuntimeError("the caller's own")

    ledger = Ledger(constant(100.0), rule="tokens", begin_s=0.0, on_account=take)
    for name in "abc":
        ledger.step(StepEvent(0, 0.4, [decode(name)]))
        ledger.finish(name)
    with pytest.raises(RuntimeError, match="own"):
        ledger.close()
    ledger.close()
    assert [a.request_id for a in seen] == ["a", "b", "c"]


def test_threads_tell_steps_at_once_and_the_sums_hold() -> None:
    ledger = tokens_ledger(block_s=0.05, settle_s=1e9)

    def engine(name: str) -> None:
        for k in range(200):
            ledger.step(StepEvent(k / 100, (k + 1) / 100, [decode((name, k % 7))]))

    threads = [threading.Thread(target=engine, args=(f"t{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    accounts, totals = closed(ledger)
    assert len(accounts) == 28
    assert sum(a.energy_nj for a in accounts.values()) == totals.energy_nj == 200_000_000_000
    assert totals.tokens == 800


def test_a_ledger_serves_coroutines() -> None:
    async def serve() -> Totals:
        ledger = tokens_ledger(settle_s=1e9)

        async def request(name: int) -> None:
            for k in range(10):
                ledger.step(StepEvent(k / 10, (k + 1) / 10, [decode(name)]))
                await asyncio.sleep(0)
            ledger.finish(name)

        await asyncio.gather(*(request(i) for i in range(8)))
        return closed(ledger)[1]

    totals = asyncio.run(serve())
    assert totals.requests == 8
    assert totals.energy_nj == totals.requests_nj


def test_accounts_and_totals_are_json() -> None:
    ledger = tokens_ledger()
    ledger.step(StepEvent(0, 1, [decode("a")]))
    accounts, totals = closed(ledger)
    assert json.loads(json.dumps(accounts["a"].to_dict()))["energy_j"] == 100.0
    assert json.loads(json.dumps(totals.to_dict()))["devices"]["device"]["energy_nj"] == 10**11
    assert "J/token" in table(accounts.values(), totals)


def test_a_long_pause_is_settled_in_few_blocks() -> None:
    asked: list[tuple[float, float]] = []

    class Source(Timeline):
        def energy(self, begin_s: float, end_s: float) -> tuple[float, float] | None:
            asked.append((begin_s, end_s))
            return super().energy(begin_s, end_s)

    source = Source([(-1.0, 0.0), (1e6, 1e6 + 1)])
    ledger = Ledger(source, rule="tokens", begin_s=0.0)
    ledger.step(StepEvent(0, 1, [decode("a")]))
    ledger.step(StepEvent(36_000, 36_001, [decode("a")]))
    assert len(asked) < 700
    assert all(first[1] == second[0] for first, second in itertools.pairwise(asked))
