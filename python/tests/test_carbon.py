"""Carbon of windows: one stream of counters, cut at the hours, and providers that fail.

The machine is the simulated one that draws exactly 100 W, so every energy has a closed form.
"""

import json
import math
import os
import queue
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from http_answers import Answer, Server, silence

from zeus.monitor import _parts
from zeus.monitor._carbon_record import emission
from zeus.monitor.carbon import (
    CarbonEmissionMeasurement,
    CarbonEmissionMonitor,
    CarbonIntensity,
    CarbonIntensityProvider,
    CarbonIntensityTable,
    CarbonInterval,
    ConstantCarbonIntensity,
    ElectricityMapsClient,
    ElectrictyMapsClient,
    Op,
    ZeusCarbonIntensityHTTPError,
    ZeusCarbonIntensityNotFoundError,
    _polling_process,
    g_per_kwh_from_lb_per_mwh,
)

UTC = timezone.utc
HOUR = timedelta(hours=1)


@pytest.fixture
def constant_machine(simulated: Callable[[str], None]) -> None:
    """One simulated GPU that draws exactly 100 W."""
    simulated("constant")


def seconds_table(first: float = -5.0, last: float = 60.0) -> CarbonIntensityTable:
    """A value for each second around now: a hundred times the second modulo seven."""
    now = int(time.time())
    return CarbonIntensityTable(
        {
            datetime.fromtimestamp(t, UTC): 100.0 * (t % 7)
            for t in range(now + int(first), now + int(last))
        },
        source="the test's table",
        method="made up",
    )


def maps(answer: Callable[[str], Answer]) -> tuple[Server, ElectrictyMapsClient]:
    server = Server(answer)
    return server, ElectrictyMapsClient(
        (42.0, -83.5), estimate=True, base_url=server.url, timeout_s=30.0
    )


def hour_of(time_: datetime) -> str:
    return time_.replace(minute=0, second=0, microsecond=0).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def history(value: object) -> str:
    now = datetime.now(UTC)
    return json.dumps(
        {
            "history": [
                {"datetime": hour_of(now + hours * HOUR), "carbonIntensity": value}
                for hours in (-1, 0, 1)
            ]
        }
    )


# field failure 188
def test_a_window_over_an_hour_is_charged_to_both_hours() -> None:
    start = datetime(2024, 12, 1, 22, 50, tzinfo=UTC)
    end = datetime(2024, 12, 1, 23, 10, tzinfo=UTC)

    def floor(time_: datetime) -> datetime:
        return _parts.floor_utc(time_, HOUR)

    edges = _parts.edges_between(start, end, floor, HOUR)
    assert edges == [datetime(2024, 12, 1, 23, tzinfo=UTC)]
    curve = _parts.curve_of(start, end, 3.6e6, [])
    parts = _parts.split(start, end, edges, {("gpu", 0): curve}, floor)
    values = [
        CarbonIntensity(g, part.interval, "grid", "direct", end)
        for g, part in zip((400.0, 100.0), parts, strict=True)
    ]
    result = emission(
        1200.0,
        {0: 3.6e6},
        None,
        None,
        [
            CarbonInterval(part.interval, part.start, part.end, part.of("gpu"), {}, {}, value)
            for part, value in zip(parts, values, strict=True)
        ],
        None,
    )
    # 1 kWh: half of it at 400 g/kWh and half at 100 g/kWh.
    assert result.gpu_carbon_emission == {0: pytest.approx(250.0)}


def test_a_point_read_late_moves_the_edge_onto_the_line_between_its_neighbours() -> None:
    start = datetime(2024, 1, 1, 0, 0, tzinfo=UTC)
    minute = timedelta(minutes=1)
    # 60 J in the first minute; then 6 J a minute. The edge at 1:00 was read at 1:01.
    curve = [(start, 0.0), (start + 61 * minute, 426.0), (start + 120 * minute, 780.0)]
    parts = _parts.split(
        start,
        start + 120 * minute,
        [start + 60 * minute],
        {("gpu", 0): curve},
        lambda time_: _parts.floor_utc(time_, HOUR),
    )
    first = 426.0 * 60 / 61
    assert [part.energy_j["gpu", 0] for part in parts] == [
        pytest.approx(first),
        pytest.approx(780.0 - first),
    ]


def test_a_counter_that_fell_within_the_window_is_not_a_point_of_its_curve() -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    curve = _parts.curve_of(
        start, start + 3 * HOUR, 90.0, [(start + HOUR, 120.0), (start + 2 * HOUR, 60.0)]
    )
    assert [joules for _, joules in curve] == [0.0, 60.0, 90.0]


