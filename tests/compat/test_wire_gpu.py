"""GPU routes of zeusd: the answers that any daemon of the protocol must give.

Expected values are those of the simulated machine (daemons.MACHINE), read through its vendor library
beside the daemon, and of the protocol's description; each test runs against ours and against the
released zeusd 0.5.0.
"""

import concurrent.futures
import time

import daemons
import pytest
from answers import done, json_of

ALL = "0,1,2,3"


# --- discovery and time ---


def test_discovery_lists_devices_and_groups(daemon):
    node = json_of(daemon.get("/discover"))
    assert [g["id"] for g in node["gpus"]] == [0, 1, 2, 3]
    for gpu in node["gpus"]:
        assert gpu["name"] == "NVIDIA H100 80GB HBM3"
        assert daemon.expected("keys of a GPU in /discover") <= set(gpu)
        assert "vendor" not in gpu
    assert node["cpus"] == [{"id": 0, "dram_available": True}]
    assert node["enabled_api_groups"] == list(daemons.GROUPS)
    assert node["auth_required"] is False


def test_pci_addresses_are_lower_case_with_four_digits_of_domain(daemon):
    gpus = json_of(daemon.get("/discover"))["gpus"]
    if "pci_address" not in daemon.expected("keys of a GPU in /discover"):
        assert all("pci_address" not in gpu for gpu in gpus)
        return
    assert [gpu["pci_address"] for gpu in gpus] == [gpu.pci_address for gpu in daemon.gpus]
    assert all(gpu["cumulative_energy_available"] is True for gpu in gpus)


def test_discovery_ignores_a_query(daemon):
    assert json_of(daemon.get("/discover?nonsense=1")) == json_of(daemon.get("/discover"))


def test_time_is_that_of_the_wall_clock(daemon):
    before = time.time_ns() // 1_000_000
    told = json_of(daemon.get("/time"))
    assert set(told) == {"timestamp_ms"}
    assert before <= told["timestamp_ms"] <= time.time_ns() // 1_000_000


# --- reads ---


def test_power_of_all_and_of_some_gpus(daemon):
    every = json_of(daemon.get("/gpu/get_power"))
    assert set(every) == {"timestamp_ms", "power_mw"}
    assert isinstance(every["timestamp_ms"], int)
    assert list(every["power_mw"].items()) == [(str(i), 150_000) for i in range(4)]
    some = json_of(daemon.get("/gpu/get_power?gpu_ids=0,2"))
    assert some["power_mw"] == {"0": 150_000, "2": 150_000}


def test_ten_reads_of_constant_power_take_less_than_three_seconds(daemon):
    begin = time.monotonic()
    for _ in range(10):
        assert json_of(daemon.get("/gpu/get_power"))["power_mw"]["3"] == 150_000
    assert time.monotonic() - begin < 3  # The deadline of the protocol's own test.


def test_energy_is_the_counter_of_the_vendor(daemon):
    one, gpus = daemon.gpus[1], daemon.gpus
    before = one.energy_mj
    told = json_of(daemon.get("/gpu/get_cumulative_energy?gpu_ids=1"))
    assert set(told) == {"1"} and set(told["1"]) == {"energy_mj"}
    assert before <= told["1"]["energy_mj"] <= one.energy_mj
    before = [gpu.energy_mj for gpu in gpus]
    told = json_of(daemon.get("/gpu/get_cumulative_energy"))
    assert list(told) == ["0", "1", "2", "3"]
    for i, gpu in enumerate(gpus):
        assert before[i] <= told[str(i)]["energy_mj"] <= gpu.energy_mj


def test_limits_their_range_and_persistence(daemon):
    done(daemon.post(f"/gpu/set_power_limit?gpu_ids={ALL}&power_limit_mw=250000&block=true"))
    done(daemon.post(f"/gpu/set_persistence_mode?gpu_ids={ALL}&enabled=true&block=true"))
    for query, ids in (("", "0123"), ("?gpu_ids=0,1", "01"), ("?gpu_ids=3", "3")):
        assert json_of(daemon.get(f"/gpu/get_power_limit{query}")) == {
            i: {"power_limit_mw": 250_000} for i in ids
        }
        assert json_of(daemon.get(f"/gpu/get_power_limit_constraints{query}")) == {
            i: {"min_power_limit_mw": 100_000, "max_power_limit_mw": 300_000} for i in ids
        }
        assert json_of(daemon.get(f"/gpu/get_persistence_mode{query}")) == {
            i: {"enabled": True} for i in ids
        }


