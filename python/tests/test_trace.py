"""Traces: what viewers need of them, and merging with what PyTorch's profiler writes."""

from __future__ import annotations

import collections
import gzip
import json
import threading
import time

import pytest

from zeus import trace
from zeus.monitor import Measurement, PowerMonitor, ZeusMonitor


def checked(path) -> tuple[dict, dict[str, list[dict]]]:
    """A trace and its events by phase letter, checked against the Trace Event Format."""
    loaded = json.loads(path.read_text(), parse_constant=pytest.fail)
    events = collections.defaultdict(list)
    last: dict[tuple, float] = {}
    for event in loaded["traceEvents"]:
        assert {"ph", "name", "pid"} <= set(event)
        if "ts" in event:
            assert isinstance(event["ts"], (int, float)) and event["ts"] >= 0
        if event["pid"] == event.get("pid") and event["ph"] in "XC":
            track = (event["pid"], event.get("tid"), event["name"] if event["ph"] == "C" else "")
            assert event["ts"] >= last.get(track, 0.0)
            last[track] = event["ts"]
        events[event["ph"]].append(event)
    for event in events["X"]:
        assert event["dur"] >= 0
    # Spans of a thread nest or follow each other.
    lanes = collections.defaultdict(list)
    for event in events["X"]:
        ends = lanes[event["pid"], event["tid"]]
        while ends and ends[-1] <= event["ts"] + 1e-3:
            ends.pop()
        assert not ends or event["ts"] + event["dur"] <= ends[-1] + 1e-3
        ends.append(event["ts"] + event["dur"])
    return loaded, events


@pytest.fixture
def measured(simulated):
    simulated("square")
    monitor = ZeusMonitor()
    phases = monitor.phases("forward", "backward")
    with PowerMonitor(update_period=0.05) as power:
        with monitor.window("outer") as outer, monitor.window("inner") as inner:
            time.sleep(0.3)
        with phases:
            for _ in range(2):
                with phases("forward"):
                    time.sleep(0.1)
                with phases("backward"):
                    time.sleep(0.05)
    return power, outer, inner, phases.result


def test_a_trace_has_windows_phases_and_power(measured, tmp_path):
    power, outer, inner, phased = measured
    path = tmp_path / "trace.json"
    trace.write(path, [outer, inner.measurement, phased], power=power)
    loaded, events = checked(path)
    base_s = loaded["baseTimeNanoseconds"] / 1e9
    assert abs(base_s - time.time()) < 60
    spans = {event["name"]: event for event in events["X"]}
    assert set(spans) >= {"outer", "inner", "phases", "forward", "backward"}
    assert spans["outer"]["dur"] == pytest.approx(outer.time * 1e6, abs=1)
    begun = base_s + spans["outer"]["ts"] / 1e6
    assert begun == pytest.approx(outer.measurement.span.wall_s, abs=1e-5)
    assert "J ±" in spans["outer"]["args"]["energy"]
    assert spans["outer"]["args"]["devices"]["gpu:0"]["energy_j"] > 0
    assert len([e for e in events["X"] if e["name"] == "forward"]) == 2
    counters = [e for e in events["C"] if e["name"] == "GPU 0 device_instant power"]
    assert {e["args"]["W"] for e in counters} <= set(power.to_numpy("device_instant")[:, 2])
    assert len(counters) >= 1
    names = [e["args"].get("name", "") for e in events["M"]]
    assert any(name.startswith("Zeus energy") for name in names)


