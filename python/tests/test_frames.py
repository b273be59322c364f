"""Measurements and power as arrays and tables."""

from __future__ import annotations

import time
from datetime import datetime, timezone

import numpy as np
import pytest

from zeus.frames import to_frame
from zeus.monitor import Measurement, PowerMonitor, ZeusMonitor


def test_measurements_become_rows(simulated):
    simulated("h100x8")
    monitor = ZeusMonitor(gpu_indices=[0, 1])
    measured = []
    for _ in range(2):
        with monitor.window("step") as w:
            time.sleep(0.25)
        measured.append(w.measurement)
    frame = to_frame(measured)
    assert list(frame["name"]) == ["step", "step"]
    assert list(frame["time_s"]) == [m.time for m in measured]
    assert list(frame["gpu:1_energy_j"]) == [m.gpu_energy[1] for m in measured]
    assert list(frame["gpu:1_u_j"]) == [m.uncertainty["gpu:1"].u_j for m in measured]
    assert list(frame["energy_j"]) == [m.energy for m in measured]
    begun = frame["begin"][0].floor("us").to_pydatetime()
    assert abs((datetime.now(timezone.utc) - begun).total_seconds()) < 60


def test_a_table_of_nothing_has_its_columns():
    assert list(to_frame([]).columns) == ["name", "begin", "time_s", "energy_j", "u_j"]
    by_hand = to_frame([Measurement(1.0, {0: 5.0})])
    assert by_hand["gpu:0_energy_j"][0] == 5.0
    assert by_hand["name"][0] is None


def test_power_is_an_array_over_the_cores_memory(simulated):
    simulated("square")
    begin = time.monotonic()
    with PowerMonitor(update_period=0.05) as power:
        time.sleep(0.5)
    runs = power.to_numpy("device_instant", 0)
    assert runs.shape[1] == 3 and runs.dtype == np.float64
    assert not runs.flags.owndata and runs.base is not None
    assert np.all(runs[:, 0] <= runs[:, 1]) and np.all(np.diff(runs[:, 0]) > 0)
    assert begin - 1 <= runs[0, 0] and runs[-1, 1] <= time.monotonic()
    assert set(runs[:, 2]) <= {100.0, 400.0} | set(runs[:, 2][1:-1])
    # It outlives its monitor.
    kept = runs.copy()
    del power
    assert np.array_equal(kept, runs)


def test_power_of_several_gpus_is_asked_for_by_name(simulated):
    simulated("h100x8")
    with PowerMonitor(gpu_indices=[2, 5], update_period=0.05) as power:
        time.sleep(0.15)
        with pytest.raises(ValueError, match=r"\[2, 5\]"):
            power.to_numpy()
        with pytest.raises(ValueError, match="GPU 0 is not sampled"):
            power.to_numpy(gpu_index=0)
        frame = power.to_frame()
    assert set(frame["gpu"]) == {2, 5}
    assert set(frame["domain"]) == {d.value for d in power.measurement_domains}
    assert abs(frame["last"].iloc[-1].timestamp() - time.time()) < 30
    assert (frame["power_w"] > 0).all()


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install zeus-cpp\[frames\]"):
        to_frame([])
