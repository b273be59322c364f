"""`monitor.window()`: blocks that are measured, and results with their uncertainty."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
import math
import pickle
import threading
import time
import types

import pytest

from zeus.monitor import Measurement, PowerMonitor, ZeusMonitor
from zeus.monitor._measurement import Uncertain
from zeus.monitor._text import written
from zeus.utils.testing import ReplayZeusMonitor


def test_a_block_is_measured(simulated, truth):
    simulated("constant")
    monitor = ZeusMonitor()
    with monitor.window("step") as w:
        time.sleep(0.4)
    assert w.time == w.measurement.time
    assert 0.4 <= w.time < 5
    (exact,) = truth(w.measurement.span.begin_s, w.measurement.span.end_s).values()
    known = w.uncertainty["gpu:0"]
    assert known.bound_j[0] <= exact <= known.bound_j[1]
    assert abs(w.energy - exact) <= 2 * known.u_cmp_j
    assert w.measurement.span.name == "step"
    assert monitor.measurement_states == {}


def test_every_part_of_a_total_that_the_core_reads_has_an_uncertainty(simulated):
    simulated("square")
    with ZeusMonitor().window("step") as w:
        time.sleep(0.5)
    assert list(w.uncertainty) == ["gpu:0", "cpu:0", "dram:0"]
    assert all(known.u_cmp_j > 0 for known in w.uncertainty.values())
    assert w.total.u_cmp_j > 0 and w.uncertainty["cpu:0"].method == "counter"


# weakness E5
def test_a_block_that_raises_is_measured_and_its_exception_goes_on(simulated):
    simulated("constant")
    w = ZeusMonitor().window("step")
    with pytest.raises(KeyError), w:
        time.sleep(0.2)
        raise KeyError("x")
    assert w.time >= 0.2
    assert w.energy > 0


def test_any_number_of_one_name_is_open_in_threads_and_nested(simulated):
    simulated("constant")
    monitor = ZeusMonitor()
    done = []

    def work(rounds):
        for _ in range(rounds):
            with monitor.window("step") as outer:
                with monitor.window("step") as inner:
                    time.sleep(0.12)
                time.sleep(0.05)
            done.append((outer, inner))

    threads = [threading.Thread(target=work, args=(3,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 24
    for outer, inner in done:
        assert outer.time > inner.time >= 0.12
        known = outer.uncertainty["gpu:0"]
        assert known.bound_j[0] <= 100 * outer.time <= known.bound_j[1]


def test_tasks_measure_windows_of_one_name_at_a_time(simulated):
    simulated("constant")
    monitor = ZeusMonitor()

    async def work(seconds):
        async with monitor.window("task") as w:
            await asyncio.sleep(seconds)
        return w

    async def all_of_them():
        return await asyncio.gather(*(work(0.15 + 0.05 * i) for i in range(6)))

    for i, w in enumerate(asyncio.run(all_of_them())):
        assert w.time >= 0.15 + 0.05 * i - 1e-3
        low, high = w.uncertainty["gpu:0"].bound_j
        assert low <= 100 * w.time <= high


def test_a_cancelled_task_is_measured_up_to_there(simulated):
    simulated("constant")
    w = ZeusMonitor().window("task")

    async def work():
        async with w:
            await asyncio.sleep(60)

    async def cancel():
        task = asyncio.create_task(work())
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert 0.1 <= w.time < 30


def test_other_tasks_go_on_while_the_gpus_are_waited_for(simulated, monkeypatch):
    simulated("constant")
    monitor = ZeusMonitor()
    order = []

    def wait(*_, **__):
        time.sleep(0.2)
        order.append("waited")

    monkeypatch.setattr("zeus.monitor.energy.sync_execution_fn", wait)
    monkeypatch.setitem(__import__("sys").modules, "torch", types.ModuleType("torch"))

    async def other():
        await asyncio.sleep(0.02)
        order.append("other")

    async def measured():
        async with monitor.window("task") as w:
            await asyncio.sleep(0.15)
        return w

    async def both():
        return (await asyncio.gather(measured(), other()))[0]

    w = asyncio.run(both())
    assert order == ["other", "waited", "waited"]
    assert w.time >= 0.35


def test_gpus_that_cannot_be_waited_for_lose_no_window_and_hide_no_exception(
    simulated, monkeypatch, caplog
):
    simulated("constant")
    monitor = ZeusMonitor()
    w = monitor.window("step")

    def fail(*_, **__):
        raise RuntimeError("device-side assert")

    with pytest.raises(KeyError), w:
        time.sleep(0.15)
        monkeypatch.setattr("zeus.monitor.energy.sync_execution_fn", fail)
        raise KeyError("x")
    assert w.energy > 0
    assert "device-side assert" in caplog.text

    monkeypatch.undo()
    simulated("constant")
    with pytest.raises(RuntimeError, match="device-side"), w:
        monkeypatch.setattr("zeus.monitor.energy.sync_execution_fn", fail)
    with pytest.raises(RuntimeError, match="could not be ended: device-side"):
        _ = w.measurement
    monkeypatch.undo()
    time.sleep(0.2)
    assert w.end().time >= 0.2


def test_a_window_says_what_it_cannot_answer_yet(simulated):
    simulated("constant")
    w = ZeusMonitor().window("step")
    with pytest.raises(RuntimeError, match="has not begun"):
        _ = w.energy
    with w:
        with pytest.raises(RuntimeError, match="still open"):
            _ = w.energy
        with pytest.raises(RuntimeError, match="open already"), w:
            pass
        time.sleep(0.15)
    first = w.measurement
    with w:
        time.sleep(0.15)
    assert w.measurement is not first


def test_a_measurement_goes_to_other_processes_and_into_copies(simulated):
    simulated("h100x8")
    with ZeusMonitor().window("step") as w:
        time.sleep(0.15)
    for copied in (pickle.loads(pickle.dumps(w.measurement)), copy.deepcopy(w.measurement)):
        assert copied == w.measurement
        # As text, since what is not known is NaN.
        assert repr(copied.uncertainty) == repr(w.uncertainty)
        assert repr(copied.total) == repr(w.total)
        assert copied.span == w.measurement.span
    assert list(dataclasses.asdict(w.measurement)) == [
        "time", "gpu_energy", "cpu_energy", "dram_energy", "soc_energy",
    ]  # fmt: skip


def test_a_measurement_is_json_and_what_has_no_number_is_null_with_its_reason(simulated):
    simulated("constant")
    monitor = ZeusMonitor()
    with monitor.window("long") as long:
        time.sleep(0.3)
    told = json.loads(json.dumps(long.measurement.to_dict(), allow_nan=False))
    assert told["name"] == "long"
    assert told["time_s"] == long.time
    assert told["total"]["energy_j"] == long.energy == told["devices"]["gpu:0"]["energy_j"]
    assert told["total"]["why"] is None
    with pytest.warns(UserWarning, match="measured as zero"), monitor.window("short") as short:
        pass
    told = json.loads(json.dumps(short.measurement.to_dict(), allow_nan=False))
    assert told["total"]["energy_j"] is None
    assert told["total"]["why"].startswith("gpu:0: R1")
    assert told["devices"]["gpu:0"]["why"].startswith("R1")


def test_the_sum_is_the_cores_where_the_core_read_everything(simulated):
    simulated("h100x8")
    monitor = ZeusMonitor(cpu_indices=[])
    with monitor.window("step") as w:
        time.sleep(0.5)
    gains = sum(math.sqrt(u.u_j**2 - u.u_cmp_j**2) for u in w.uncertainty.values())
    assert w.energy == pytest.approx(sum(w.measurement.gpu_energy.values()))
    # Random parts add in quadrature, the gains of eight boards of one kind linearly.
    apart = math.hypot(*(u.u_cmp_j for u in w.uncertainty.values()))
    assert w.total.u_cmp_j == pytest.approx(apart, rel=1e-6)
    assert w.total.u_j**2 - w.total.u_cmp_j**2 == pytest.approx(gains**2, rel=1e-6)


def test_a_sum_with_a_part_that_nobody_knows_is_not_known():
    m = Measurement(1.0, {0: 100.0, 1: math.nan}, {0: 10.0})
    assert math.isnan(m.energy)
    assert m.total_energy is not None
    assert str(m.total).startswith("no number")


@pytest.mark.parametrize(
    ("value", "u", "plain", "concise"),
    [
        # JCGM 100:2008, 7.2.2: m_S = 100.021 47(35) g.
        (100.02147, 0.00035, "100.02147 J ± 0.00070 J (k = 2)", "100.02147(35) J"),
        (85.4, 6.0, "85.4 J ± 12.0 J (k = 2)", "85.4(60) J"),
        (1234.5, 59.2, "1234 J ± 118 J (k = 2)", "1234(59) J"),
        (123456.0, 2345.0, "123500 J ± 4600 J (k = 2)", "123500(2300) J"),
        # Rounding carries: 0.0996 is 0.10.
        (1.0, 0.0996, "1.00 J ± 0.20 J (k = 2)", "1.00(10) J"),
        (5.0, 9.96, "5 J ± 20 J (k = 2)", "5(10) J"),
        (5.0, math.nan, "5 J ± unknown", "5 J ± unknown"),
        (5.0, 0.0, "5 J ± 0 J (k = 2)", "5 J"),
    ],
)
def test_a_value_is_written_to_two_digits_of_its_uncertainty(value, u, plain, concise):
    assert written(value, u) == plain
    assert written(value, u, "c") == concise


def test_formats_that_are_not_there_are_refused():
    with pytest.raises(ValueError, match="'x'"):
        format(Uncertain(1.0, 0.1), "x")
    m = Measurement(1.0, {0: 85.4})
    assert f"{m}" == repr(m)
    assert f"{m:u}" == "85.4 J ± unknown"


def test_power_within_a_window_is_kept_and_drawn(simulated):
    simulated("square")
    with PowerMonitor() as power, ZeusMonitor().window("<b>", power_monitor=power) as w:
        time.sleep(0.4)
    runs = w.measurement.power[0]
    assert {run.power_w for run in runs} <= {100.0, 400.0} | {r.power_w for r in runs if r}
    assert runs[0].first_s <= w.measurement.span.begin_s + 0.2
    page = w.measurement._repr_html_()
    assert "<svg" in page and "&lt;b&gt;" in page and "<b>" not in page
    assert "±" in page


def test_a_log_of_windows_is_replayed_by_windows(simulated, tmp_path):
    simulated("constant")
    log = tmp_path / "log.csv"
    with ZeusMonitor(log_file=log).window("step") as w:
        time.sleep(0.25)
    replay = ReplayZeusMonitor(log_file=log)
    with replay.window("step") as again:
        pass
    assert again.measurement == Measurement(w.time, w.measurement.gpu_energy)
    with pytest.raises(NotImplementedError, match="cannot be divided"):
        replay.phases("a")
