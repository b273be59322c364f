"""Phases: the arithmetic against closed forms, simulated machines against their exact energy."""

from __future__ import annotations

import itertools
import json
import math
import random
import statistics
import struct
import sys
import threading
import time
import types

import pytest
from simulated import SQUARE

from zeus.monitor import ZeusMonitor
from zeus.monitor._attribution import Segment, divide, spread, to_nanojoules
from zeus.monitor._curve import counted, integrated

UPDATE_S = 0.1
ONLY_POWER = (
    SQUARE.replace('energy = { update = "20ms", quantum = 0.001 }', "")
    .replace("20ms", "100ms")
    .replace("hopper", "ada")
)


def stretches(pattern: list[tuple[int, float]], end_s: float) -> list[tuple[float, int]]:
    """Edges of a pattern of (phase, seconds) that repeats."""
    edges, t, i = [], 0.0, 0
    while t < end_s:
        phase, seconds = pattern[i % len(pattern)]
        edges.append((t, phase))
        t, i = t + seconds, i + 1
    return edges


def energy(edges, powers_w, begin_s, end_s) -> float:
    """The exact joules of phases of constant power."""
    ends = [t for t, _ in edges[1:]] + [math.inf]
    return math.fsum(
        powers_w[p] * max(0.0, min(end, end_s) - max(t, begin_s))
        for (t, p), end in zip(edges, ends, strict=True)
    )


def divided(edges, powers_w, end_s, update_s=UPDATE_S):
    """What is told of phases of constant power, published every update."""
    knots = [k * update_s for k in range(round(end_s / update_s) + 1)]
    segments = [Segment(a, b, energy(edges, powers_w, a, b)) for a, b in itertools.pairwise(knots)]
    spread(segments, edges, end_s)
    return divide(segments, len(powers_w))


@pytest.mark.parametrize("pattern_s", [(0.7, 0.43), (0.031, 0.0177), (0.0041, 0.0123)])
def test_phases_of_constant_power_are_told_exactly_however_short_they_are(pattern_s):
    powers_w = [0.0, 310.0, 90.0]
    edges = stretches([(1, pattern_s[0]), (2, pattern_s[1])], 8.0)
    shares = divided(edges, powers_w, 8.0)
    for p in (1, 2):
        only = [w if q == p else 0.0 for q, w in enumerate(powers_w)]
        exact = energy(edges, only, 0.0, 8.0)
        assert shares.energy_j[p] == pytest.approx(exact, rel=0.01)
        assert abs(shares.energy_j[p] - exact) <= 2 * shares.u_j[p] + 1e-6 * exact
        assert shares.u_j[p] < 0.02 * exact


def test_phases_in_step_with_the_publications_are_said_to_be_unknown():
    powers_w = [0.0, 300.0, 100.0]
    edges = stretches([(1, UPDATE_S / 2), (2, UPDATE_S / 2)], 8.0)
    shares = divided(edges, powers_w, 8.0)
    # All that can be known is the mean: 800 J each, where the truth is 1200 and 400.
    assert shares.energy_j[1] == pytest.approx(800, rel=0.01)
    assert shares.u_j[1] >= 200 and shares.bound_j[1] >= 400


def load_of(kind: str, generator: random.Random, edges, lengths_s) -> list[tuple[float, int]]:
    """When the load was high (1) and low (2)."""
    if kind == "on its own":
        return stretches([(1, generator.uniform(0.2, 2)), (2, generator.uniform(0.2, 2))], 12.0)
    if kind == "late":
        delay_s = generator.uniform(0, 0.06)
        return [(0.0, 2), *((t + delay_s, p) for t, p in edges)]
    first_half = []
    for t, p in edges:
        first_half += [(t, 1), (t + lengths_s[0] / 2, 2)] if p == 1 else [(t, 2)]
    return first_half


