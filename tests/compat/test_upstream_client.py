"""Upstream's own Python client 0.16.0 against zeusd: one session, the same outcomes for both daemons.

The client's two classes that only talk to a daemon run in this process; ZeusMonitor and the device
classes also want the driver and the powercap files, so they run as a process inside the daemon's machine.
"""

import asyncio
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

import daemons
import pytest
from daemons import token
from test_wire_stream import STEPPING
from zeus.device.exception import ZeusdError
from zeus.monitor.power_streaming import PowerStreamingClient
from zeus.utils import zeusd


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    """The client sends its requests, tokens included, where these say."""
    for name in ("HTTP_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def config(daemon, bearer: str | None = None, **options) -> zeusd.ZeusdConfig:
    if daemon.path:
        return zeusd.ZeusdConfig.uds(daemon.path, token=bearer, **options)
    return zeusd.ZeusdConfig.tcp(*daemon.tcp, token=bearer, **options)


@pytest.fixture(params=["tcp", "uds"])
def client(request, which, shared, tmp_path_factory) -> zeusd.ZeusdClient:
    uds = {"uds": tmp_path_factory.getbasetemp() / f"s-{which}"} if request.param == "uds" else {}
    made = zeusd.ZeusdClient(config(daemon := shared(**uds)))
    made.daemon = daemon
    return made


# --- ZeusdClient ---


def test_the_client_finds_devices_and_capabilities(client):
    assert client.gpu_ids == [0, 1, 2, 3] and client.cpu_ids == [0]
    assert {g.name for g in client.gpus} == {"NVIDIA H100 80GB HBM3"}
    assert client.dram_available == [True]
    assert (client.auth_required, client.auth_error, client.granted_scopes) == (
        False,
        None,
        frozenset(),
    )
    assert client.can_read_gpu and client.can_control_gpu and client.can_read_cpu
    zeusd.require_capabilities(
        client, read_gpu=True, control_gpu=True, read_cpu=True, gpu_ids=[0, 3], cpu_ids=[0]
    )
    with pytest.raises(zeusd.ZeusdCapabilityError, match=r"GPU indices \[4\] not available"):
        zeusd.require_capabilities(client, gpu_ids=[4])


def test_the_client_reads(client):
    gpus = client.daemon.gpus
    before = [g.energy_mj for g in gpus]
    energy = client.get_gpu_energy([0, 1, 2, 3])
    assert list(energy) == [0, 1, 2, 3]
    assert all(before[i] <= energy[i] <= g.energy_mj for i, g in enumerate(gpus))
    assert client.get_gpu_power().power_mw == dict.fromkeys(range(4), 150_000)
    snapshot = client.get_gpu_power([3, 1])
    assert snapshot.power_mw == {1: 150_000, 3: 150_000}
    assert abs(snapshot.timestamp_ms / 1000 - time.time()) < 60
    assert client.get_power_limit_constraints([0, 2]) == {
        0: (100_000, 300_000),
        2: (100_000, 300_000),
    }
    assert len(client.get_power_limit()) == len(client.get_persistence_mode()) == 4
    cpu = client.get_cpu_energy()[0]
    assert cpu.cpu_energy_uj > 1e9 and cpu.dram_energy_uj > 5e8
    cpu = client.get_cpu_energy([0], cpu=False, dram=False)[0]
    assert (cpu.cpu_energy_uj, cpu.dram_energy_uj) == (None, None)
    power = client.get_cpu_power([0]).power_mw[0]
    assert power.cpu_mw == pytest.approx(60_000, rel=0.05)
    assert power.dram_mw == pytest.approx(8_000, rel=0.05)
    assert abs(client.get_time() - time.time()) < 60


def test_the_client_sets(client):
    gpus = client.daemon.gpus
    client.reset_gpu_locked_clocks([0, 1, 2, 3])
    client.reset_mem_locked_clocks([0, 1, 2, 3])
    free = gpus[0].sm_mhz, gpus[0].memory_mhz
    client.set_power_limit([0, 2], 180_000)
    client.set_power_limit([1], 190_000, block=False)
    client.set_power_limit([1], 170_000)
    assert [g.limit_mw for g in gpus[:3]] == [180_000, 170_000, 180_000]
    assert client.get_power_limit([0, 1]) == {0: 180_000, 1: 170_000}
    client.set_persistence_mode([3], False)
    assert client.get_persistence_mode([3]) == {3: False} and not gpus[3].persistence
    client.set_persistence_mode([3], True, block=False)
    client.set_persistence_mode([3], True)
    assert client.get_persistence_mode([3]) == {3: True}
    client.set_gpu_locked_clocks([1, 2], 700, 700)
    client.set_mem_locked_clocks([2], 1500, 1500)
    assert [(g.sm_mhz, g.memory_mhz) for g in gpus[1:3]] == [(700, free[1]), (700, 1500)]
    client.reset_gpu_locked_clocks([1, 2])
    client.reset_mem_locked_clocks([2])
    assert [(g.sm_mhz, g.memory_mhz) for g in gpus] == [free] * 4


def test_the_client_is_told_what_failed(client):
    client.set_power_limit([1], 180_000)
    for failing, name in (
        (lambda: client.set_power_limit([1], 99_000), "set_power_limit"),
        (lambda: client.set_power_limit([7], 180_000), "set_power_limit"),
        (lambda: client.set_gpu_locked_clocks([0], 900, 800), "set_gpu_locked_clocks"),
        (lambda: client.get_gpu_power([9]), "get_gpu_power"),
        (lambda: client.get_gpu_power([]), "get_gpu_power"),
        (lambda: client.get_gpu_energy([9]), "get_gpu_energy"),
        (lambda: client.get_cpu_energy([1]), "get_cpu_energy"),
    ):
        with pytest.raises(ZeusdError, match=f"Failed to {name}"):
            failing()
    client.set_power_limit([1], 99_000, block=False)  # Nobody is told.
    client.set_power_limit([1], 180_000)
    assert client.daemon.gpus[1].limit_mw == 180_000


def test_the_client_knows_what_its_token_allows(guarded):
    made = zeusd.ZeusdClient(config(guarded, token("eve", ["gpu-read"], exp=9999999999)))
    assert made.auth_required and made.auth_error is None
    assert made.granted_scopes == {"gpu-read"}
    assert (made.can_read_gpu, made.can_control_gpu, made.can_read_cpu) == (True, False, False)
    assert made.get_gpu_power([0]).power_mw == {0: 150_000}
    with pytest.raises(ZeusdError, match="Failed to set_power_limit"):
        made.set_power_limit([0], 200_000)
    with pytest.raises(ZeusdError, match="Failed to get_cpu_power"):
        made.get_cpu_power()
    with pytest.raises(zeusd.ZeusdCapabilityError, match="lacks required scope 'gpu-control'"):
        zeusd.require_capabilities(made, control_gpu=True)


@pytest.mark.parametrize("bearer", [None, "garbage", token(exp=1000000000)])
def test_a_client_without_a_good_token_can_only_look(guarded, bearer):
    made = zeusd.ZeusdClient(config(guarded, bearer))
    assert made.auth_required and made.auth_error is not None
    assert made.gpu_ids == [0, 1, 2, 3]
    assert not (made.can_read_gpu or made.can_control_gpu or made.can_read_cpu)
    with pytest.raises(ZeusdError):
        made.get_gpu_power()
    with pytest.raises(zeusd.ZeusdAuthError):
        zeusd.require_capabilities(made)


def test_the_client_sees_which_groups_are_off(shared):
    made = zeusd.ZeusdClient(config(shared("--enable", "gpu-read")))
    assert (made.can_read_gpu, made.can_control_gpu, made.can_read_cpu) == (True, False, False)
    assert made.cpus == []
    with pytest.raises(zeusd.ZeusdCapabilityError, match="'cpu-read' is not enabled"):
        zeusd.require_capabilities(made, read_cpu=True)


def test_no_daemon_is_a_connection_error(tmp_path):
    for nowhere in (
        zeusd.ZeusdConfig.uds(str(tmp_path / "none")),
        zeusd.ZeusdConfig.tcp("127.0.0.1", daemons.free_port()),
    ):
        with pytest.raises(zeusd.ZeusdConnectionError):
            zeusd.ZeusdClient(nowhere)


# --- PowerStreamingClient ---


@pytest.fixture
def streaming(shared):
    """Makes streaming clients of a machine whose power changes all the time, and stops them."""
    made = []

    def make(bearer: str | None = None, **options):
        daemon = shared(machine=STEPPING, key=daemons.KEY)
        servers = [config(daemon, bearer or token(), **options)]
        made.append(PowerStreamingClient(servers, reconnect_delay_s=0.1))
        return servers[0].endpoint, made[-1]

    yield make
    for one in made:
        one.stop()


def whole(readings, endpoint, gpus=frozenset(range(4)), cpus=frozenset({0})) -> bool:
    here = readings.get(endpoint)
    return here is not None and set(here.gpu_power_w) == gpus and set(here.cpu_power_w) == cpus


def plausible(readings) -> None:
    assert all(100 <= watts <= 250 for watts in readings.gpu_power_w.values())
    for cpu in readings.cpu_power_w.values():
        assert 30 < cpu.cpu_w < 120 and 4 < cpu.dram_w < 16
    assert abs(readings.timestamp_s - time.time()) < 60


def test_the_blocking_iterator_follows_all_devices_until_it_is_stopped(streaming):
    endpoint, power = streaming()
    seen = 0
    for readings in power:
        if whole(readings, endpoint):
            plausible(readings[endpoint])
            if (seen := seen + 1) == 20:
                power.stop()
    assert seen == 20
    assert whole(power.get_power(), endpoint)


def test_the_async_iterator_follows_all_devices_until_it_is_stopped(streaming):
    endpoint, power = streaming()

    async def follow() -> int:
        seen = 0
        async for readings in power:
            if whole(readings, endpoint):
                plausible(readings[endpoint])
                if (seen := seen + 1) == 20:
                    threading.Thread(target=power.stop).start()
        return seen

    assert asyncio.run(follow()) >= 20


def test_only_the_devices_asked_for_are_streamed(streaming):
    endpoint, power = streaming(gpu_indices=[3, 1], cpu_indices=[])
    for i, readings in enumerate(power):
        assert set(readings[endpoint].gpu_power_w) <= {1, 3}
        assert readings[endpoint].cpu_power_w == {}
        if i >= 10 and whole(readings, endpoint, {1, 3}, set()):
            break


def test_streams_that_cannot_be_are_refused_at_once(streaming):
    with pytest.raises(ValueError):
        streaming(gpu_indices=[9])
    with pytest.raises(zeusd.ZeusdCapabilityError):
        streaming(token(scopes=["cpu-read"]), gpu_indices=[0])
    endpoint, power = streaming(token(scopes=["cpu-read"]))
    for readings in power:
        assert readings[endpoint].gpu_power_w == {}
        if whole(readings, endpoint, set()):
            break


# --- ZeusMonitor and the device classes ---

MONITOR = """
import json, os, time, warnings
warnings.simplefilter("ignore")
from zeus.device import get_cpus, get_gpus
from zeus.monitor import ZeusMonitor
import pynvml
monitor = ZeusMonitor()
gpus, cpus = get_gpus(), get_cpus()
out = {"classes": [type(gpus.gpus[0]).__name__, type(cpus.cpus[0]).__name__]}
monitor.begin_window("w", sync_execution=False)
time.sleep(1)
m = monitor.end_window("w", sync_execution=False)
out["window"] = {"s": m.time, "gpu": m.gpu_energy, "cpu": m.cpu_energy, "dram": m.dram_energy}
gpus.set_power_management_limit(1, 160_000)
out["limit"] = gpus.get_power_management_limit(1)
gpus.set_gpu_locked_clocks(1, 600, 600)
out["clock"] = pynvml.nvmlDeviceGetClockInfo(gpus.gpus[1].handle, pynvml.NVML_CLOCK_SM)
gpus.reset_gpu_locked_clocks(1)
gpus.set_persistence_mode(1, False)
out["persistence"] = gpus.gpus[1].get_persistence_mode()
gpus.set_persistence_mode(1, True)
try:
    gpus.set_power_management_limit(1, 999_000)
    out["refusal"] = None
except Exception as e:
    out["refusal"] = type(e).__name__
gpus.reset_power_management_limit(1)
out["reset"] = gpus.get_power_management_limit(1)
print(json.dumps(out))
"""


def inside(daemon, *arguments: str, **environment: str) -> str:
    """What Python prints on the machine of the daemon: its files, its vendor library."""
    machine = {}
    for entry in pathlib.Path(f"/proc/{daemon.pid}/environ").read_bytes().split(b"\0"):
        name, _, value = entry.decode().partition("=")
        if name in ("ZEUS_SIM_SESSION", "LD_LIBRARY_PATH"):
            machine[name] = value
    done = subprocess.run(
        ["nsenter", "-t", str(daemon.pid), "-m", "--", sys.executable, *arguments],
        env={**os.environ, **machine, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_monitor_measures_and_sets_through_the_daemon(serve, tmp_path):
    daemon = serve(uds=tmp_path / "s")
    script = tmp_path / "monitor.py"
    script.write_text(MONITOR)
    out = json.loads(inside(daemon, str(script), ZEUSD_SOCK_PATH=daemon.path).splitlines()[-1])
    assert out["classes"] == ["ZeusdNVIDIAGPU", "ZeusdRAPLCPU"]
    window, seconds = out["window"], out["window"]["s"]
    # Counters that move every 20 ms (GPU) and 1 ms (CPU); the reads at both ends take their time.
    for joules, watts in [*((j, 150) for j in window["gpu"].values()), (window["cpu"]["0"], 60),
                          (window["dram"]["0"], 8)]:  # fmt: skip
        assert joules == pytest.approx(watts * seconds, rel=0.1)
    assert len(window["gpu"]) == 4
    assert (out["limit"], out["reset"]) == (160_000, 300_000)
    assert out["clock"] == 600 and out["persistence"] is False
    assert out["refusal"] == "ZeusdError"
    assert daemon.gpus[1].limit_mw == 300_000


def test_a_cpu_that_only_the_daemon_may_read_is_measured_with_a_token(serve, tmp_path):
    daemon = serve(key=daemons.KEY)
    script = tmp_path / "cpu.py"
    script.write_text(
        "import json; from zeus.device import get_cpus\n"
        "m = get_cpus().get_total_energy_consumption(0); print(json.dumps([m.cpu_mj, m.dram_mj]))"
    )
    where = {"ZEUSD_HOST_PORT": f"{daemon.tcp[0]}:{daemon.tcp[1]}"}
    told = json.loads(inside(daemon, str(script), ZEUSD_TOKEN=token(scopes=["cpu-read"]), **where))
    assert told[0] > 1e6 and told[1] > 5e5  # Millijoules: the counters began at 1000 and 500 J.


def test_show_env_names_the_daemon(serve, tmp_path):
    daemon = serve(uds=tmp_path / "s")
    told = inside(daemon, "-m", "zeus.show_env", ZEUSD_SOCK_PATH=daemon.path)
    assert daemon.path in told
