"""Prometheus metrics of windows, through real gateways on loopback, on simulated machines.

The machine has one GPU at exactly 100 W whose counter steps each 20 ms, so that joules are
100 W x time, give or take two steps of 2 J.
"""

from __future__ import annotations

import itertools
import logging
import os
import queue
import subprocess
import sys
import threading
import time
import urllib.request

import pytest
from gateway import Gateway, Silent, samples, unused_port

from zeus.metric import (
    EnergyCumulativeCounter,
    EnergyHistogram,
    Metric,
    MonitoringProcessState,
    PowerGauge,
    energy_monitoring_loop,
    power_monitoring_loop,
)

STEADY = """
[[gpu]]
model = "NVIDIA Steady"
power = { kind = "constant", watts = 100 }
energy = { update = "20ms" }
power_instant = { update = "20ms", kind = "instant" }
"""
BLIND = '[[fault]]\ngpu = 0\ncall = "energy"\nat = "500ms"\nfor = "500ms"\ncode = 15\n'
DIES = STEADY + STEADY + '[[fault]]\ngpu = 1\ncall = "all"\nat = "900ms"\ncode = 15\n'
STEP_J = 4.1
GPU_J = "energy_monitor_gpu_energy_joules"
WATTS = "power_monitor_gpu_power_watts"