@pytest.mark.parametrize("kind", ["on its own", "late", "in the first half of a phase"])
def test_power_that_does_not_follow_its_phase_is_within_what_is_said(kind):
    generator = random.Random(7)
    powers_w = [0.0, 400.0, 100.0]
    outside, widths = 0, []
    for _ in range(100):
        lengths_s = [10 ** generator.uniform(-0.8, 0) for _ in range(2)]
        edges = stretches([(1, lengths_s[0]), (2, lengths_s[1])], 12.0)
        load = load_of(kind, generator, edges, lengths_s)
        knots = [k * UPDATE_S for k in range(121)]
        segments = [
            Segment(a, b, energy(load, powers_w, a, b)) for a, b in itertools.pairwise(knots)
        ]
        spread(segments, edges, 12.0)
        shares = divide(segments, 3)
        ends = [t for t, _ in edges[1:]] + [12.0]
        exact = math.fsum(
            energy(load, powers_w, t, min(end, 12.0))
            for (t, p), end in zip(edges, ends, strict=True)
            if p == 1
        )
        error = abs(shares.energy_j[1] - exact)
        assert error <= shares.bound_j[1] + 1e-6
        outside += error > 2 * shares.u_j[1]
        widths.append(shares.u_j[1] / exact)
    assert outside <= 5
    assert statistics.median(widths) < 0.08


def test_time_that_nothing_was_published_of_goes_by_the_power_of_its_phase():
    segments = [Segment(0.0, 0.5, None), Segment(0.5, 1.0, 50.0), Segment(1.0, 1.5, 150.0)]
    spread(segments, [(0.0, 1), (1.0, 2)], 1.5)
    shares = divide(segments, 3)
    assert shares.energy_j[1] == pytest.approx(100, rel=0.01)
    assert shares.energy_j[2] == pytest.approx(150)
    assert shares.bound_j[1] > 50 > shares.bound_j[2]


@pytest.mark.parametrize("seed", range(20))
def test_nanojoules_add_up_to_the_whole(seed):
    generator = random.Random(seed)
    shares = [generator.choice([0.0, generator.random(), 1e-9, 1e6]) for _ in range(50)]
    total_j = generator.choice([0.0, 1e-9, 1.0, math.pi, 123456789.123])
    parts = to_nanojoules(total_j, shares)
    assert sum(parts) == round(total_j * 1e9)
    assert all(part >= 0 for part in parts)
    whole = sum(shares) or 1.0
    for part, share in zip(parts[:-1], shares[:-1], strict=True):
        assert abs(part - total_j * 1e9 * share / whole) <= 1 + total_j * 1e9 * 2**-50


def test_a_counter_is_cut_at_its_publications_and_a_fall_is_no_energy():
    runs = [(0.0, 0.09, 5.0), (0.10, 0.19, 15.0), (0.20, 0.29, 27.0), (0.30, 0.39, 1.0)]
    first, second = counted(runs, 0.1)
    assert (first.begin_s, first.end_s, first.energy_j) == pytest.approx((0.095, 0.195, 12.0))
    assert first.blur_s == pytest.approx(0.005)
    assert second.energy_j is None
    # Polled less often than it is updated, it was updated just before it was read.
    slow = counted([(0.0, 0.0, 5.0), (0.1, 0.1, 6.0), (0.2, 0.2, 7.0)], 0.001)
    assert (slow[0].begin_s, slow[0].end_s) == pytest.approx((0.0995, 0.1995))


def test_power_stands_for_the_update_period_before_it():
    runs = [(0.0, 0.09, 100.0), (0.1, 0.39, 400.0), (0.4, 0.49, 50.0)]
    segments = integrated(runs, 0.1)
    spans = [(s.begin_s, s.end_s, s.energy_j) for s in segments]
    expected = [(-0.1, 0.0, 10.0), (0.0, 0.1, 40.0), (0.1, 0.2, 40.0), (0.2, 0.3, 40.0)]
    for span, wanted in zip(spans, expected, strict=True):
        assert span == pytest.approx(wanted)


# --- on a stream that runs behind the program ---