# weakness C3
# weakness C4
def test_the_parts_of_a_window_add_up_to_its_measurement(constant_machine: None) -> None:
    monitor = CarbonEmissionMonitor(seconds_table(), cpu_indices=[])
    monitor.begin_window("train", sync_execution=False)
    time.sleep(2.6)
    result = monitor.end_window("train", sync_execution=False)
    assert result.unavailable is None
    assert len(result.intervals) >= 3
    parts_j = [interval.gpu_energy[0] for interval in result.intervals]
    assert math.fsum(parts_j) == pytest.approx(result.gpu_energy[0], rel=1e-12)
    for interval, joules in zip(result.intervals, parts_j, strict=True):
        # 100 W; a busy machine may keep the thread from its edge while it reads.
        assert joules == pytest.approx(
            100 * (interval.end - interval.start).total_seconds(), abs=30
        )
        assert interval.intensity is not None
        assert interval.intensity.g_per_kwh == 100.0 * (int(interval.start.timestamp()) % 7)
    assert result.gpu_carbon_emission[0] == pytest.approx(
        sum(
            joules / 3.6e6 * interval.intensity.g_per_kwh
            for joules, interval in zip(parts_j, result.intervals, strict=True)
            if interval.intensity
        )
    )
    assert monitor.current_keys == set()
    assert monitor.zeus_monitor.measurement_states == {}


# weakness C2
def test_the_window_does_not_contain_the_request(constant_machine: None) -> None:
    def late(path: str) -> Answer:
        time.sleep(1.5)
        return 200, "application/json", history(360)

    server, client = maps(late)
    with server:
        monitor = CarbonEmissionMonitor(client, cpu_indices=[])
        monitor.begin_window("a", sync_execution=False)
        time.sleep(0.3)
        result = monitor.end_window("a", sync_execution=False)
    assert result.time < 1.5
    assert result.gpu_energy[0] == pytest.approx(100 * result.time, abs=10)
    # 360 g/kWh is 0.1 mg/J.
    assert result.gpu_carbon_emission[0] == pytest.approx(result.gpu_energy[0] * 1e-4)


# weakness C1
# field failure 187
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((200, "application/json", history(None)), "no value"),
        ((200, "application/json", '{"history": []}'), "no value"),
        ((200, "application/json", '{"error": "No recent data"}'), "No recent data"),
        ((200, "application/json", "[]"), "answered"),
        ((200, "text/html", "<html>hello</html>"), "no JSON"),
        ((503, "text/html", "<html>busy</html>"), "answered 503: <html>busy"),
        ((401, "application/json", '{"message": "Invalid auth-token"}'), "answered 401"),
    ],
)
def test_a_provider_that_fails_costs_the_emission_and_not_the_energy(
    constant_machine: None, answer: Answer, reason: str
) -> None:
    server, client = maps(lambda path: answer)
    with server:
        monitor = CarbonEmissionMonitor(client, cpu_indices=[])
        monitor.begin_window("a", sync_execution=False)
        time.sleep(0.3)
        with pytest.warns(UserWarning, match="the emission is unknown"):
            result = monitor.end_window("a", sync_execution=False)
    assert result.gpu_energy[0] == pytest.approx(100 * result.time, abs=10)
    assert math.isnan(result.gpu_carbon_emission[0])
    assert result.cpu_carbon_emission is None
    assert result.unavailable is not None
    assert reason in result.unavailable


# weakness C1
# field failure 187
def test_a_server_that_never_answers_does_not_keep_the_window(constant_machine: None) -> None:
    server, client = maps(silence(60.0))
    with server:
        monitor = CarbonEmissionMonitor(client, cpu_indices=[], fetch_timeout_s=0.3)
        for _ in range(2):  # The second end finds the failure remembered.
            monitor.begin_window("a", sync_execution=False)
            time.sleep(0.2)
            before_s = time.monotonic()
            with pytest.warns(UserWarning, match="no answer within 0.3 s"):
                result = monitor.end_window("a", sync_execution=False)
            assert time.monotonic() - before_s < 20.0
            assert math.isnan(result.gpu_carbon_emission[0])
            assert not math.isnan(result.gpu_energy[0])
        assert len(server.paths) == 1


