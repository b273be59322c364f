"""get_cpus() on simulated machines, without rights, and through a daemon."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import zeus.device.cpu
from zeus.device.cpu import get_cpus, rapl
from zeus.device.cpu.common import CpuDramMeasurement, ZeusCPUInitError
from zeus.device.exception import ZeusdError

ZONE = """
[[zone]]
path = "{path}"
name = "{name}"
power = {{ watts = {watts} }}
mode = "{mode}"
"""


def zone(path: str, name: str, watts: float = 10, mode: str = "0444") -> str:
    return ZONE.format(path=path, name=name, watts=watts, mode=mode)


def run_source(source: str, *before: str, **environment: str) -> Any:
    """Run Python in a process of its own; give what it printed last."""
    done = subprocess.run(
        [*before, sys.executable, "-c", source],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_importing_devices_opens_nothing_and_loads_no_client() -> None:
    source = """
import sys, json
before = set(sys.modules)
import zeus.device
heavy = ("zeus._core", "httpx", "numpy", "torch", "multiprocessing", "asyncio", "requests")
print(json.dumps([m for m in heavy if m in sys.modules]))
"""
    assert run_source(source) == []
    # The package of CPUs loads the core, and opens nothing with it either.
    assert run_source(source.replace("zeus.device", "zeus.device.cpu")) == ["zeus._core"]
    source = "import zeus.device; print(zeus.device.soc.__name__.count('.'))"
    assert run_source(source) == 2  # Its packages are there without an import of their own.


def test_the_three_getters_are_those_of_their_packages() -> None:
    import zeus.device
    import zeus.device.gpu
    import zeus.device.soc

    assert zeus.device.get_cpus is zeus.device.cpu.get_cpus
    assert zeus.device.get_gpus is zeus.device.gpu.get_gpus
    assert zeus.device.get_soc is zeus.device.soc.get_soc
    with pytest.raises(AttributeError, match="get_tpus"):
        _ = zeus.device.get_tpus  # type: ignore[attr-defined]


# field failure 1
# field failure 2
# field failure 10
# field failure 11
# weakness R3
def test_a_laptop_has_one_cpu_whatever_else_it_counts(simulated: Callable[[str], None]) -> None:
    simulated("laptop")  # Two providers of one package, core, uncore, dram, and psys.
    cpus = get_cpus()
    assert [cpu.id for cpu in cpus.cpus] == ["package-0"]
    assert cpus.supports_get_dram_energy_consumption(0)


# field failure 21
# field failure 16
def test_two_sockets_and_their_dram_are_apart(simulated: Callable[[str], None]) -> None:
    simulated(
        zone("intel-rapl:0", "package-0", 100)
        + zone("intel-rapl:0:0", "dram", 30)
        + zone("intel-rapl:1", "package-1", 50)
    )
    cpus = get_cpus()

    def read(index: int) -> tuple[float, CpuDramMeasurement, float]:
        early_s = time.monotonic()
        return early_s, cpus.get_total_energy_consumption(index), time.monotonic()

    begins = [read(i) for i in (0, 1)]
    time.sleep(0.2)
    ends = [read(i) for i in (0, 1)]

    def assert_gained(index: int, gained_mj: float, watts: float) -> None:
        slack_s = 0.0011  # Counters are published every millisecond.
        shortest_s = ends[index][0] - begins[index][2] - slack_s
        longest_s = ends[index][2] - begins[index][0] + slack_s
        assert watts * shortest_s <= gained_mj / 1e3 <= watts * longest_s

    first, second = (end[1] - begin[1] for begin, end in zip(begins, ends, strict=True))
    assert first.dram_mj is not None
    assert_gained(0, first.cpu_mj, 100)
    assert_gained(0, first.dram_mj, 30)
    assert_gained(1, second.cpu_mj, 50)
    assert second.dram_mj is None


def test_the_object_is_one_for_all_threads(simulated: Callable[[str], None]) -> None:
    simulated("xeon-2s")
    found = []
    together = threading.Barrier(8)

    def find() -> None:
        together.wait()
        found.append(get_cpus())

    threads = [threading.Thread(target=find) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(cpus is zeus.device.cpu._cpus for cpus in found)


# weakness F1
def test_a_forked_child_reads_on(simulated: Callable[[str], None]) -> None:
    simulated(zone("intel-rapl:0", "package-0"))
    cpus = get_cpus()
    before_mj = cpus.get_total_energy_consumption(0).cpu_mj
    pid = os.fork()
    if pid == 0:
        ok = get_cpus() is cpus and cpus.get_total_energy_consumption(0).cpu_mj >= before_mj
        os._exit(0 if ok else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert cpus.get_total_energy_consumption(0).cpu_mj >= before_mj


# field failure 142
def test_a_machine_without_counters_says_why(simulated: Callable[[str], None]) -> None:
    simulated("grace-hopper")
    with pytest.raises(
        ZeusCPUInitError, match=r"ZEUS_HOST=sim:grace-hopper.*no power counters of CPUs"
    ):
        get_cpus()
    assert zeus.device.cpu._cpus is None
    simulated("xeon-2s")
    assert len(get_cpus()) == 2


AS_NOBODY = """
import json, os, warnings, logging
logging.basicConfig(filename=os.environ["LOG"])
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
from zeus.device.cpu import get_cpus
try:
    cpus = get_cpus()
    print(json.dumps([(c.id, c.supports_get_dram_energy_consumption(),
                       c.get_total_energy_consumption().cpu_mj > 0) for c in cpus.cpus]))