class Stream:
    """A CUDA stream whose work comes a while after it was asked for."""

    def __init__(self) -> None:
        self.behind_s = 0.0

    def torch(self) -> types.ModuleType:
        """What PyTorch shows of it."""
        stream = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing
                self.at_s = 0.0

            def record(self, where: object) -> None:
                assert where is stream
                self.at_s = time.monotonic() + stream.behind_s

            def synchronize(self) -> None:
                time.sleep(max(0.0, self.at_s - time.monotonic()))

            def elapsed_time(self, later: Event) -> float:
                return struct.unpack("f", struct.pack("f", (later.at_s - self.at_s) * 1e3))[0]

        def synchronize(_: int) -> None:
            time.sleep(stream.behind_s)
            stream.behind_s = 0.0

        module = types.ModuleType("torch")
        module.cuda = types.SimpleNamespace(
            Event=Event,
            current_stream=lambda device: stream,
            device_count=lambda: 1,
            is_available=lambda: True,
            is_initialized=lambda: True,
            synchronize=synchronize,
        )
        return module


def test_work_counts_where_the_gpu_did_it(simulated, monkeypatch):
    simulated("constant")
    monitor = ZeusMonitor(cpu_indices=[])
    stream = Stream()
    monkeypatch.setitem(sys.modules, "torch", stream.torch())
    phases = monitor.phases("a", "b")
    with phases:
        phases.begin("a")
        stream.behind_s = 0.3  # So much work was given to the GPU within no time.
        phases.begin("b")
        stream.behind_s = 0.5
        phases.end()
    result = phases.result
    # As the program saw it, they took no time; the GPU ran a for 0.3 s, then b for 0.2 s.
    assert result["a"].time < 0.1
    assert result["b"].uncertainty["gpu:0"].value_j == pytest.approx(20, abs=6)
    assert result["a"].uncertainty["gpu:0"].value_j == pytest.approx(30, abs=6)


def test_events_that_fail_leave_edges_where_the_program_was_and_say_so(simulated, monkeypatch):
    simulated("constant")
    monitor = ZeusMonitor(cpu_indices=[])
    torch = Stream().torch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    phases = monitor.phases("a")
    with pytest.warns(UserWarning, match="not the GPU: CUDA events failed: lost"), phases:
        phases.begin("a")
        time.sleep(0.3)

        def fail(*_: object) -> float:
            raise RuntimeError("lost")

        torch.cuda.Event.elapsed_time = fail
    known = phases.result["a"].uncertainty["gpu:0"]
    assert abs(known.value_j - 100 * phases.result["a"].time) <= 2 * known.u_cmp_j


# --- on simulated machines ---


def exact_j(result, truth) -> dict[str, float]:
    """The first device's true joules by phase."""
    joules = dict.fromkeys(result.phases, 0.0)
    for span in result.spans:
        joules[span.name] += next(iter(truth(span.begin_s, span.end_s).values()))
    return joules


def test_phases_are_within_what_is_said_of_them_and_that_is_not_much(simulated, truth):
    simulated(SQUARE)
    phases = ZeusMonitor(cpu_indices=[]).phases("long", "short")
    with phases:
        for _ in range(3):
            phases.begin("long")
            time.sleep(0.61)
            phases.begin("short")
            time.sleep(0.37)
        phases.end()
    result = phases.result
    exact = exact_j(result, truth)
    for name in ("long", "short"):
        known = result[name].uncertainty["gpu:0"]
        # The simulated sensor has no error of gain: what is said for comparisons is all there is.
        assert abs(known.value_j - exact[name]) <= 2 * known.u_cmp_j
        assert known.u_cmp_j < 0.1 * exact[name]
        assert known.bound_j[0] <= exact[name] <= known.bound_j[1]
        assert result[name].count == 3


def test_phases_add_up_to_the_window_to_the_nanojoule(simulated):
    simulated("h100x8")
    phases = ZeusMonitor().phases("a", "b", "c")
    generator = random.Random(1)
    with phases:
        end = time.monotonic() + 0.6
        while time.monotonic() < end:
            with phases(generator.choice("abc")):
                time.sleep(generator.uniform(0, 0.01))
    result = phases.result
    assert set(result.measurement.uncertainty) >= {f"gpu:{i}" for i in range(8)} | {"cpu:0"}
    for device, whole in result.measurement.uncertainty.items():
        parts = [phase.energy_nj[device] for phase in result.phases.values()]
        assert sum(parts) == round(whole.value_j * 1e9)
        assert min(parts) >= 0
    assert sum(p.time for p in result.phases.values()) == pytest.approx(result.measurement.time)
    told = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert [p["name"] for p in told["phases"]] == ["a", "b", "c", "other"]
    assert len(result.to_frame()) == 4 * len(result.measurement.uncertainty)
    assert "other" in str(result)
    assert "<th>other</th>" in result._repr_html_()