READS = [
    "get_power",
    "get_cumulative_energy",
    "get_power_limit",
    "get_power_limit_constraints",
    "get_persistence_mode",
]


@pytest.mark.parametrize("read", READS)
def test_reads_refuse_a_gpu_that_is_not_there(daemon, read):
    told = json_of(daemon.get(f"/gpu/{read}?gpu_ids=0,99"), 400)
    assert set(told) == {"error"} and "99" in told["error"]


# --- writes ---


@pytest.mark.parametrize("block", ["true", "false"])
@pytest.mark.parametrize(
    "write",
    [
        "set_power_limit?power_limit_mw=200000",
        "set_persistence_mode?enabled=true",
        "set_gpu_locked_clocks?min_clock_mhz=500&max_clock_mhz=500",
        "set_mem_locked_clocks?min_clock_mhz=2000&max_clock_mhz=2000",
        "reset_gpu_locked_clocks?",
        "reset_mem_locked_clocks?",
    ],
)
def test_writes_refuse_a_gpu_that_is_not_there_and_change_none(daemon, write, block):
    before = [(g.limit_mw, g.persistence, g.sm_mhz, g.memory_mhz) for g in daemon.gpus]
    answer = daemon.post(f"/gpu/{write}&gpu_ids=0,5&block={block}".replace("?&", "?"))
    assert answer.status_code == 400
    assert answer.content != b""
    assert [(g.limit_mw, g.persistence, g.sm_mhz, g.memory_mhz) for g in daemon.gpus] == before


def test_persistence_follows_each_gpus_own_values_in_order(daemon):
    done(daemon.post(f"/gpu/set_persistence_mode?gpu_ids={ALL}&enabled=false&block=true"))
    assert [g.persistence for g in daemon.gpus] == [False] * 4
    for i in range(10):
        told = "true" if i % 3 else "false"
        done(daemon.post(f"/gpu/set_persistence_mode?gpu_ids={i % 4}&enabled={told}&block=true"))
        assert daemon.gpus[i % 4].persistence is (told == "true")
    done(daemon.post(f"/gpu/set_persistence_mode?gpu_ids={ALL}&enabled=true&block=true"))


def test_power_limits_follow_each_gpus_own_values_in_order(daemon):
    for i in range(10):
        limit = 200_000 + 1000 * i
        done(daemon.post(f"/gpu/set_power_limit?gpu_ids={i % 4}&power_limit_mw={limit}&block=true"))
        assert daemon.gpus[i % 4].limit_mw == limit
    assert [g.limit_mw for g in daemon.gpus] == [208_000, 209_000, 206_000, 207_000]
    assert json_of(daemon.get("/gpu/get_power_limit?gpu_ids=1"))["1"] == {"power_limit_mw": 209_000}


@pytest.mark.parametrize("limit", [99_000, 330_000, 0, 4294967295])
def test_a_limit_out_of_range_is_refused_for_each_gpu(daemon, limit):
    done(daemon.post(f"/gpu/set_power_limit?gpu_ids={ALL}&power_limit_mw=200000&block=true"))
    told = json_of(
        daemon.post(f"/gpu/set_power_limit?gpu_ids=1,3&power_limit_mw={limit}&block=true"), 400
    )
    assert set(told) == {"errors"} and set(told["errors"]) == {"1", "3"}
    assert all(isinstance(text, str) and text for text in told["errors"].values())
    assert [g.limit_mw for g in daemon.gpus] == [200_000] * 4


def test_a_limit_out_of_range_is_not_told_without_block(daemon):
    done(daemon.post(f"/gpu/set_power_limit?gpu_ids=0&power_limit_mw=200000&block=true"))
    done(daemon.post("/gpu/set_power_limit?gpu_ids=0&power_limit_mw=10000&block=false"))
    done(daemon.post("/gpu/set_power_limit?gpu_ids=0&power_limit_mw=200000&block=true"))
    assert daemon.gpus[0].limit_mw == 200_000


def clocks(daemon):
    return [(g.sm_mhz, g.memory_mhz) for g in daemon.gpus]