def child(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own; hangs are failures."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


class Window:
    """A window between two times that are known to lie within it, and two without it."""

    def __init__(self, metric, name: str) -> None:
        self.metric, self.name = metric, name

    def __enter__(self) -> Window:
        self.earliest = time.monotonic()
        self.metric.begin_window(self.name)
        self.begun = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        ending = time.monotonic()
        self.metric.end_window(self.name)
        self.shortest_s = ending - self.begun
        self.longest_s = time.monotonic() - self.earliest

    def holds(self, joules: float, step_j: float = STEP_J) -> bool:
        """Whether they are those of 100 W over the window."""
        return 100 * self.shortest_s - step_j <= joules <= 100 * self.longest_s + step_j


def wait_until(condition) -> None:
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


# --- cumulative counters ---


# field failure 170, 185
# weakness M2
def test_no_joule_is_lost_between_pushes_and_totals_never_fall(simulated):
    simulated(STEADY)
    with Gateway() as gateway:
        # Pushing takes longer than measuring: what is used meanwhile counts too.
        gateway.delay_s = 0.15
        metric = EnergyCumulativeCounter([], None, 0.1, gateway.url, "job")
        with Window(metric, "train") as window:
            time.sleep(1.2)
        assert window.holds(gateway.value(f"{GPU_J}_total", window="train", index="0", job="job"))
        seen = [v for text in gateway.pushes for _, v in samples(text, f"{GPU_J}_total")]
        assert len(seen) >= 4
        assert all(a <= b for a, b in itertools.pairwise(seen))


def test_the_end_of_a_window_is_measured_at_once_whatever_the_period(simulated):
    simulated(STEADY)
    with Gateway() as gateway:
        metric = EnergyCumulativeCounter([], [0], 3600, gateway.url, "job")
        with Window(metric, "train") as window:
            time.sleep(0.5)
        assert window.longest_s < 60
        assert window.holds(gateway.value(f"{GPU_J}_total"))


def test_energy_while_a_counter_could_not_be_read_is_added_when_it_can_be_again(simulated):
    simulated(STEADY + BLIND)
    with Gateway() as gateway:
        metric = EnergyCumulativeCounter([], None, 0.1, gateway.url, "job")
        with Window(metric, "train") as window:
            time.sleep(1.5)
        assert window.holds(gateway.value(f"{GPU_J}_total"))
        assert gateway.value("energy_monitor_gpu_energy_missing_total", window="train") >= 2


def test_a_window_that_begins_again_counts_on(simulated):
    simulated(STEADY)
    with Gateway() as gateway:
        metric = EnergyCumulativeCounter([], [0], 60, gateway.url, "job")
        windows = []
        for _ in range(2):
            with Window(metric, "epoch") as window:
                time.sleep(0.3)
            windows.append(window)
        total = gateway.value(f"{GPU_J}_total", window="epoch")
        shortest_s = sum(window.shortest_s for window in windows)
        longest_s = sum(window.longest_s for window in windows)
        assert 100 * shortest_s - 2 * STEP_J <= total <= 100 * longest_s + 2 * STEP_J


# weakness M1
def test_two_windows_of_a_metric_are_both_in_the_gateway(simulated):
    simulated(STEADY)
    with Gateway() as gateway:
        metric = EnergyCumulativeCounter([], [0], 0.1, gateway.url, "job")
        metric.begin_window("outer")
        metric.begin_window("inner")
        time.sleep(0.4)
        metric.end_window("inner")
        metric.end_window("outer")
        windows = {dict(key)["window"] for key in gateway.series(f"{GPU_J}_total")}
        assert windows == {"outer", "inner"}


def test_windows_of_a_counter_are_opened_once_and_closed_once(simulated):
    simulated(STEADY)
    metric = EnergyCumulativeCounter([], [0], 60, None, "job")
    metric.begin_window("x")
    state = metric.window_state["x"]
    assert isinstance(state, MonitoringProcessState)
    assert isinstance(state.proc, threading.Thread) and state.proc.daemon
    with pytest.raises(ValueError, match="already exists"):
        metric.begin_window("x")
    metric.end_window("x")
    assert "x" not in metric.window_state and not state.proc.is_alive()
    with pytest.raises(ValueError, match="does not exist"):
        metric.end_window("x")
    with pytest.raises(ValueError, match="update_period"):
        EnergyCumulativeCounter([], [0], 0, None, "job")


def test_the_loops_run_on_anybodys_thread_until_something_is_in_the_queue(simulated):
    simulated(STEADY)
    with Gateway() as gateway:
        stop = queue.Queue()
        loops = [
            threading.Thread(
                target=energy_monitoring_loop, args=("w", stop, [], [0], 0.1, gateway.url, "job")
            ),
            threading.Thread(
                target=power_monitoring_loop, args=("w", stop, [0], 0.1, gateway.url, "job")
            ),
        ]
        for loop in loops:
            loop.start()
        wait_until(lambda: gateway.series(f"{GPU_J}_total") and gateway.series(WATTS))
        for _ in loops:
            stop.put("stop")
        for loop in loops:
            loop.join(20)
            assert not loop.is_alive()
        assert gateway.value(f"{GPU_J}_total", window="w") > 0
        assert gateway.series(WATTS) == {}


def test_a_period_too_short_for_the_counter_still_counts_up_while_the_window_is_open(simulated):
    simulated("constant")  # Its counter steps by 10 J each 100 ms.
    metric = EnergyCumulativeCounter([], [0], 0.02, None, "job")
    read = metric.registry.get_sample_value
    labels = {"window": "w", "index": "0"}
    with Window(metric, "w") as window:
        wait_until(lambda: (read(f"{GPU_J}_total", labels) or 0) > 50)
    assert window.holds(read(f"{GPU_J}_total", labels), 20.1)
    assert read("energy_monitor_gpu_energy_missing_total", labels) is None


# --- gateways that fail ---


# field failure 169
# weakness M2
def test_a_gateway_that_is_down_is_logged_and_the_next_push_has_everything(simulated, caplog):
    simulated(STEADY)
    port = unused_port()
    metric = EnergyCumulativeCounter([], None, 0.05, f"127.0.0.1:{port}", "job")
    with caplog.at_level(logging.INFO, logger="zeus"):
        begin = time.monotonic()
        metric.begin_window("train")
        time.sleep(0.6)
        # Many pushes failed, and one sentence says so.
        (said,) = (r.message for r in caplog.records if r.levelno == logging.WARNING)
        assert f"cannot push the metrics of job 'job' to 127.0.0.1:{port}" in said
        assert "refused" in said
        with Gateway(port) as gateway:
            wait_until(lambda: gateway.pushes)
            ((_, first),) = samples(gateway.pushes[0], f"{GPU_J}_total")
            assert 30 <= first <= 100 * (time.monotonic() - begin) + STEP_J
            metric.end_window("train")
            assert gateway.value(f"{GPU_J}_total") >= first
        assert any("takes pushes again" in r.message for r in caplog.records)


# field failure 169
def test_a_histogram_goes_on_where_the_gateway_refuses_or_fails(simulated, caplog):
    simulated(STEADY)
    with Gateway() as gateway:
        gateway.status = 500
        metric = EnergyHistogram([], [0], gateway.url, "job", gpu_bucket_range=[1, 1000])
        for _ in range(2):
            metric.begin_window("step")
            time.sleep(0.15)
            metric.end_window("step")
        assert "HTTP Error 500" in caplog.text
        assert gateway.groups == {}
        gateway.status = 200
        assert metric.push()
        assert gateway.value(f"{GPU_J}_count", window="step") == 2


def test_a_gateway_that_never_answers_costs_one_time_out_and_not_one_a_window(simulated, caplog):
    simulated(STEADY)
    with Silent() as silent:
        metric = EnergyHistogram(
            [], [0], silent.url, "job", gpu_bucket_range=[1, 1000], push_timeout_s=0.2
        )
        for _ in range(4):
            metric.begin_window("step")
            time.sleep(0.1)
            metric.end_window("step")
        assert len(silent.connections) == 1
        assert "timed out" in caplog.text
        assert not metric.push()
        assert len(silent.connections) == 2


def test_a_counter_ends_though_the_gateway_never_answers(simulated):
    simulated(STEADY)
    with Silent() as silent:
        metric = EnergyCumulativeCounter([], [0], 0.1, silent.url, "job", push_timeout_s=0.3)
        metric.begin_window("train")
        wait_until(lambda: silent.connections)
        thread = metric.window_state["train"].proc
        begin = time.monotonic()
        metric.end_window("train")
        assert time.monotonic() - begin < 20 and not thread.is_alive()


# --- who pushes what ---

PUSH = """
import sys, time
from zeus.metric import EnergyHistogram
grouping = {} if sys.argv[2:] == ["job"] else None
metric = EnergyHistogram([], [0], sys.argv[1], "shared", gpu_bucket_range=[1, 1000],
                         grouping_key=grouping)
metric.begin_window("step"); time.sleep(0.15); metric.end_window("step")
"""


def push_as(rank: int, gateway: Gateway, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PUSH, gateway.url, *arguments],
        env={**os.environ, "RANK": str(rank)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


# field failure 168
# weakness M1
def test_ranks_with_one_job_name_do_not_erase_each_other(simulated):
    simulated(STEADY)
    with Gateway() as gateway:
        push_as(0, gateway)
        push_as(1, gateway)
        found = [dict(key) for key in gateway.series(f"{GPU_J}_sum")]
        assert {labels["rank"] for labels in found} == {"0", "1"}
        assert all(labels["instance"] and labels["job"] == "shared" for labels in found)


def test_upstreams_grouping_by_job_alone_keeps_the_last_one(simulated):
    simulated(STEADY)
    with Gateway() as gateway:
        push_as(0, gateway, "job")
        push_as(1, gateway, "job")
        assert set(gateway.groups) == {frozenset({("job", "shared")})}


# weakness M1
def test_the_three_metrics_of_a_process_may_share_a_job(simulated):
    simulated(STEADY)
    with Gateway() as gateway:
        histogram = EnergyHistogram([], [0], gateway.url, "job", gpu_bucket_range=[1, 1000])
        counter = EnergyCumulativeCounter([], [0], 0.1, gateway.url, "job")
        gauge = PowerGauge([0], 0.1, gateway.url, "job")
        for metric in (histogram, counter, gauge):
            metric.begin_window("w", sync_execution=False)
        wait_until(lambda: gateway.series(WATTS) and gateway.series(f"{GPU_J}_total"))
        histogram.end_window("w")
        assert gateway.series(WATTS) and gateway.series(f"{GPU_J}_total")
        assert gateway.series(f"{GPU_J}_count")
        counter.end_window("w")
        gauge.end_window("w")
        assert gateway.series(f"{GPU_J}_total") and gateway.series(f"{GPU_J}_count")


# --- histograms ---


# field failure 169
# weakness M3
def test_a_histogram_follows_all_that_the_monitor_measures(simulated):
    simulated("h100x8")
    metric = EnergyHistogram(None, None, None, "job", [0.1, 1e3], [0.1, 1e3], [0.01, 1e3])
    metric.begin_window("step")
    time.sleep(0.4)
    metric.end_window("step")
    read = metric.registry.get_sample_value
    labels = [{"window": "step", "index": str(i)} for i in range(8)]
    assert all(read(f"{GPU_J}_count", each) == 1 for each in labels)
    for kind in ("cpu", "dram"):
        name = f"energy_monitor_{kind}_energy_joules_sum"
        assert all(read(name, each) > 0 for each in labels[:2])


def test_names_labels_and_buckets_are_upstreams(simulated):
    simulated(STEADY)
    metric = EnergyHistogram(None, None, None, "job")
    assert metric.cpu_histograms is None and metric.dram_histograms is None
    metric.begin_window("step")
    time.sleep(0.8)
    metric.end_window("step")
    (family,) = metric.gpu_histograms.collect()
    assert family.name == GPU_J
    bounds = [s.labels["le"] for s in family.samples if s.name.endswith("_bucket")]
    assert bounds == ["50.0", "100.0", "200.0", "500.0", "1000.0", "+Inf"]
    assert all(
        set(s.labels) - {"le"} == {"window", "index"} and s.labels["index"] == "0"
        for s in family.samples
    )
    assert isinstance(metric, Metric)


def test_energies_outside_the_buckets_are_warned_of(simulated):
    simulated(STEADY)
    metric = EnergyHistogram([], [0], None, "job", gpu_bucket_range=[1, 2])
    with pytest.warns(UserWarning, match=r"above the highest \(2 J\)") as said:
        metric.begin_window("step")
        time.sleep(0.2)
        metric.end_window("step")
    assert any(each.filename == __file__ for each in said)
    metric = EnergyHistogram([], [0], None, "job", gpu_bucket_range=[1000])
    with pytest.warns(UserWarning, match=r"within the lowest \(1000 J\)"):
        metric.begin_window("step")
        time.sleep(0.2)
        metric.end_window("step")


@pytest.mark.parametrize("kind", ["gpu", "cpu", "dram"])
def test_no_buckets_are_an_error(simulated, kind):
    simulated(STEADY)
    with pytest.raises(ValueError, match=f"{kind}_bucket_range is empty"):
        EnergyHistogram([], [0], None, "job", **{f"{kind}_bucket_range": []})


def test_an_energy_that_is_not_known_is_counted_and_not_observed(simulated):
    simulated("constant")  # Its counter steps each 100 ms.
    metric = EnergyHistogram(None, None, None, "job")
    with pytest.warns(UserWarning, match="measured as zero"):
        metric.begin_window("blink")
        metric.end_window("blink")
    labels = {"window": "blink", "index": "0"}
    read = metric.registry.get_sample_value
    assert read("energy_monitor_gpu_energy_missing_total", labels) == 1
    assert read(f"{GPU_J}_count", labels) is None


# --- power ---


# field failure 185
def test_power_is_in_watts_while_its_window_is_open(simulated):
    simulated(STEADY)
    with Gateway() as gateway:
        metric = PowerGauge(None, 0.1, gateway.url, "job")
        metric.begin_window("train")
        wait_until(lambda: gateway.series(WATTS))
        assert gateway.value(WATTS, window="train", index="0") == pytest.approx(100)
        with pytest.raises(ValueError, match="already exists"):
            metric.begin_window("train")
        metric.end_window("train")
        assert gateway.series(WATTS) == {}
        with pytest.raises(KeyError):
            metric.end_window("train")


def test_a_lost_gpu_has_no_power_and_the_others_have(simulated):
    simulated(DIES)
    metric = PowerGauge(None, 0.05, None, "job")
    metric.begin_window("w")
    read = metric.registry.get_sample_value
    first, second = ({"window": "w", "index": i} for i in "01")
    wait_until(lambda: read(WATTS, second) is not None)
    assert read(WATTS, second) == pytest.approx(100)
    wait_until(lambda: read(WATTS, second) is None)
    assert read(WATTS, first) == pytest.approx(100)
    wait_until(lambda: (read("power_monitor_gpu_power_missing_total", second) or 0) > 0)
    metric.end_window("w")


# --- pulled ---


def test_series_can_be_scraped_without_a_gateway(simulated):
    simulated(STEADY)
    metric = EnergyCumulativeCounter([], [0], 0.1, None, "job")
    port = metric.serve(0)
    metric.begin_window("train")

    def scrape() -> dict:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as page:
            return dict(samples(page.read().decode(), f"{GPU_J}_total"))

    wait_until(scrape)
    assert next(iter(scrape().values())) > 0
    metric.close()
    assert metric.window_state == {}
    with pytest.raises(OSError):
        scrape()


# --- ends, forks, imports ---

OPEN = """
import os, sys, time
from zeus.metric import EnergyCumulativeCounter
metric = EnergyCumulativeCounter([], [0], 60, sys.argv[1], "job")
metric.begin_window("train")
time.sleep(0.5)
if sys.argv[2] == "fork":
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    os.waitpid(pid, 0)
    assert metric.window_state["train"].proc.is_alive()
    time.sleep(0.5)
    metric.end_window("train")
else:
    raise SystemError("of the user")
"""


# weakness F6
def test_a_program_that_dies_within_a_window_ends_and_its_energy_is_pushed(simulated):
    simulated(STEADY)
    with Gateway() as gateway:
        done = subprocess.run(
            [sys.executable, "-c", OPEN, gateway.url, "raise"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 1 and "of the user" in done.stderr
        assert gateway.value(f"{GPU_J}_total", window="train") >= 50 - STEP_J


# weakness F1
def test_a_forked_child_that_exits_ends_no_window_of_its_parent(simulated):
    simulated(STEADY)
    with Gateway() as gateway:
        done = subprocess.run(
            [sys.executable, "-c", OPEN, gateway.url, "fork"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert len(gateway.pushes) == 1
        assert gateway.value(f"{GPU_J}_total", window="train") >= 100 - STEP_J


def test_prometheus_client_is_imported_when_a_metric_is_made_and_named_when_missing(simulated):
    simulated(STEADY)
    done = child(
        "import sys, zeus.metric as m\n"
        "assert 'prometheus_client' not in sys.modules\n"
        "sys.modules['prometheus_client'] = None\n"
        "try:\n    m.PowerGauge([0], 1, None, 'job')\n"
        "except ImportError as error:\n    print(error)\n"
    )
    assert "pip install zeus-cpp[metric]" in done.stdout, done.stderr