except Exception as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""


@pytest.fixture
def as_nobody(programs: pathlib.Path, tmp_path: pathlib.Path) -> Callable[[str], Any]:
    """Finds the CPUs of a scenario without any right, in files that the system itself guards."""
    if os.geteuid() != 0:
        pytest.skip("only root can give up its rights")

    def run(scenario: str) -> Any:
        file = tmp_path / "scenario.toml"
        file.write_text(scenario)
        log = str(tmp_path / "log")
        command = (str(programs / "zeus"), "sim", "run", str(file), "--")
        return run_source(AS_NOBODY, *command, HOME="/nowhere", LOG=log)

    return run


# field failure 31
# field failure 33
# field failure 30
def test_closed_counters_are_said_with_the_ways_out(as_nobody: Callable[[str], Any]) -> None:
    kind, sentence = as_nobody(zone("intel-rapl:0", "package-0", mode="0400"))
    assert kind == "ZeusCPUNoPermissionError"
    assert "/sys/class/powercap/intel-rapl:0/energy_uj: Permission denied" in sentence
    for way_out in ("join the group", "run zeusd", "run as root"):
        assert way_out in sentence


# field failure 27
# weakness R4
def test_closed_dram_leaves_the_package(
    as_nobody: Callable[[str], Any], tmp_path: pathlib.Path
) -> None:
    assert as_nobody(
        zone("intel-rapl:0", "package-0") + zone("intel-rapl:0:0", "dram", mode="0400")
    ) == [["package-0", False, True]]
    assert "intel-rapl:0:0/energy_uj: Permission denied" in (tmp_path / "log").read_text()


# field failure 32
# field failure 35
def test_one_closed_socket_leaves_the_other(
    as_nobody: Callable[[str], Any], tmp_path: pathlib.Path
) -> None:
    assert as_nobody(
        zone("intel-rapl:0", "package-0", mode="0400") + zone("intel-rapl:1", "package-1")
    ) == [["package-1", False, True]]
    assert "intel-rapl:0/energy_uj: Permission denied" in (tmp_path / "log").read_text()