def test_clocks_are_locked_and_unlocked_gpu_by_gpu(daemon):
    for domain in ("gpu", "mem"):
        done(daemon.post(f"/gpu/reset_{domain}_locked_clocks?gpu_ids={ALL}&block=true"))
    free = clocks(daemon)[0]
    assert clocks(daemon) == [free] * 4 and free[1] == 2619
    for i in range(10):
        mhz = 1500 + 10 * i
        query = f"gpu_ids={i % 4}&min_clock_mhz={mhz}&max_clock_mhz={mhz}&block=true"
        done(daemon.post(f"/gpu/set_gpu_locked_clocks?{query}"))
        done(daemon.post(f"/gpu/set_mem_locked_clocks?{query}"))
        assert clocks(daemon)[i % 4] == (mhz, mhz)
    locked = clocks(daemon)
    assert locked == [(1580, 1580), (1590, 1590), (1560, 1560), (1570, 1570)]
    done(daemon.post("/gpu/reset_gpu_locked_clocks?gpu_ids=2&block=true"))
    locked[2] = (free[0], 1560)
    assert clocks(daemon) == locked
    done(daemon.post("/gpu/reset_mem_locked_clocks?gpu_ids=2,3&block=true"))
    locked[2], locked[3] = free, (1570, free[1])
    assert clocks(daemon) == locked


def test_all_clocks_of_a_gpu_are_reset_by_one_request(daemon):
    query = "gpu_ids=1&min_clock_mhz=1600&max_clock_mhz=1600&block=true"
    for domain in ("gpu", "mem"):
        done(daemon.post(f"/gpu/set_{domain}_locked_clocks?{query}"))
    answer = daemon.post("/gpu/reset_locked_clocks?gpu_ids=1&block=true")
    assert answer.status_code == daemon.expected("POST /gpu/reset_locked_clocks")
    assert (clocks(daemon)[1] == (1600, 1600)) is (answer.status_code != 200)
    for domain in ("gpu", "mem"):
        done(daemon.post(f"/gpu/reset_{domain}_locked_clocks?gpu_ids=1&block=true"))


# --- order ---

# From its third second on each of these entry points of GPU 3 refuses after eleven calls.
COUNTED = "".join(
    f'\n[[fault]]\ngpu = 3\ncall = "{call}"\nat = "3s"\nafter_calls = 11\ncode = 4\n'
    for call in ("nvmlDeviceSetPowerManagementLimit", "set_persistence",
                 "nvmlDeviceSetGpuLockedClocks", "nvmlDeviceSetMemoryLockedClocks")
)  # fmt: skip

WRITES = {
    "set_power_limit": (
        lambda i: f"power_limit_mw={200_000 + i}",
        lambda g: g.limit_mw,
        lambda i: 200_000 + i,
    ),
    "set_persistence_mode": (
        lambda i: f"enabled={str(i % 2 == 0).lower()}",
        lambda g: g.persistence,
        lambda i: i % 2 == 0,
    ),
    "set_gpu_locked_clocks": (
        lambda i: f"min_clock_mhz={500 + i}&max_clock_mhz={500 + i}",
        lambda g: g.sm_mhz,
        lambda i: 500 + i,
    ),
    "set_mem_locked_clocks": (
        lambda i: f"min_clock_mhz={1500 + i}&max_clock_mhz={1500 + i}",
        lambda g: g.memory_mhz,
        lambda i: 1500 + i,
    ),
}


def test_a_blocking_write_waits_for_those_before_it_and_none_is_lost(serve):
    daemon = serve(machine=daemons.MACHINE + COUNTED)
    daemon.wait_for_second(3)
    for name, (value, seen, wanted) in WRITES.items():
        with concurrent.futures.ThreadPoolExecutor(10) as pool:
            targets = [f"/gpu/{name}?gpu_ids=3&{value(i)}&block=false" for i in range(10)]
            for answer in pool.map(daemon.post, targets):
                done(answer)
        done(daemon.post(f"/gpu/{name}?gpu_ids=3&{value(10)}&block=true"))
        assert seen(daemon.gpus[3]) == wanted(10)
        # That there were exactly eleven calls shows in the twelfth, the first that the device refuses.
        told = json_of(daemon.post(f"/gpu/{name}?gpu_ids=3&{value(11)}&block=true"), 403)
        assert set(told["errors"]) == {"3"}
        assert seen(daemon.gpus[3]) == wanted(10)


def test_a_refused_blocking_write_leaves_those_before_it(daemon):
    for i in range(10):
        target = f"/gpu/set_power_limit?gpu_ids=2&power_limit_mw={200_000 + 1000 * i}&block=false"
        done(daemon.post(target))
    target = "/gpu/set_power_limit?gpu_ids=2&power_limit_mw=350000&block=true"
    assert set(json_of(daemon.post(target), 400)["errors"]) == {"2"}
    assert daemon.gpus[2].limit_mw == 209_000


# --- devices that fail ---

# NVML's codes: 2 invalid argument, 3 not supported, 4 no permission, 15 lost, 999 unknown.


