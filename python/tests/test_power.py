"""PowerMonitor and TemperatureMonitor on simulated machines, against closed forms."""

from __future__ import annotations

import math
import os
import pathlib
import threading
import time

import pytest

from zeus.monitor import PowerMonitor, TemperatureMonitor
from zeus.monitor._clock import WallClock
from zeus.monitor.power import PowerDomain, infer_counter_update_period

SQUARE = """
[[gpu]]
model = "NVIDIA Square"
power = { kind = "square", low = 100, high = 300, period = "400ms" }
energy = {}
power_instant = { update = "5ms", kind = "instant" }
"""
DIES = """
[[gpu]]
model = "NVIDIA Mortal"
power = { kind = "constant", watts = 100 }
power_instant = { update = "20ms", kind = "instant" }
[[fault]]
gpu = 0
call = "all"
at = "800ms"
code = 15
"""


# weakness P1
# weakness P2
def test_constant_power_is_integrated_to_both_edges(simulated):
    simulated("constant")
    monitor = PowerMonitor(update_period=0.05)
    begin = time.time()
    time.sleep(1)
    end = time.time()
    integral = monitor.get_energy_integral(begin, end)[0]
    assert integral.energy_j == pytest.approx(100 * integral.covered_s, rel=1e-6)
    # All of it, unless a busy machine let a poll come too late to stand for the time before.
    assert 0.8 * (end - begin) < integral.covered_s <= (end - begin) * (1 + 1e-9)
    assert monitor.get_energy(begin, end)[0] == pytest.approx(integral.energy_j, rel=1e-6)
    # Within the plateau too, where no reading changes.
    middle = monitor.get_energy_integral(begin + 0.3, begin + 0.7)[0]
    assert middle.energy_j == pytest.approx(100 * middle.covered_s, rel=1e-6)
    assert middle.covered_s > 0.2
    monitor.stop()


def test_a_square_load_is_within_what_is_said_of_it(simulated, truth):
    simulated(SQUARE)
    monitor = PowerMonitor(update_period=0.01)
    begin = time.time()
    time.sleep(1.5)
    end = time.time()
    integral = monitor.get_energy_integral(begin, end)[0]
    (exact,) = truth(monitor._wall.monotonic(begin), monitor._wall.monotonic(end)).values()
    assert abs(integral.energy_j - exact) < 4 * integral.u_j
    assert integral.u_j < 0.1 * exact


SLOW = """
[nvml]
latency = "10ms"
[[gpu]]
count = 3
model = "NVIDIA Slow"
power = { kind = "constant", watts = 100 }
power_instant = { update = "20ms", kind = "instant" }
power_average = { update = "20ms", kind = "mean", window = "1s" }
"""


# weakness P10
# weakness P11
def test_each_gpu_has_its_own_time_and_its_domains_are_read_at_once(simulated):
    simulated(SLOW)
    monitor = PowerMonitor(update_period=0.1)
    timelines = monitor.get_all_power_timelines()
    instants, averages = timelines["device_instant"], timelines["device_average"]
    first = [instants[i][0][0] for i in range(3)]
    assert first[1] - first[0] >= 0.009 and first[2] - first[1] >= 0.009
    assert [averages[i][0][0] for i in range(3)] == first
    monitor.stop()


# weakness P12
# field failure 146
def test_what_cannot_be_sampled_is_said_by_the_constructor(simulated):
    simulated(SQUARE.replace('power_instant = { update = "5ms", kind = "instant" }', ""))
    begin = time.monotonic()
    with pytest.raises(ValueError, match=r"no power to sample: .*GPU 0"):
        PowerMonitor()
    assert time.monotonic() - begin < 9


# weakness D8
def test_means_of_a_second_say_that_they_see_a_rise_late(simulated):
    simulated(
        SQUARE.replace("power_instant", "power_average")
        .replace('kind = "instant"', 'kind = "mean", window = "1s"')
        .replace('"400ms"', '"3s"')
    )
    monitor = PowerMonitor(update_period=0.05)
    assert monitor.measurement_domains == [PowerDomain.DEVICE_AVERAGE]
    deadline = time.time() + 20
    while time.time() < deadline:
        time.sleep(0.4)
        watts = [w for _, w in monitor.get_power_timeline("device_average")[0]]
        if max(watts) - min(watts) > 150:
            break
    timeline = monitor.get_power_timeline("device_average")[0]
    low = min(timeline, key=lambda sample: sample[1])
    high = max(timeline, key=lambda sample: sample[1])
    begin, end = sorted((low[0], high[0]))
    integral = monitor.get_energy_integral(begin, end)[0]
    assert integral.u_j >= 150 * 1.0 / math.sqrt(3)
    monitor.stop()


# weakness P4
def test_the_power_in_force_is_the_last_one_before(simulated):
    monitor = PowerMonitor.__new__(PowerMonitor)
    monitor.gpu_indices = [0]
    monitor.measurement_domains = [PowerDomain.DEVICE_INSTANT]
    import collections
    import queue

    from zeus.monitor.power import PowerSample

    monitor.data_queues = {PowerDomain.DEVICE_INSTANT: queue.Queue()}
    monitor.samples = {PowerDomain.DEVICE_INSTANT: {0: collections.deque()}}
    for t, mw in ((0.0, 100_000), (10.0, 300_000)):
        monitor.data_queues[PowerDomain.DEVICE_INSTANT].put(PowerSample(t, 0, mw))
    assert monitor.get_power(6.0) == {0: 100.0}
    assert monitor.get_power(10.0) == {0: 300.0}
    assert monitor.get_energy(0.0, 10.0) == {0: 1000.0}