# weakness E6
def test_a_daemon_that_is_not_there_is_no_machine_without_cpus(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    path = str(tmp_path / "zeusd.sock")
    monkeypatch.setenv("ZEUSD_SOCK_PATH", path)
    with pytest.raises(ZeusCPUInitError, match=f"ZEUSD_SOCK_PATH={path}.*cannot reach zeusd"):
        get_cpus()
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(path)
    with pytest.raises(ZeusCPUInitError, match=r"ZEUSD_SOCK_PATH.*connection refused"):
        get_cpus()
    assert zeus.device.cpu._cpus is None


@contextlib.contextmanager
def running_zeusd(
    programs: pathlib.Path, folder: pathlib.Path, *arguments: str
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    path = folder / "zeusd.sock"
    command = [
        *(str(programs / "zeusd"), "serve", "--allow-simulated", "--socket-path", str(path)),
        *("--journal", str(folder / "journal"), *arguments),
    ]
    with (
        open(folder / "zeusd.log", "w") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            until = time.monotonic() + 30
            while "serves" not in (folder / "zeusd.log").read_text():
                assert process.poll() is None and time.monotonic() < until
                time.sleep(0.02)
            yield str(path), process
        finally:
            process.kill()


# field failure 139
def test_the_daemon_that_the_environment_names_is_read_by_the_core(
    programs: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_zeusd(programs, tmp_path, "--host", "sim:xeon-2s") as (path, _):
        monkeypatch.setenv("ZEUSD_SOCK_PATH", path)
        monkeypatch.setitem(sys.modules, "httpx", None)  # It is not needed.
        cpus = get_cpus()
        assert [cpu.cpu_index for cpu in cpus.cpus] == [0, 1]
        for cpu in cpus.cpus:
            assert isinstance(cpu, rapl.ZeusdRAPLCPU)
            assert cpu.dram_available and cpu.supports_get_dram_energy_consumption()
            first = cpu.get_total_energy_consumption()
            later = cpu.get_total_energy_consumption()
            assert 0 < first.cpu_mj <= later.cpu_mj
            assert first.dram_mj is not None and later.dram_mj is not None
            assert 0 < first.dram_mj <= later.dram_mj
            with pytest.raises(rapl.ZeusRAPLFileInitError, match="has no files here"):
                _ = cpu.rapl_file


def test_a_daemon_that_serves_no_cpu_says_so(
    programs: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("--host", "sim:h100x8", "--enable", "gpu-read")
    with running_zeusd(programs, tmp_path, *arguments) as (path, _):
        monkeypatch.setenv("ZEUSD_SOCK_PATH", path)
        with pytest.raises(rapl.ZeusCPUNoPermissionError, match="does not serve cpu-read"):
            get_cpus()


def test_a_client_that_is_given_reads_what_the_core_reads(
    programs: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from zeus.utils.zeusd import ZeusdCapabilityError, ZeusdClient, ZeusdConfig

    with running_zeusd(programs, tmp_path, "--host", "sim:xeon-2s") as (path, process):
        client = ZeusdClient(ZeusdConfig.uds(path))
        monkeypatch.setenv("ZEUSD_SOCK_PATH", path)
        core = get_cpus().cpus[1]
        given = rapl.ZeusdRAPLCPU(1, client)
        assert given.cpu_index == 1
        assert given.supports_get_dram_energy_consumption()
        with pytest.raises(ZeusdCapabilityError, match="CPU indices"):
            rapl.ZeusdRAPLCPU(7, client)
        # Each reading lies between the two around it.
        before = core.get_total_energy_consumption()
        between = given.get_total_energy_consumption()
        after = core.get_total_energy_consumption()
        assert before.cpu_mj <= between.cpu_mj <= after.cpu_mj

        process.kill()
        process.wait()
        with pytest.raises(ZeusdError, match="cannot read the energy of CPU 1 from zeusd at"):
            given.get_total_energy_consumption()
        with pytest.raises(rapl.ZeusBaseCPUError, match="cannot read the energy of package-1"):
            core.get_total_energy_consumption()


def test_energy_that_the_daemon_left_out_is_no_zero() -> None:
    from zeus.utils.zeusd import CpuEnergyResult, CpuInfo

    class Client:
        """Answers as a daemon whose counter cannot be read."""

        endpoint = "here"
        auth_error = None
        can_read_cpu = True
        gpu_ids: tuple[int, ...] = ()
        cpu_ids = (0,)
        cpus = (CpuInfo(0, True),)
        answer = CpuEnergyResult(None, None)

        def get_cpu_energy(self, *_: object, **__: object) -> dict[int, CpuEnergyResult]:
            return {0: self.answer}

    client = Client()
    cpu = rapl.ZeusdRAPLCPU(0, client)  # type: ignore[arg-type]
    with pytest.raises(ZeusdError, match="told no energy of CPU 0"):
        cpu.get_total_energy_consumption()
    client.answer = CpuEnergyResult(5000, None)
    with pytest.raises(ZeusdError, match="told no DRAM energy of CPU 0"):
        cpu.get_total_energy_consumption()
    client.answer = CpuEnergyResult(5000, 1000)
    assert cpu.get_total_energy_consumption() == CpuDramMeasurement(5, 1)