def test_windows_of_several_threads_do_not_overlap_in_a_lane(simulated, tmp_path):
    simulated("constant")
    monitor = ZeusMonitor()
    windows = []

    def work(delay_s):
        time.sleep(delay_s)
        with monitor.window(f"after {delay_s}") as w:
            time.sleep(0.2)
        windows.append(w)

    threads = [threading.Thread(target=work, args=(0.05 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    trace.write(tmp_path / "t.json", windows)
    _, events = checked(tmp_path / "t.json")
    assert len(events["X"]) == 4
    assert len({e["tid"] for e in events["X"]}) >= 2


def test_a_stretch_that_was_not_read_is_marked(simulated, tmp_path):
    simulated("constant")
    power = PowerMonitor(update_period=0.05)
    time.sleep(0.2)
    power.stop()
    trace.write(tmp_path / "t.json", power=[power])
    _, events = checked(tmp_path / "t.json")
    assert any("not read from here on" in e["name"] for e in events["i"])


def kineto(begin_s: float, base_ns: int | None) -> dict:
    """As PyTorch's profiler writes it: one operator of 50 ms."""
    ts = (begin_s - (base_ns or 0) / 1e9) * 1e6
    operator = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 4711, "tid": 4711}
    content = {
        "schemaVersion": 1,
        "deviceProperties": [],
        "record_shapes": 1,
        "traceEvents": [
            operator | {"ts": ts, "dur": 50e3, "args": {"External id": 1}},
            {"ph": "M", "name": "process_name", "pid": 4711, "tid": 0, "ts": ts, "args": {}},
            {
                "ph": "X",
                "cat": "Trace",
                "name": "x",
                "pid": "Spans",
                "tid": "0",
                "ts": ts,
                "dur": 1,
            },
        ],
        "traceName": "t.json",
    }
    return content if base_ns is None else content | {"baseTimeNanoseconds": base_ns}


@pytest.mark.parametrize("base_ns", [None, 1_735_689_600_000_000_000])
@pytest.mark.parametrize("packed", [False, True])
def test_a_profilers_trace_gets_our_events_on_its_clock(measured, tmp_path, base_ns, packed):
    power, outer, _, _ = measured
    begin_s = outer.measurement.span.wall_s
    theirs = kineto(begin_s + 0.1, base_ns)
    file = tmp_path / ("torch.json.gz" if packed else "torch.json")
    content = json.dumps(theirs).encode()
    file.write_bytes(gzip.compress(content) if packed else content)
    trace.merge(file, tmp_path / "merged.json", [outer], power=power)
    loaded, events = checked(tmp_path / "merged.json")
    # All that was there is there still.
    assert loaded["traceEvents"][:3] == theirs["traceEvents"]
    assert {k: v for k, v in loaded.items() if k != "traceEvents"} == {
        k: v for k, v in theirs.items() if k != "traceEvents"
    }
    spans = {e["name"]: e for e in events["X"]}
    # The operator began 0.1 s after the window.
    assert spans["aten::mm"]["ts"] - spans["outer"]["ts"] == pytest.approx(0.1e6, abs=2)
    assert spans["outer"]["pid"] != 4711
    assert events["C"]


def test_a_pid_that_is_taken_is_not_ours(measured, tmp_path):
    _, outer, _, _ = measured
    theirs = kineto(outer.measurement.span.wall_s, None)
    theirs["traceEvents"][0]["pid"] = 1_990_000_000
    trace.merge(theirs, tmp_path / "merged.json", [outer])
    _, events = checked(tmp_path / "merged.json")
    assert {e["name"] for e in events["X"] if e["pid"] == 1_990_000_000} == {"aten::mm"}


def test_a_merged_trace_can_be_packed(measured, tmp_path):
    _, outer, _, _ = measured
    trace.write(tmp_path / "t.json.gz", [outer])
    assert json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))["traceEvents"]


def test_what_is_no_trace_is_said(measured, tmp_path):
    _, outer, _, _ = measured
    with pytest.raises(ValueError, match="no traceEvents"):
        trace.merge({}, tmp_path / "m.json", [outer])
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(ValueError, match=r"x\.json is no trace: it is not JSON"):
        trace.merge(tmp_path / "x.json", tmp_path / "m.json", [outer])
    with pytest.raises(ValueError, match="nothing to write"):
        trace.write(tmp_path / "m.json")
    with pytest.raises(ValueError, match="made by hand"):
        trace.write(tmp_path / "m.json", [Measurement(1.0, {0: 1.0})])
