"""RAPL zones in trees of files, and packages that the core reads."""

from __future__ import annotations

import gc
import os
import pathlib
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable

import pytest

from zeus.device.cpu import get_cpus, rapl
from zeus.device.cpu.common import ZeusCPUInitError, ZeusCPUNotFoundError
from zeus.device.exception import ZeusBaseCPUError

RANGE_UJ = 262_143_328_850
DRAM_RANGE_UJ = 65_712_999_613


class Tree:
    """A tree of zones as powercap shows them, in another folder."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.rapl_dir = folder / "class" / "powercap" / "intel-rapl"

    def zone(
        self, name: str, *ids: int | str, energy_uj: int | str = 1, range_uj: int | None = RANGE_UJ
    ) -> pathlib.Path:
        """Make `intel-rapl:A`, or `intel-rapl:A:B` under it."""
        parts = [":".join(["intel-rapl", *map(str, ids[: i + 1])]) for i in range(len(ids))]
        zone = self.rapl_dir.joinpath(*parts)
        zone.mkdir(parents=True, exist_ok=True)
        (zone / "name").write_text(f"{name}\n")
        (zone / "energy_uj").write_text(f"{energy_uj}\n")
        if range_uj is not None:
            (zone / "max_energy_range_uj").write_text(f"{range_uj}\n")
        return zone


@pytest.fixture
def tree(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    # With a colon in the path of the folder, as mounts may have.
    made = Tree(tmp_path / "a:b")
    monkeypatch.setattr(rapl, "RAPL_DIR", str(made.rapl_dir))
    monkeypatch.setattr(rapl, "CONTAINER_RAPL_DIR", "/nowhere")
    return made


def write(zone: pathlib.Path, energy_uj: int | str) -> None:
    """Replace the counter in one step, so that no reader sees half of it."""
    new = zone / "new"
    new.write_text(f"{energy_uj}\n")
    new.rename(zone / "energy_uj")


# field failure 1
# field failure 2
# weakness R3
def test_packages_are_cpus_and_the_platform_is_none(tree: Tree) -> None:
    tree.zone("package-0", 0, energy_uj=100_000_000)
    tree.zone("core", 0, 0, energy_uj=60_000_000)
    tree.zone("uncore", 0, 1, energy_uj=10_000_000)
    tree.zone("dram", 0, 2, energy_uj=8_000_000)
    tree.zone("psys", 1, energy_uj=150_000_000)
    cpus = rapl.RAPLCPUs()
    assert len(cpus) == 1
    assert cpus.supports_get_dram_energy_consumption(0)
    energy = cpus.get_total_energy_consumption(0)
    assert (energy.cpu_mj, energy.dram_mj) == (100_000.0, 8_000.0)


# field failure 22
# field failure 23
def test_zones_are_in_numeric_order_and_what_is_no_zone_is_left_alone(tree: Tree) -> None:
    for i in (0, 2, 10, 11, 1):
        tree.zone(f"package-{i}", i, energy_uj=1000 * i)
    tree.zone("package-9", "foo")
    cpus = rapl.RAPLCPUs()
    assert [cpu.cpu_index for cpu in cpus.cpus] == [0, 1, 2, 10, 11]
    assert [cpu.get_total_energy_consumption().cpu_mj for cpu in cpus.cpus] == [0, 1, 2, 10, 11]


# field failure 3
# field failure 4
# weakness R3
def test_the_zone_of_a_process_is_its_position_where_numbers_have_gaps(tree: Tree) -> None:
    package = int(
        pathlib.Path("/sys/devices/system/cpu/cpu0/topology/physical_package_id").read_text()
    )
    others = [p for p in range(3) if p != package]
    tree.zone("psys", 0)
    tree.zone(f"package-{others[0]}", 1, energy_uj=1000)
    tree.zone(f"package-{package}", 5, energy_uj=5000)
    position = rapl.get_current_rapl_zone_id()
    assert position == 1
    assert rapl.get_current_rapl_zone_id(os.getpid()) == 1
    assert rapl.RAPLCPUs().get_total_energy_consumption(position).cpu_mj == 5.0


# field failure 5
def test_a_process_on_a_package_without_a_zone_is_said(tree: Tree) -> None:
    tree.zone("package-77", 0)
    with pytest.raises(rapl.ZeusRAPLNotSupportedError, match=r"package-\d+.*there are package-77"):
        rapl.get_current_rapl_zone_id()
    with pytest.raises(ZeusCPUNotFoundError, match=r"process 999999999.*is it alive"):
        rapl.get_current_rapl_zone_id(999_999_999)


def test_the_mounts_of_a_container_are_read_where_the_true_place_is_masked(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone = tree.zone("package-0", 0, energy_uj=5000)
    monkeypatch.setattr(rapl, "RAPL_DIR", "/nowhere")
    monkeypatch.setattr(rapl, "CONTAINER_RAPL_DIR", str(tree.rapl_dir))
    assert rapl.rapl_is_available()
    (cpu,) = rapl.RAPLCPUs().cpus
    assert cpu.path == str(zone)
    assert cpu.rapl_file.path == str(zone)
    assert cpu.dram is None
    assert cpu.get_total_energy_consumption().cpu_mj == 5


# weakness R4
def test_a_folder_without_zones_is_no_empty_list(tree: Tree) -> None:
    tree.rapl_dir.mkdir(parents=True)
    with pytest.raises(
        rapl.ZeusRAPLNotSupportedError, match=r"RAPL is not supported on this CPU\."
    ):
        rapl.RAPLCPUs()
    with pytest.raises(ZeusCPUInitError, match=r"RAPL is not supported on this CPU\."):
        get_cpus()


# field failure 36
# field failure 44
# weakness R1
def test_a_wrap_is_added_at_the_very_reading_that_shows_it(tree: Tree) -> None:
    zone = tree.zone("package-0", 0, energy_uj=RANGE_UJ - 1_000_000)
    file = rapl.RAPLFile(str(zone))
    before_mj = file.read()
    write(zone, 4_000_000)
    assert file.read() - before_mj == pytest.approx(5_000, abs=1e-3)
    assert file.wraparound_tracker.get_num_wraparounds() == 1


# field failure 39
def test_each_zone_wraps_at_its_own_range(tree: Tree) -> None:
    zone = tree.zone("package-0", 0, energy_uj=RANGE_UJ - 1_000_000)
    dram = tree.zone("dram", 0, 0, energy_uj=DRAM_RANGE_UJ - 500_000, range_uj=DRAM_RANGE_UJ)
    (cpu,) = rapl.RAPLCPUs().cpus
    before = cpu.get_total_energy_consumption()
    write(zone, 1_000_000)
    write(dram, 500_000)
    gained = cpu.get_total_energy_consumption() - before
    assert gained.cpu_mj == pytest.approx(2_000, abs=1e-3)
    assert gained.dram_mj == pytest.approx(1_000, abs=1e-3)


# field failure 44
# field failure 45
def test_a_reset_is_no_wrap_and_the_total_never_falls(
    tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    zone = tree.zone("package-0", 0, energy_uj=50_000_000_000)
    file = rapl.RAPLFile(str(zone))
    assert file.read() == 50_000_000
    write(zone, 1_000)
    assert file.read() == 50_000_000
    assert "it was reset" in caplog.text
    write(zone, 3_001_000)
    assert file.read() == pytest.approx(50_003_000)


# field failure 38
# weakness R2
def test_wraps_between_two_readings_are_seen_by_the_tracker(tree: Tree) -> None:
    zone = tree.zone("package-0", 0, energy_uj=900_000, range_uj=1_000_000)
    file = rapl.RAPLFile(str(zone))
    assert file.read() == 900
    tracker = file.wraparound_tracker
    for wrap in (1, 2):
        write(zone, 100)
        until = time.monotonic() + 30
        while tracker._wraps < wrap and time.monotonic() < until:
            time.sleep(0.01)
        write(zone, 950_000)
        while tracker._uj != 950_000 and time.monotonic() < until:
            time.sleep(0.01)
    assert file.read() == 2_950


# field failure 44
# weakness R1
def test_readers_and_the_tracker_together_count_each_wrap_once(tree: Tree) -> None:
    zone = tree.zone("package-0", 0, energy_uj=0, range_uj=1_000_000)
    file = rapl.RAPLFile(str(zone))
    file.read()
    done = threading.Event()
    falls = []

    def keep_reading() -> None:
        last = 0.0
        while not done.is_set():
            now = file.read()
            if now < last:
                falls.append((last, now))
            last = now

    readers = [threading.Thread(target=keep_reading) for _ in range(3)]
    for reader in readers:
        reader.start()
    total_uj = 0
    for _ in range(60):
        total_uj += 400_000
        write(zone, total_uj % 1_000_000)
        file.read()  # No step goes unseen.
    done.set()
    for reader in readers:
        reader.join()
    assert falls == []
    assert file.read() == total_uj / 1000


# field failure 25
@pytest.mark.parametrize("text", ["", "\n", "N/A", "-1", "nan"])
def test_a_counter_that_holds_no_number_is_a_failed_reading(tree: Tree, text: str) -> None:
    zone = tree.zone("package-0", 0)
    file = rapl.RAPLFile(str(zone))
    write(zone, text)
    with pytest.raises(ZeusBaseCPUError, match="no number"):
        file.read()  # The first reading of all.
    with pytest.raises(rapl.ZeusRAPLFileInitError, match=r"energy_uj: it holds .* and no number"):
        rapl.RAPLFile(str(zone))
    write(zone, 5000)
    file = rapl.RAPLFile(str(zone))
    assert file.read() == 5
    write(zone, text)
    with pytest.raises(ZeusBaseCPUError, match="no number"):
        file.read()
    write(zone, 6000)
    assert file.read() == 6


# field failure 24
def test_a_counter_that_cannot_be_read_is_said_with_its_errno(tree: Tree) -> None:
    zone = tree.zone("package-0", 0)
    (zone / "energy_uj").unlink()
    (zone / "energy_uj").mkdir()
    with pytest.raises(ZeusCPUInitError, match=r"cannot read .*energy_uj: Is a directory"):
        get_cpus()


# field failure 28
def test_children_that_are_not_needed_are_not_opened(tree: Tree) -> None:
    tree.zone("package-0", 0)
    uncore = tree.zone("uncore", 0, 0)
    (uncore / "energy_uj").unlink()
    (uncore / "energy_uj").mkdir()
    tree.zone("dram", 0, 1, energy_uj=7000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (cpu,) = rapl.RAPLCPUs().cpus
    assert cpu.get_total_energy_consumption().dram_mj == 7


# field failure 27
# weakness R4
def test_dram_that_is_closed_takes_nothing_else_with_it(tree: Tree) -> None:
    tree.zone("package-0", 0, energy_uj=9000)
    dram = tree.zone("dram", 0, 0)
    (dram / "energy_uj").unlink()
    with pytest.warns(UserWarning, match="Failed to initialize subpackage .*energy_uj"):
        (cpu,) = rapl.RAPLCPUs().cpus
    assert not cpu.supports_get_dram_energy_consumption()
    assert cpu.get_total_energy_consumption().cpu_mj == 9
    assert cpu.get_total_energy_consumption().dram_mj is None


# field failure 46
# field failure 47
# weakness F3
def test_a_tracker_is_a_thread_that_ends_with_its_file(tree: Tree) -> None:
    def trackers() -> list[threading.Thread]:
        return [t for t in threading.enumerate() if t.name == "zeus-rapl-wraps"]

    zone = tree.zone("package-0", 0)
    gc.collect()
    for thread in trackers():
        thread.join(30)
    files = [rapl.RAPLFile(str(zone)) for _ in range(5)]
    assert trackers() == []
    for file in files:
        file.read()
    started = trackers()
    assert len(started) == 5
    assert all(thread.daemon for thread in started)
    del files, file
    gc.collect()
    for thread in started:
        thread.join(30)
    assert trackers() == []


# weakness F1
def test_a_forked_child_counts_on_and_leaves_its_parent_alone(tree: Tree) -> None:
    zone = tree.zone("package-0", 0, energy_uj=RANGE_UJ - 1_000_000)
    source = f"""