def failing(shared, call: str, *codes: tuple[int, int]) -> daemons.Daemon:
    """A machine whose GPUs begin to fail when the daemon knows them already."""
    machine = daemons.MACHINE
    for gpu, code in codes:
        machine += f'\n[[fault]]\ngpu = {gpu}\ncall = "{call}"\nat = "3s"\ncode = {code}\n'
    daemon = shared(machine=machine)
    daemon.wait_for_second(3)
    return daemon


@pytest.mark.parametrize(
    ("ids", "status"),
    [("3", 200), ("1", 400), ("0", 403), ("2", 500), ("1,3", 400), ("0,1", 403), ("0,1,2,3", 500)],
)
def test_a_write_tells_the_worst_status_and_only_who_failed(shared, ids, status):
    daemon = failing(shared, "set_limit", (0, 4), (1, 2), (2, 15))
    limit = 200_000 + 1000 * len(ids)
    answer = daemon.post(f"/gpu/set_power_limit?gpu_ids={ids}&power_limit_mw={limit}&block=true")
    if status == 200:
        done(answer)
    else:
        told = json_of(answer, status)
        assert set(told) == {"errors"} and set(told["errors"]) == set(ids.split(",")) - {"3"}
    if "3" in ids:
        assert daemon.gpus[3].limit_mw == limit
    done(daemon.post(f"/gpu/set_power_limit?gpu_ids={ids}&power_limit_mw={limit}&block=false"))


@pytest.mark.parametrize(("ids", "status"), [("0", 200), ("0,1", 400), ("3,1", 403), ("", 500)])
def test_a_read_fails_whole_with_the_worst_status(shared, ids, status):
    daemon = failing(shared, "limit", (1, 3), (2, 999), (3, 4))
    for read in ("get_power_limit", "get_power_limit_constraints"):
        told = json_of(daemon.get(f"/gpu/{read}" + (ids and f"?gpu_ids={ids}")), status)
        if status == 200:
            assert set(told) == {"0"}
        else:
            assert set(told) == {"errors"}
            assert set(told["errors"]) == set(ids.split(",") if ids else "123") - {"0"}


# --- groups ---


def test_only_reading_of_gpus(shared):
    daemon = shared("--enable", "gpu-read")
    node = json_of(daemon.get("/discover"))
    assert len(node["gpus"]) == 4 and node["cpus"] == []
    assert node["enabled_api_groups"] == ["gpu-read"]
    for read in READS:
        json_of(daemon.get(f"/gpu/{read}"))
    for target in (
        "/gpu/set_power_limit?gpu_ids=0&power_limit_mw=200000&block=true",
        "/gpu/set_persistence_mode?gpu_ids=0&enabled=true&block=true",
        "/gpu/reset_gpu_locked_clocks?gpu_ids=0&block=true",
        "/gpu/set_anything",
        "/gpu/reset_anything",
    ):
        assert set(json_of(daemon.post(target), 404)) == {"error"}
    assert set(json_of(daemon.get("/cpu/get_power"), 404)) == {"error"}


def test_only_control_of_gpus(shared):
    daemon = shared("--enable", "gpu-control")
    node = json_of(daemon.get("/discover"))
    assert len(node["gpus"]) == 4 and node["enabled_api_groups"] == ["gpu-control"]
    done(daemon.post("/gpu/set_power_limit?gpu_ids=0&power_limit_mw=200000&block=true"))
    assert daemon.gpus[0].limit_mw == 200_000
    for read in READS:
        assert set(json_of(daemon.get(f"/gpu/{read}"), 404)) == {"error"}


def test_only_reading_of_cpus(shared):
    node = json_of(shared("--enable", "cpu-read").get("/discover"))
    assert node["gpus"] == [] and node["cpus"] == [{"id": 0, "dram_available": True}]
    assert node["enabled_api_groups"] == ["cpu-read"]


def test_groups_are_told_in_the_order_of_the_command_line(shared):
    daemon = shared("--enable", "cpu-read", "--enable", "gpu-read,gpu-control")
    assert json_of(daemon.get("/discover"))["enabled_api_groups"] == [
        "cpu-read",
        "gpu-read",
        "gpu-control",
    ]


def test_a_machine_without_gpus_answers_with_empty_maps(shared):
    zones = daemons.MACHINE[daemons.MACHINE.index("[[zone]]") :]
    daemon = shared(machine='name = "none"\n[nvml]\n' + zones)
    assert json_of(daemon.get("/discover"))["gpus"] == []
    assert json_of(daemon.get("/gpu/get_power"))["power_mw"] == {}
    assert json_of(daemon.get("/gpu/get_power_limit")) == {}