# weakness P3
def test_an_interval_without_samples_is_not_zero_joules(simulated):
    simulated("constant")
    monitor = PowerMonitor(update_period=0.05)
    now = time.time()
    assert monitor.get_energy(now - 100, now - 50) is None
    assert math.isnan(monitor.get_energy_integral(now - 100, now - 50)[0].energy_j)
    assert monitor.get_power(now - 100) is None


# weakness P5
# field failure 163
def test_a_gpu_that_can_no_longer_be_read_has_no_power(simulated):
    simulated(DIES)
    monitor = PowerMonitor(update_period=0.05)
    assert monitor.get_power() == {0: 100.0}
    assert monitor.health() == {}
    deadline = time.monotonic() + 20
    while not monitor.health() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert monitor.health() == {"device_instant of GPU 0": "lost"}
    time.sleep(0.3)
    assert monitor.get_power() is None
    integral = monitor.get_energy_integral(time.time() - 0.1, time.time())[0]
    assert math.isnan(integral.energy_j)


# weakness P6
# field failure 147
def test_stop_is_at_once_and_keeps_what_was_sampled(simulated):
    simulated("constant")
    monitor = PowerMonitor(update_period=0.05)
    begin = time.time()
    time.sleep(0.5)
    end = time.time()
    monitor.stop()
    monitor.stop()
    time.sleep(0.4)
    assert monitor.get_energy(begin, end)[0] == pytest.approx(100 * (end - begin), rel=1e-6)
    assert monitor.get_power() is None


# weakness P7
def test_history_is_as_long_as_is_asked_for(simulated):
    simulated(SQUARE)
    monitor = PowerMonitor(update_period=0.01, max_samples_per_gpu=5)
    time.sleep(1.5)
    assert len(monitor.get_power_timeline("device_instant")[0]) <= 5


# weakness P8
def test_the_update_period_is_what_is_known_of_the_sensor(simulated):
    simulated("constant")
    assert infer_counter_update_period([0]) == pytest.approx(0.05)


# weakness P9
def test_domains_are_those_of_the_gpus_that_are_asked_for(simulated):
    simulated("h100x8")
    monitor = PowerMonitor(gpu_indices=[3], update_period=0.1)
    assert set(monitor.measurement_domains) == set(PowerDomain)
    assert list(monitor.get_power()) == [3]
    timelines = monitor.get_all_power_timelines()
    assert set(timelines) == {domain.value for domain in PowerDomain}
    with pytest.raises(ValueError, match="memory_average"):
        simulated("constant")
        PowerMonitor(power_domains=["memory_average"])


def test_what_is_not_sampled_is_refused(simulated):
    simulated("h100x8")
    monitor = PowerMonitor(update_period=0.1, power_domains=["memory_average"])
    with pytest.raises(ValueError, match="device_instant is not being monitored"):
        monitor.get_power()
    with pytest.raises(ValueError, match="Neither"):
        monitor.get_energy(0, 1)
    with pytest.raises(ValueError, match="empty"):
        PowerMonitor(gpu_indices=[])
    with pytest.raises(ValueError, match="empty"):
        PowerMonitor(power_domains=[])


# weakness D2
def test_gpus_of_several_models_are_sampled(simulated):
    simulated(SQUARE + SQUARE.replace("Square", "Other"))
    assert set(PowerMonitor(update_period=0.05).get_power()) == {0, 1}


# field failure 145
def test_no_process_is_started(simulated):
    simulated("constant")
    before = threading.active_count()
    with PowerMonitor(update_period=0.05) as monitor:
        children = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        named = [pathlib.Path(f"/proc/{pid}/comm").read_text().strip() for pid in children]
        # The file server of simulated /sys trees is the simulation's, and there is none here.
        assert [name for name in named if not name.startswith("zeus-sim")] == []
        monitor.get_power()
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


# weakness F1
def test_a_forked_child_disturbs_nothing_and_samples_itself(simulated):
    simulated("constant")
    monitor = PowerMonitor(update_period=0.05)
    begin = time.time()
    child = os.fork()
    if child == 0:
        time.sleep(0.2)
        os._exit(0 if monitor.get_power() == {0: 100.0} else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    time.sleep(0.3)
    end = time.time()
    assert monitor.get_energy(begin, end)[0] == pytest.approx(100 * (end - begin), rel=1e-6)


class TestTemperature:
    def test_is_in_degrees(self, simulated):
        simulated("constant")
        monitor = TemperatureMonitor(update_period=0.05)
        time.sleep(0.2)
        now = monitor.get_temperature()
        assert now is not None and 30 <= now[0] <= 80
        assert monitor.get_temperature(time.time()) == now
        assert monitor.get_temperature_timeline()[0][-1][1] == now[0]
        monitor.stop()

    # weakness P13
    def test_that_is_not_told_is_refused_at_once(self, simulated):
        simulated(SQUARE + '[[fault]]\ngpu = 0\ncall = "temperature"\ncode = 3\n')
        with pytest.raises(ValueError, match="does not tell its temperature"):
            TemperatureMonitor()
        with pytest.raises(ValueError, match="empty"):
            TemperatureMonitor(gpu_indices=[])


def test_the_wall_clock_is_followed_when_it_is_set(monkeypatch):
    shown = {"wall": 1000.0, "monotonic": 10.0}
    monkeypatch.setattr(time, "time", lambda: shown["wall"])
    monkeypatch.setattr(time, "monotonic", lambda: shown["monotonic"])
    clock = WallClock()
    assert clock.monotonic(1001.0) == 11.0
    shown.update(wall=5000.0, monotonic=20.0)  # Set forward: it should have shown 1010.
    assert clock.monotonic(5001.0) == 21.0
    assert clock.monotonic(1005.0) == 15.0
    assert clock.wall(15.0) == 1005.0
    assert clock.wall(21.0) == 5001.0
