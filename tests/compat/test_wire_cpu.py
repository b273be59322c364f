"""CPU routes of zeusd. The machine has one package of 60 W with DRAM of 8 W (daemons.MACHINE)."""

import time

import daemons
import pytest
from answers import json_of, refused_query

ENERGY = "/cpu/get_cumulative_energy"


def counter_uj(daemon, zone: str) -> int:
    return int((daemon.session / "root/sys/class/powercap" / zone / "energy_uj").read_text())


def test_energy_is_the_counter_of_each_zone_in_microjoules(daemon):
    for query, cpu, dram in (
        ("cpu=true&dram=true", True, True),
        ("cpu=true&dram=false&cpu_ids=0", True, False),
        ("cpu=false&dram=true&cpu_ids=0,0", False, True),
        ("dram=false&cpu=false", False, False),
    ):
        time.sleep(0.11)  # Ours tells peers that are not root's ten values a second.
        before = counter_uj(daemon, "intel-rapl:0"), counter_uj(daemon, "intel-rapl:0:0")
        told = json_of(daemon.get(f"{ENERGY}?{query}"))
        after = counter_uj(daemon, "intel-rapl:0"), counter_uj(daemon, "intel-rapl:0:0")
        assert set(told) == {"0"} and set(told["0"]) == {"cpu_energy_uj", "dram_energy_uj"}
        for i, (name, asked) in enumerate((("cpu_energy_uj", cpu), ("dram_energy_uj", dram))):
            value = told["0"][name]
            assert before[i] <= value <= after[i] if asked else value is None


def test_power_is_that_of_one_sampling_period(daemon):
    for query in ("", "?cpu_ids=0"):
        # Constant power, but a counter that moves in steps of 1 ms is read 100 ms apart, and on a
        # machine with other work one of the two readings may come late.
        for _ in range(5):
            told = json_of(daemon.get(f"/cpu/get_power{query}"))
            assert set(told) == {"timestamp_ms", "power_mw"} and told["timestamp_ms"] > 0
            power = told["power_mw"]["0"]
            assert set(power) == {"cpu_mw", "dram_mw"}
            near = pytest.approx(60_000, rel=0.05), pytest.approx(8_000, rel=0.05)
            if (power["cpu_mw"], power["dram_mw"]) == near:
                break
        assert (power["cpu_mw"], power["dram_mw"]) == near


def test_a_package_without_dram_says_null(shared):
    machine = daemons.MACHINE[: daemons.MACHINE.rindex("[[zone]]")]
    daemon = shared(machine=machine)
    assert json_of(daemon.get("/discover"))["cpus"] == [{"id": 0, "dram_available": False}]
    told = json_of(daemon.get(f"{ENERGY}?cpu=true&dram=true"))["0"]
    assert told["cpu_energy_uj"] > 0 and told["dram_energy_uj"] is None
    assert json_of(daemon.get("/cpu/get_power"))["power_mw"]["0"]["dram_mw"] is None


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("cpu=true", ["missing field"]),
        ("dram=true", ["missing field"]),
        ("", ["missing field"]),
        ("cpu=yes&dram=true", ["not `true` or `false`", "invalid"]),
        ("cpu=true&dram=1", ["not `true` or `false`", "invalid"]),
        ("cpu=true&drm=true", ["unknown field", "missing field"]),
        ("cpu=true&dram=true&gpu_ids=0", ["unknown field"]),
        ("cpu=true&dram=true&cpu=true", ["duplicate field"]),
    ],
)
def test_energy_refuses_queries_that_cannot_be_read(daemon, query, words):
    refused_query(daemon.get(f"{ENERGY}?{query}"), *words)


@pytest.mark.parametrize("ids", ["1", "99", "", "0,,0", "x", "-1"])
def test_lists_of_cpus_are_refused_in_json(daemon, ids):
    for target in (
        f"{ENERGY}?cpu=true&dram=true&cpu_ids={ids}",
        f"/cpu/get_power?cpu_ids={ids}",
        f"/cpu/stream_power?cpu_ids={ids}",
    ):
        assert set(json_of(daemon.get(target), 400)) == {"error"}


@pytest.mark.parametrize("target", ["/cpu/get_power?gpu_ids=0", "/cpu/stream_power?gpu_ids=0"])
def test_cpu_routes_know_no_gpus(daemon, target):
    refused_query(daemon.get(target), "unknown field")


def test_a_counter_that_wraps_goes_on(shared):
    # The range is passed in a quarter of a second, while somebody reads more often than that.
    machine = daemons.MACHINE.replace("start_uj = 1e9", "").replace(
        "range_uj = 262143328850", "range_uj = 15000000"
    )
    daemon = shared(machine=machine)
    values, wrapped, last = [], 0, counter_uj(daemon, "intel-rapl:0")
    while wrapped < 2:
        raw = counter_uj(daemon, "intel-rapl:0")
        wrapped += raw < last
        last = raw
        told = json_of(daemon.get(f"{ENERGY}?cpu=true&dram=false"))
        values.append(told["0"]["cpu_energy_uj"])
    assert values == sorted(values)
    assert values[-1] > 15_000_000
