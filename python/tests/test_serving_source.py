"""Energy sources: counters that publish seldom, that fail, that fall; sampled power; clocks."""

from __future__ import annotations

import gc
import math
import os
import random
import statistics
import threading
import time
from collections.abc import Callable

import pytest

from zeus.serving import (
    Counter,
    EnergySource,
    Ledger,
    SampledPower,
    StepEvent,
    StepItem,
    Timeline,
    gpu_counters,
    local_counters,
    local_sources,
    on_clock,
)


def test_energy_between_exact_readings_is_interpolated() -> None:
    source = Timeline([(0.0, 5.0), (1.0, 105.0), (3.0, 105.0)])
    assert source.energy(0.25, 2.0) == (75.0, 0.0)


def test_what_readings_do_not_reach_around_is_not_told() -> None:
    source = Timeline([(1.0, 0.0), (2.0, 1.0)])
    assert source.energy(0.5, 1.5) is None
    assert source.energy(1.5, 2.5) is None
    assert Timeline().energy(0.0, 1.0) is None


def test_a_counter_that_begins_anew_is_not_told_across_its_fall() -> None:
    source = Timeline([(0.0, 100.0), (1.0, 200.0), (2.0, 3.0), (3.0, 103.0)])
    assert source.energy(0.0, 1.0) == (100.0, 0.0)
    assert source.energy(0.5, 2.5) is None
    assert source.energy(2.0, 3.0) == (100.0, 0.0)


def test_readings_that_were_lost_are_a_gap() -> None:
    source = Timeline([(0.0, 0.0), (1.0, 10.0)])
    source.interrupt()
    source.add(2.0, 20.0)
    source.add(3.0, 30.0)
    assert source.energy(0.0, 1.0) == (10.0, 0.0)
    assert source.energy(0.5, 1.5) is None
    assert source.energy(2.0, 3.0) == (10.0, 0.0)


def test_a_stretch_that_begins_where_a_gap_ends_knows_nothing_of_before_it() -> None:
    def told(before: list[tuple[float, float]]) -> tuple[float, float] | None:
        source = Timeline(before, update_s=0.1)
        if before:
            source.interrupt()
        for k in range(20):
            source.add(10 + k * 0.1, 10.0 * k)
        return source.energy(10.0 - 0.05, 11.0 - 0.05)

    assert told([(0.0, 1e6), (1.0, 2e6)]) == told([(0.0, -1.0)])


@pytest.mark.parametrize("reading", [(1.0, 2.0), (0.5, 2.0), (2.0, math.nan), (math.inf, 1.0)])
def test_a_reading_that_is_not_newer_or_no_number_is_refused(reading: tuple[float, float]) -> None:
    source = Timeline([(1.0, 1.0)])
    with pytest.raises(ValueError, match="reading"):
        source.add(*reading)


def test_a_counters_uncertainty_covers_random_windows_and_is_not_huge() -> None:
    # A counter publishes every 100 ms and is polled every 20 ms; the load switches between 60 W and
    # 300 W at random, 0.3 s on average. Windows of 0.5 s to 3 s against the exact integral.
    rng = random.Random(1)
    times, joules = [0.0], [0.0]
    while times[-1] < 300:
        length = rng.expovariate(1 / 0.3)
        joules.append(joules[-1] + length * (60.0 if len(times) % 2 else 300.0))
        times.append(times[-1] + length)
    truth = Timeline(zip(times, joules, strict=True))

    def exact(at: float) -> float:
        told = truth.energy(0.0, at)
        assert told is not None
        return told[0]

    source = Timeline(update_s=0.1)
    for k in range(14_000):
        at = k * 0.02 + 0.003
        source.add(at, exact(max(0.0, math.floor((at - 0.07) / 0.1) * 0.1 + 0.07)))
    z, width = [], []
    for _ in range(1000):
        begin = rng.uniform(1, 270)
        end = begin + rng.uniform(0.5, 3)
        told = source.energy(begin, end)
        assert told is not None
        z.append((told[0] - (exact(end) - exact(begin))) / told[1])
        width.append(told[1] / told[0])
    assert sum(abs(x) < 2 for x in z) / len(z) >= 0.95
    assert statistics.median(width) < 0.02
    assert statistics.pstdev(z) > 0.3


def test_a_polled_counter_measures_and_stops() -> None:
    begin = time.monotonic()
    source = Counter(lambda: 100 * (time.monotonic() - begin), period_s=0.005, update_s=0.001)
    assert isinstance(source, EnergySource)
    time.sleep(0.2)
    source.sample()  # however busy the machine is
    source.stop()
    told = source.energy(begin + 0.05, begin + 0.15)
    assert told is not None
    assert told[0] == pytest.approx(10.0, rel=0.1)
    assert not any(t.name == "zeus-serving-counter" for t in threading.enumerate())


def test_a_counter_that_nobody_holds_ends_its_thread() -> None:
    source = Counter(lambda: time.monotonic(), period_s=0.001)
    thread = source._thread
    del source
    gc.collect()
    thread.join(timeout=30)
    assert not thread.is_alive()