def test_a_phase_within_another_takes_its_time_from_it(simulated):
    simulated("constant")
    phases = ZeusMonitor().phases()
    with phases:
        with phases("outer"):
            time.sleep(0.1)
            with phases("inner"):
                time.sleep(0.2)
            time.sleep(0.1)
        time.sleep(0.05)
    outer, inner, other = (phases.result[name] for name in ("outer", "inner", "other"))
    assert (outer.count, inner.count) == (2, 1)
    assert inner.time >= 0.2 and outer.time >= 0.2 and other.time >= 0.05
    assert outer.time + inner.time + other.time == pytest.approx(phases.result.measurement.time)
    for phase in (outer, inner):
        known = phase.uncertainty["gpu:0"]
        assert abs(known.value_j - 100 * phase.time) <= 2 * known.u_cmp_j + 1


def test_thousands_of_phases_are_noted_and_divided(simulated):
    simulated("constant")
    phases = ZeusMonitor().phases("a", "b")
    with phases:
        end = time.monotonic() + 0.4
        for i in range(1_000_000):
            phases.begin("ab"[i % 2])
            if i > 10_000 and time.monotonic() > end:
                break
    result = phases.result
    assert result["a"].count > 5000
    assert sum(p.energy_nj["gpu:0"] for p in result.phases.values()) == round(
        result.measurement.gpu_energy[0] * 1e9
    )


# weakness E5
def test_phases_that_raise_are_measured_up_to_there(simulated):
    simulated("constant")
    phases = ZeusMonitor().phases("a")
    with pytest.raises(KeyError), phases, phases("a"):
        time.sleep(0.3)
        raise KeyError("x")
    assert phases.result["a"].time >= 0.3
    assert phases.result["a"].energy > 0
    before = threading.active_count()
    with phases:
        phases.begin("a")
        time.sleep(0.25)
    assert phases.result["a"].count == 1
    assert threading.active_count() <= before + 1


def test_a_window_without_a_number_has_none_in_its_phases(simulated):
    simulated("constant")
    phases = ZeusMonitor().phases("a")
    with pytest.warns(UserWarning, match="measured as zero"), phases:
        phases.begin("a")
    assert math.isnan(phases.result["a"].energy)
    assert phases.result["a"].uncertainty["gpu:0"].refusal.startswith("R1")
    assert phases.result["a"].energy_nj == {}


def test_a_gpu_that_tells_only_power_is_divided_too(simulated, truth):
    simulated(ONLY_POWER)
    phases = ZeusMonitor(cpu_indices=[]).phases("a", "b")
    with phases:
        for _ in range(3):
            with phases("a"):
                time.sleep(0.4)
            with phases("b"):
                time.sleep(0.25)
    exact = exact_j(phases.result, truth)
    for name in ("a", "b"):
        known = phases.result[name].uncertainty["gpu:0"]
        assert abs(known.value_j - exact[name]) <= 2 * known.u_cmp_j
        assert known.u_cmp_j < 0.3 * exact[name]


def test_misuse_is_said():
    monitor = ZeusMonitor(gpu_indices=[], cpu_indices=[])
    with pytest.raises(ValueError, match="'other' is that of the rest"):
        monitor.phases("other")
    phases = monitor.phases("a")
    with pytest.raises(RuntimeError, match="within their window"):
        phases.begin("a")
    with pytest.raises(ValueError, match="no phase 'b'; these are: a"):
        phases("b")
    with pytest.raises(RuntimeError, match="has not begun"):
        _ = phases.result
    said = []

    def elsewhere():
        try:
            phases.begin("a")
        except RuntimeError as error:
            said.append(str(error))

    with phases:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        with pytest.raises(RuntimeError, match="open already"), phases:
            pass
        phases.begin("a")
    assert "by the thread that opened" in said[0]
