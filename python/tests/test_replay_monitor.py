"""A monitor that gives what another one has logged."""

from __future__ import annotations

import pytest

from zeus.monitor.energy import Measurement, ZeusMonitor
from zeus.utils import testing
from zeus.utils.testing import ReplayZeusMonitor

LOG = """\
start_time,window_name,elapsed_time,gpu0_energy,gpu2_energy
1.0,a,2.5,10.0,20.0
2.0,b,3.5,11.0,21.0
3.0,b,3.5,11.0
"""


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    return path


def test_windows_give_the_rows_of_the_log(log):
    monitor = ReplayZeusMonitor(log_file=log)
    assert isinstance(monitor, ZeusMonitor)
    assert monitor.gpu_indices == monitor.nvml_gpu_indices == [0, 2]
    monitor.begin_window("a")
    monitor.begin_window("b")
    assert monitor.ongoing_windows == ["a", "b"]
    assert monitor.end_window("a") == Measurement(2.5, {0: 10.0, 2: 20.0})
    assert monitor.end_window("b") == Measurement(3.5, {0: 11.0, 2: 21.0})


def test_a_cancelled_window_leaves_its_row_to_the_next(log):
    monitor = ReplayZeusMonitor(log_file=log)
    monitor.begin_window("a")
    assert monitor.end_window("a", cancel=True) == Measurement(0.0, {0: 0.0, 2: 0.0})
    monitor.begin_window("a")
    assert monitor.end_window("a").time == 2.5


def test_windows_must_be_ongoing_to_end_and_not_to_begin(log):
    monitor = ReplayZeusMonitor(log_file=log)
    monitor.begin_window("a")
    with pytest.raises(RuntimeError, match="'a' is already ongoing"):
        monitor.begin_window("a")
    monitor.begin_window("a", restart=True)
    assert monitor.ongoing_windows == ["a"]
    with pytest.raises(RuntimeError, match="'b' is not ongoing"):
        monitor.end_window("b")


def test_another_windows_row_is_an_error_unless_names_do_not_matter(log):
    monitor = ReplayZeusMonitor(log_file=log)
    monitor.begin_window("b")
    with pytest.raises(RuntimeError, match="row 2 of the log: it is the window 'a'"):
        monitor.end_window("b")
    monitor = ReplayZeusMonitor(log_file=log, match_window_name=False)
    monitor.begin_window("b")
    assert monitor.end_window("b").time == 2.5


def test_a_row_of_other_gpus_and_the_end_of_the_log_are_errors(log):
    monitor = ReplayZeusMonitor(log_file=log, match_window_name=False)
    for key in ("a", "b", "c", "d"):
        monitor.begin_window(key)
    monitor.end_window("a")
    monitor.end_window("b")
    with pytest.raises(RuntimeError, match="the energy of 1 GPUs, not of 2"):
        monitor.end_window("c")
    with pytest.raises(RuntimeError, match="no more rows"):
        monitor.end_window("d")


@pytest.mark.parametrize("row", ["1.0,a,2.5,ten,20.0", "1.0,a,,10.0,20.0", "1.0", ""])
def test_a_row_that_is_no_measurement_is_an_error(log, row):
    log.write_text(LOG.splitlines()[0] + "\n" + row + "\n")
    monitor = ReplayZeusMonitor(log_file=log, match_window_name=False)
    monitor.begin_window("a")
    with pytest.raises(RuntimeError, match="cannot replay the window 'a'"):
        monitor.end_window("a")


def test_gpus_can_be_called_otherwise(log):
    monitor = ReplayZeusMonitor(gpu_indices=[5, 6], log_file=log)
    monitor.begin_window("a")
    assert monitor.end_window("a").gpu_energy == {5: 10.0, 6: 20.0}


def test_without_a_log_there_is_nothing_to_replay(tmp_path):
    with pytest.raises(ValueError, match="log_file"):
        ReplayZeusMonitor()
    with pytest.raises(FileNotFoundError):
        ReplayZeusMonitor(log_file=tmp_path / "none")
    (tmp_path / "other.csv").write_text("a,b,c,d\n")
    with pytest.raises(ValueError, match=r"has the columns \['d'\]"):
        ReplayZeusMonitor(log_file=tmp_path / "other.csv")


def test_gpus_are_waited_for_as_a_measuring_monitor_does(log, monkeypatch):
    waited = []
    monkeypatch.setattr(testing, "sync_execution_fn", lambda gpus, sync_with: waited.append(gpus))
    monitor = ReplayZeusMonitor(log_file=log)
    monitor.begin_window("a")
    monitor.end_window("a", sync_execution=False)
    assert waited == [[0, 2]]
    monitor = ReplayZeusMonitor(log_file=log, ignore_sync_execution=True)
    monitor.begin_window("a")
    assert waited == [[0, 2]]


# weakness E11
def test_a_quoted_name_and_a_log_without_gpus_are_understood(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text('start_time,window_name,elapsed_time,\n1.0,"a, ""b""",2.5,\n')
    monitor = ReplayZeusMonitor(log_file=log)
    assert monitor.gpu_indices == []
    monitor.begin_window('a, "b"')
    assert monitor.end_window('a, "b"') == Measurement(2.5, {})


def test_rows_that_are_written_after_the_log_was_opened_are_given(log):
    log.write_text(LOG.splitlines()[0] + "\n")
    monitor = ReplayZeusMonitor(log_file=log)
    monitor.begin_window("a")
    with open(log, "a") as more:
        more.write(LOG.splitlines()[1] + "\n")
    assert monitor.end_window("a").time == 2.5


# weakness E11
def test_what_a_monitor_logs_is_replayed(tmp_path):
    log = tmp_path / "log.csv"
    monitor = ZeusMonitor(gpu_indices=[], cpu_indices=[], log_file=log)
    measured = []
    for key in ("first", "with, comma", 'with "quotes"'):
        monitor.begin_window(key)
        measured.append((key, monitor.end_window(key)))
    replay = ReplayZeusMonitor(log_file=log)
    for key, measurement in measured:
        replay.begin_window(key)
        assert replay.end_window(key) == Measurement(measurement.time, measurement.gpu_energy)