# field failure 189
def test_energy_needs_no_provider_and_is_priced_later(constant_machine: None) -> None:
    monitor = CarbonEmissionMonitor(None, cpu_indices=[])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monitor.begin_window("a", sync_execution=False)
        time.sleep(0.3)
        result = monitor.end_window("a", sync_execution=False)
    assert math.isnan(result.gpu_carbon_emission[0])
    assert result.unavailable is not None
    assert "no provider" in result.unavailable
    provider = ConstantCarbonIntensity(360.0, source="contract")
    later = result.with_intensities(provider.get_intensities(result.intervals[0].start))
    assert later.unavailable is None
    assert later.gpu_carbon_emission[0] == pytest.approx(result.gpu_energy[0] * 1e-4)


# weakness C4
def test_windows_of_two_threads_get_each_their_own_result(constant_machine: None) -> None:
    monitor = CarbonEmissionMonitor(ConstantCarbonIntensity(360.0, source="x"), cpu_indices=[])
    results: dict[str, CarbonEmissionMeasurement] = {}

    def work(key: str, seconds: float) -> None:
        monitor.begin_window(key, sync_execution=False)
        time.sleep(seconds)
        results[key] = monitor.end_window(key, sync_execution=False)

    lengths = {"short": 0.3, "long": 1.2}
    threads = [threading.Thread(target=work, args=item) for item in lengths.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert results["short"].time < results["long"].time
    for result in results.values():
        assert result.gpu_energy[0] == pytest.approx(100 * result.time, abs=10)
        assert result.gpu_carbon_emission[0] == pytest.approx(result.gpu_energy[0] * 1e-4)


class Forgetful(CarbonIntensityProvider):
    """Knows the last second and a half, in half seconds."""

    def get_current_carbon_intensity(self) -> float:
        return 100.0

    def get_recent_carbon_intensity(self) -> dict[datetime, float]:
        now = _parts.floor_utc(datetime.now(UTC), self.update_period)
        return {now - n * self.update_period: 100.0 for n in range(3)}

    @property
    def update_period(self) -> timedelta:
        return timedelta(seconds=0.5)

    @property
    def history_length(self) -> int:
        return 3


def test_a_long_window_is_priced_before_its_provider_forgets(constant_machine: None) -> None:
    monitor = CarbonEmissionMonitor(Forgetful(), cpu_indices=[])
    monitor.begin_window("long", sync_execution=False)
    time.sleep(3.2)
    result = monitor.end_window("long", sync_execution=False)
    assert result.unavailable is None
    assert len(result.intervals) >= 6
    assert {i.intensity.provider for i in result.intervals if i.intensity} == {"Forgetful"}


def test_keys_are_checked_and_restarted(constant_machine: None) -> None:
    monitor = CarbonEmissionMonitor(ConstantCarbonIntensity(1.0, source="x"), cpu_indices=[])
    monitor.begin_window("a", sync_execution=False)
    with pytest.raises(ValueError, match="already exists"):
        monitor.begin_window("a", sync_execution=False)
    monitor.begin_window("a", sync_execution=False, restart=True)
    time.sleep(0.2)
    monitor.end_window("a", sync_execution=False)
    with pytest.raises(ValueError, match="does not exist"):
        monitor.end_window("a", sync_execution=False)


# weakness F6
def test_a_program_that_raises_inside_a_window_ends(tmp_path: Path) -> None:
    script = tmp_path / "raises.py"
    script.write_text(
        "from zeus.monitor.carbon import CarbonEmissionMonitor, ConstantCarbonIntensity\n"
        "if __name__ == '__main__':\n"
        "    provider = ConstantCarbonIntensity(1.0, source='x')\n"
        "    monitor = CarbonEmissionMonitor(provider, cpu_indices=[])\n"
        "    monitor.begin_window('a', sync_execution=False)\n"
        "    raise SystemExit(7)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], env={**os.environ, "ZEUS_HOST": "sim:constant"}, timeout=60
    )
    assert done.returncode == 7


# weakness F1
def test_a_forked_child_ends_its_window_and_leaves_the_parents_alone(
    constant_machine: None,
) -> None:
    monitor = CarbonEmissionMonitor(seconds_table(), cpu_indices=[])
    monitor.begin_window("a", sync_execution=False)
    child = os.fork()
    if child == 0:
        time.sleep(0.3)
        result = monitor.end_window("a", sync_execution=False)
        os._exit(0 if result.unavailable is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    time.sleep(1.0)
    result = monitor.end_window("a", sync_execution=False)
    assert len(result.intervals) >= 2
    assert result.gpu_energy[0] == pytest.approx(100 * result.time, abs=10)


# weakness C1
def test_the_queue_loop_answers_every_end_without_cpus_and_without_values(
    constant_machine: None,
) -> None:
    server, client = maps(lambda path: (503, "text/html", "no"))
    commands: queue.Queue[tuple[Op, str]] = queue.Queue()
    finished: queue.Queue[tuple[dict[int, float], ...]] = queue.Queue()
    with server:
        thread = threading.Thread(
            target=_polling_process, args=(commands, finished, [0], [], client), daemon=True
        )
        thread.start()
        commands.put((Op.BEGIN, "a"))
        time.sleep(0.6)
        commands.put((Op.END, "a"))
        gpu, cpu, dram = finished.get(timeout=30)
        thread.join(timeout=30)
    assert not thread.is_alive()
    assert math.isnan(gpu[0])
    assert (cpu, dram) == ({}, {})


# weakness C5
# field failure 191
def test_the_client_sends_the_users_token_and_keeps_how_a_value_was_made() -> None:
    now = datetime.now(UTC)
    latest = {
        "carbonIntensity": 408,
        "datetime": hour_of(now),
        "isEstimated": True,
        "estimationMethod": "TIME_SLICER_AVERAGE",
    }
    body = {"history": [{"datetime": hour_of(now - HOUR), "carbonIntensity": 211}]}
    with Server(
        lambda path: (
            200,
            "application/json",
            json.dumps(latest if "/latest" in path else body),
        )
    ) as server:
        client = ElectricityMapsClient(
            (42.0, -83.5), emission_factor_type="lifecycle", token="mine", base_url=server.url
        )
        values = client.get_intensities(now)
    assert all(headers["auth-token"] == "mine" for headers in server.headers)
    assert server.paths[0] == (
        "/carbon-intensity/history?lat=42.0&lon=-83.5&disableEstimations=True"
        "&emissionFactorType=lifecycle"
    )
    assert [(v.g_per_kwh, v.provider, v.method) for v in values] == [
        (211, "Electricity Maps", "lifecycle, measured"),
        (408, "Electricity Maps", "lifecycle, estimated (TIME_SLICER_AVERAGE)"),
    ]
    assert values[1].fetched_at - values[1].start < 2 * HOUR


def test_the_clients_errors_are_ours() -> None:
    with Server(lambda path: (404, "application/json", "{}")) as server:
        client = ElectrictyMapsClient((1.0, 2.0), base_url=server.url)
        with pytest.raises(ZeusCarbonIntensityHTTPError, match="answered 404"):
            client.get_current_carbon_intensity()
    with pytest.raises(ZeusCarbonIntensityHTTPError, match="cannot ask http://127"):
        client.get_recent_carbon_intensity()


# field failure 190
def test_no_place_means_no_value() -> None:
    with pytest.raises(ZeusCarbonIntensityNotFoundError, match="without a place"):
        ElectrictyMapsClient(None).get_current_carbon_intensity()


# field failure 193
def test_a_table_is_normalised_to_grams_per_kilowatt_hour(tmp_path: Path) -> None:
    assert g_per_kwh_from_lb_per_mwh(900.0) == pytest.approx(408.233133)
    path = tmp_path / "grid.csv"
    path.write_text("time,lb_per_mwh\n2024-12-18T22:00:00Z,900\n2024-12-19T00:00:00+01:00,1000\n")
    table = CarbonIntensityTable.from_csv(path, method="marginal")
    (first, second) = table.get_intensities(datetime(2024, 12, 18, tzinfo=UTC))
    assert first.g_per_kwh == pytest.approx(408.233133)
    assert (second.start, second.method) == (datetime(2024, 12, 18, 23, tzinfo=UTC), "marginal")
    assert second.provider == str(path)
    assert table.update_period == HOUR


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,value\n", "header must be"),
        ("time,g_per_kwh\n2024-12-18T22:00:00,400\n", "line 2: .* no offset"),
        ("time,g_per_kwh\n2024-12-18T22:00:00Z,much\n", "line 2: could not convert"),
        ("time,g_per_kwh\n2024-12-18T22:00:00Z\n", "line 2"),
        ("time,g_per_kwh\n", "there are none"),
        (
            "time,g_per_kwh\n2024-12-18T22:10:00Z,1\n2024-12-18T23:10:00Z,1\n",
            "not whole multiples",
        ),
    ],
)
def test_a_table_that_is_not_clear_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "grid.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        CarbonIntensityTable.from_csv(path)


def test_a_constant_is_a_number_of_grams() -> None:
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="g/kWh"):
            ConstantCarbonIntensity(bad, source="x")