import os, sys
from zeus.device.cpu.rapl import RAPLFile
file = RAPLFile({str(zone)!r})
print(file.read())
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    file.read()
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
open({str(zone / "energy_uj")!r}, "w").write("4000000")
print(file.read())
"""
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=True
    )
    before_mj, after_mj = map(float, done.stdout.split())
    assert after_mj - before_mj == pytest.approx(5_000, abs=1e-3)


SCENARIO = """
[[zone]]
path = "intel-rapl:0"
name = "package-0"
power = {{ watts = 100 }}
range_uj = {range_uj}
start_uj = {start_uj}
{more}
"""


def scenario(range_uj: int = RANGE_UJ, start_uj: int = 1_000_000, more: str = "") -> str:
    return SCENARIO.format(range_uj=range_uj, start_uj=start_uj, more=more)


# field failure 36
# weakness R1
# weakness R2
def test_the_core_adds_up_a_wrap_of_a_counter_at_100_w(simulated: Callable[[str], None]) -> None:
    # 10 J before it wraps: after 0.1 s.
    simulated(scenario(start_uj=RANGE_UJ - 10_000_000))
    cpus = get_cpus()
    early_s = time.monotonic()
    before = cpus.get_total_energy_consumption(0)
    late_s = time.monotonic()
    last = before
    while time.monotonic() < late_s + 0.5:
        now = cpus.get_total_energy_consumption(0)
        assert now.cpu_mj >= last.cpu_mj
        last = now
    end_early_s = time.monotonic()
    gained_mj = (cpus.get_total_energy_consumption(0) - before).cpu_mj
    end_late_s = time.monotonic()
    # The counter is published every millisecond, and counts whole microjoules.
    slack_s = 0.0011
    assert (end_early_s - late_s - slack_s) * 1e5 <= gained_mj
    assert gained_mj <= (end_late_s - early_s + slack_s) * 1e5
    assert gained_mj > 20_000  # It did wrap.


# field failure 26
def test_the_core_measures_a_zone_that_tells_no_range(
    simulated: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    simulated(scenario(range_uj=0))
    (cpu,) = get_cpus().cpus
    assert cpu.get_total_energy_consumption().cpu_mj > 0
    assert "what a wrap adds is not known" in caplog.text


# field failure 7
def test_sockets_are_known_by_name_and_not_by_number(simulated: Callable[[str], None]) -> None:
    zone = '[[zone]]\npath = "intel-rapl:{}"\nname = "package-{}"\npower = {{ watts = {} }}\n'
    simulated(zone.format(0, 1, 1) + zone.format(1, 0, 1))
    assert [(c.cpu_index, c.id) for c in get_cpus().cpus] == [(0, "package-1"), (1, "package-0")]
    package = pathlib.Path("/sys/devices/system/cpu/cpu0/topology/physical_package_id").read_text()
    if package.strip() in "01":
        assert rapl.get_current_rapl_zone_id() == 1 - int(package)