def test_the_child_of_a_fork_neither_hangs_nor_ends_the_parents_counter() -> None:
    begin = time.monotonic()
    source = Counter(lambda: time.monotonic() - begin, period_s=0.001, update_s=0.001)
    ledger = Ledger(source, rule="tokens")
    source._lock.acquire()  # as if the thread were just storing a reading
    ledger._lock.acquire()
    child = os.fork()
    if child == 0:
        told = source.energy(begin, begin + 0.01)
        ledger.totals()
        source.stop()
        os._exit(0 if told is None else 1)
    source._lock.release()
    ledger._lock.release()
    for _ in range(3000):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.01)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        raise AssertionError("the child hangs")
    assert status == 0
    time.sleep(0.1)
    source.sample()
    source.stop()
    assert source.energy(begin + 0.02, begin + 0.05) is not None


def test_a_counter_that_fails_keeps_why() -> None:
    def lost() -> float:
        raise OSError("GPU is lost")

    source = Counter(lost, period_s=0.005)
    source.stop()
    assert str(source.failures[0]) == "GPU is lost"
    assert source.energy(0.0, 1.0) is None


STEP = """
[[gpu]]
model = "NVIDIA Square"
power = { kind = "square", low = 100, high = 300, period = "400ms" }
energy = { update = "20ms" }
power_instant = { update = "5ms", kind = "instant" }
"""


def test_the_sampled_power_of_a_monitor_is_a_source(simulated: Callable[[str], None]) -> None:
    from zeus.monitor import PowerMonitor

    simulated(STEP)
    monitor = PowerMonitor(update_period=0.01)
    source = SampledPower(monitor, 0)
    time.sleep(0.1)
    ledger = Ledger(on_clock(source, "monotonic"), rule="tokens", block_s=0.25)
    begin = time.monotonic()
    time.sleep(0.8)
    end = time.monotonic()
    time.sleep(0.2)
    ledger.step(StepEvent(begin, end, [StepItem("a", "decode", 1)]))
    totals = ledger.close()
    monitor.stop()
    (account,) = ledger.accounts()
    # Two periods of the square are 200 W on average, wherever they begin.
    assert abs(account.energy_j - 200 * (end - begin)) < 4 * account.u_j + 200 * (end - begin - 0.8)
    assert account.u_j < 32
    assert totals.energy_nj == account.energy_nj
    assert source.energy(time.time() - 3600, time.time()) is None
    with pytest.raises(ValueError, match="GPU 1 is not among"):
        SampledPower(monitor, 1)


def test_the_gpus_of_a_monitor_are_sources(simulated: Callable[[str], None]) -> None:
    from zeus.monitor import ZeusMonitor

    simulated(STEP)
    sources = gpu_counters(ZeusMonitor(cpu_indices=[]), update_s=0.02, period_s=0.005)
    assert list(sources) == ["gpu0"]
    time.sleep(0.1)
    begin = time.monotonic()
    time.sleep(0.8)
    end = time.monotonic()
    time.sleep(0.1)
    sources["gpu0"].sample()
    sources["gpu0"].stop()
    told = sources["gpu0"].energy(begin, end)
    assert told is not None
    assert abs(told[0] - 200 * (end - begin)) < 4 * told[1] + 200 * (end - begin - 0.8)


def test_a_source_by_the_wall_clock_serves_a_monotonic_ledger() -> None:
    now = time.time()
    source = Timeline([(now - 100, 0.0), (now + 100, 20_000.0)], clock="time")
    ledger = Ledger(on_clock(source, "monotonic"), rule="tokens")
    begin = time.monotonic()
    ledger.step(StepEvent(begin - 1, begin, [StepItem("a", "decode", 1)]))
    assert ledger.close().energy_j == pytest.approx(100.0, rel=1e-3)


def test_independent_errors_add_and_shared_edges_cancel() -> None:
    # A request alone through n blocks: u sqrt(n) for power that is integrated block by block, and
    # the two outer edges of a counter, u, whatever n is.
    class Source:
        clock = "monotonic"

        reach_s = math.inf

        def __init__(self, shared: bool) -> None:
            self.shared_edges = shared

        def energy(self, begin_s: float, end_s: float) -> tuple[float, float]:
            return 100.0 * (end_s - begin_s), 2.0

    for shared, expected in ((False, 2 * math.sqrt(16)), (True, 2.0)):
        ledger = Ledger(Source(shared), rule="tokens", begin_s=0.0)  # type: ignore[arg-type]
        for k in range(16):
            ledger.step(StepEvent(k, k + 1, [StepItem("a", "decode", 1)]))
        ledger.finish("a")
        totals = ledger.close()
        assert totals.device_u_j["device"] == pytest.approx(expected)
        (account,) = ledger.accounts()
        assert account.u_j == pytest.approx(expected)


def test_the_counters_of_this_machine_are_sources(simulated: Callable[[str], None]) -> None:
    simulated("constant")  # one GPU of exactly 100 W
    sources = local_sources()
    assert list(sources) == ["gpu0"]
    time.sleep(0.35)
    begin = time.monotonic()
    time.sleep(0.5)
    end = time.monotonic()
    time.sleep(0.35)
    sources["gpu0"].sample()
    sources["gpu0"].stop()
    told = sources["gpu0"].energy(begin, end)
    assert told is not None
    energy, u = told
    assert abs(energy - 100 * (end - begin)) < 4 * u
    assert u < 5.0


def test_a_device_that_is_not_there_is_said(simulated: Callable[[str], None]) -> None:
    simulated("constant")
    with pytest.raises(IndexError, match="no gpu 3: 1 can be seen"):
        local_counters([3])
    with pytest.raises(RuntimeError, match="no energy counter can be read here"):
        local_counters([])
