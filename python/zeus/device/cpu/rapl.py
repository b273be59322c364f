"""CPU energy on Linux: the RAPL counters of Intel and AMD processors, as powercap shows them.

What this machine has is found and read by the core: see `RAPLCPUs`. The classes that read files
themselves serve trees of files that are elsewhere.
"""

from __future__ import annotations

import os
import re
import threading
import warnings
from collections.abc import Sequence
from glob import glob
from typing import TYPE_CHECKING, Any, Literal

from zeus.device.cpu._rapl_files import (
    ZeusRAPLFileInitError,
    ZeusRAPLNotSupportedError,
    ZeusRAPLPermissionError,
    read,
    read_number,
    read_text,
    socket_of,
)
from zeus.device.cpu._rapl_wraps import (
    RAPL_COUNTER_MAX_INCREASE,
    RaplWraparoundTracker,
    _polling_process,
)
from zeus.device.cpu.common import (
    CPU,
    CpuDramMeasurement,
    CPUs,
    ZeusCPUInitError,
    ZeusCPUNoPermissionError,
)
from zeus.device.exception import ZeusBaseCPUError, ZeusdError

if TYPE_CHECKING:
    from zeus.utils.zeusd import ZeusdClient

__all__ = [
    "CONTAINER_RAPL_DIR",
    "RAPLCPU",
    "RAPL_COUNTER_MAX_INCREASE",
    "RAPL_DIR",
    "RAPLCPUs",
    "RAPLFile",
    "RaplWraparoundTracker",
    "ZeusCPUInitError",
    "ZeusCPUNoPermissionError",
    "ZeusRAPLFileInitError",
    "ZeusRAPLNotSupportedError",
    "ZeusRAPLPermissionError",
    "ZeusdRAPLCPU",
    "_polling_process",
    "get_current_rapl_zone_id",
    "rapl_is_available",
]

RAPL_DIR = "/sys/class/powercap/intel-rapl"
# Where containers mount the host's, since their runtimes mask the true place.
CONTAINER_RAPL_DIR = "/zeus_sys/class/powercap/intel-rapl"

# The folders that the core reads too.
_REAL_DIRS = (RAPL_DIR, CONTAINER_RAPL_DIR)

# What each kind of zone can draw at most, in watts; beyond, a fall is a reset and no wrap.
_MOST_W = {"core": 1000.0, "uncore": 500.0, "dram": 300.0, "psys": 4000.0}
_MOST_W_OF_PACKAGE = 1000.0

_tracker_lock = threading.Lock()


def _forget_lock() -> None:
    # Another thread may have held it while this process was forked.
    global _tracker_lock
    _tracker_lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock)


def rapl_is_available() -> bool:
    """Tell whether something here can tell the energy of CPUs; whether it may be read shows later.

    That is a folder of zones, a daemon or another machine that the environment names, or perf.
    """
    if os.path.exists(RAPL_DIR) or os.path.exists(CONTAINER_RAPL_DIR):
        return True
    return _rapl_core.is_elsewhere() or bool(_rapl_core.packages())


class RAPLFile:
    """One zone's counter, read from its files.

    Attributes:
        path: The zone's folder.
        energy_uj_path: The counter's file.
        name: What the zone measures: "package-0", "dram".
        last_energy: What the counter showed when this was made, in microjoules.
        max_energy_range_uj: What it adds to the truth when it wraps, in microjoules.
    """

    def __init__(self, path: str) -> None:
        """Read the zone's files.

        Args:
            path: The zone's folder.

        Raises:
            ZeusCPUNoPermissionError: The counter may not be read.
            ZeusRAPLFileInitError: A file is missing, cannot be read, or holds no number.
        """
        self.path = path
        self.energy_uj_path = os.path.join(path, "energy_uj")
        self.name = read(os.path.join(path, "name"), read_text, ZeusRAPLFileInitError)
        self.last_energy = read(self.energy_uj_path, read_number, ZeusRAPLFileInitError)
        self.max_energy_range_uj = read(
            os.path.join(path, "max_energy_range_uj"), read_number, ZeusRAPLFileInitError
        )
        self._wraparound_tracker: RaplWraparoundTracker | None = None
        self._total_uj = 0.0
        self._before_reset_uj = 0.0

    def __str__(self) -> str:
        """Name the zone."""
        return f"RAPLFile(path={self.path!r}, name={self.name!r})"

    @property
    def wraparound_tracker(self) -> RaplWraparoundTracker:
        """What counts the wraps, begun at the first reading."""
        if self._wraparound_tracker is None:
            with _tracker_lock:
                if self._wraparound_tracker is None:
                    self._wraparound_tracker = RaplWraparoundTracker(
                        self.energy_uj_path, self.max_energy_range_uj, _most_w(self.name)
                    )
        return self._wraparound_tracker

    def read(self) -> float:
        """Read the energy in mJ since the counter began, wraps included. It never falls.

        Raises:
            ZeusCPUNoPermissionError: The counter may not be read any more.
            ZeusBaseCPUError: It cannot be read, or holds no number.
        """
        path = self.energy_uj_path
        tracker = read(path, lambda _: self.wraparound_tracker, ZeusBaseCPUError)
        with tracker.lock:
            energy_uj = read(path, read_number, ZeusBaseCPUError)
            wraps = tracker.get_num_wraparounds(energy_uj)
            total_uj = energy_uj + wraps * self.max_energy_range_uj + self._before_reset_uj
            if total_uj < self._total_uj:  # No wrap, the tracker says: it began anew.
                self._before_reset_uj += self._total_uj - total_uj
                total_uj = self._total_uj
            self._total_uj = total_uj
        return total_uj / 1000.0


class RAPLCPU(CPU):
    """One CPU package, read from the files of its zone.

    Attributes:
        path: The zone's folder.
        rapl_file: The package's counter.
        dram: The counter of its memory; None where it has none that can be read.
    """

    path: str
    rapl_file: RAPLFile
    dram: RAPLFile | None

    def __init__(self, cpu_index: int, rapl_dir: str) -> None:
        """Find the package's zone and that of its DRAM.

        Args:
            cpu_index: The N of `intel-rapl:N`.
            rapl_dir: The folder in which that is.

        Raises:
            ZeusCPUNoPermissionError: The package's counter may not be read.
            ZeusRAPLFileInitError: The zone is missing or not understood.
        """
        super().__init__(cpu_index)
        self.path = os.path.join(rapl_dir, f"intel-rapl:{cpu_index}")
        self.rapl_file = RAPLFile(self.path)
        self.dram = _open_dram(self.path)

    def get_total_energy_consumption(self) -> CpuDramMeasurement:
        """Cumulative energy of the package, and of its DRAM where that is measured, in mJ.

        Raises:
            ZeusBaseCPUError: A counter cannot be read.
        """
        return CpuDramMeasurement(
            cpu_mj=self.rapl_file.read(),
            dram_mj=None if self.dram is None else self.dram.read(),
        )

    def supports_get_dram_energy_consumption(self) -> bool:
        """Whether the package's DRAM is measured."""
        return self.dram is not None


class ZeusdRAPLCPU(RAPLCPU):
    """One CPU package, read through a daemon that is given by its client.

    Attributes:
        dram_available: Whether the daemon measures the package's DRAM.
    """

    dram_available: bool

    def __init__(self, cpu_index: int, client: ZeusdClient) -> None:
        """Make sure that the daemon serves this package to us.

        Args:
            cpu_index: The daemon's number of the package.
            client: Of the daemon.

        Raises:
            ZeusdAuthError: The token is missing or not good.
            ZeusdCapabilityError: The daemon does not serve this package, or not to us.
        """
        from zeus.utils.zeusd import require_capabilities

        CPU.__init__(self, cpu_index)
        require_capabilities(client, read_cpu=True, cpu_ids=[cpu_index])
        self._client = client
        self.dram_available = next(c.dram_available for c in client.cpus if c.id == cpu_index)

    def get_total_energy_consumption(self) -> CpuDramMeasurement:
        """Cumulative energy of the package, and of its DRAM where that is measured, in mJ.

        Raises:
            ZeusdError: The daemon does not answer, refuses, or leaves out what it offered.
        """
        energy = self._ask()
        if energy.cpu_energy_uj is None:
            raise self._left_out("energy")
        if energy.dram_energy_uj is None:
            if self.dram_available:
                raise self._left_out("DRAM energy")
            return CpuDramMeasurement(energy.cpu_energy_uj / 1000.0)
        return CpuDramMeasurement(energy.cpu_energy_uj / 1000.0, energy.dram_energy_uj / 1000.0)

    def supports_get_dram_energy_consumption(self) -> bool:
        """Whether the daemon measures the package's DRAM."""
        return self.dram_available

    def _ask(self) -> Any:
        from zeus.utils._zeusd_wire import import_httpx

        index = self.cpu_index
        try:
            return self._client.get_cpu_energy([index], cpu=True, dram=True)[index]
        except import_httpx().RequestError as error:
            raise ZeusdError(
                f"cannot read the energy of CPU {index} from zeusd at {self._client.endpoint}: "
                f"{error}; is it still running?"
            ) from error
        except KeyError as error:
            raise self._left_out("energy") from error

    def _left_out(self, what: str) -> ZeusdError:
        return ZeusdError(
            f"zeusd at {self._client.endpoint} told no {what} of CPU {self.cpu_index}, which it "
            "said it measures; its log says why"
        )


class RAPLCPUs(CPUs):
    """The CPU packages of this machine, of the daemon that the environment names, or of a tree.

    They are found and read by the core, which keeps their counters from wrapping unseen. Where
    `RAPL_DIR` was set to another folder, the files in it are read.
    """

    def __init__(self) -> None:
        """Find the packages.

        Raises:
            ZeusRAPLNotSupportedError: There is nothing to read; the message says why.
            ZeusCPUNoPermissionError: No package may be read.
            ZeusCPUInitError: A daemon or machine that is named does not answer, or has no CPU.
            ZeusRAPLFileInitError: A zone is missing or not understood.
        """
        if not rapl_is_available():
            raise ZeusRAPLNotSupportedError(_not_supported())
        cpus = _rapl_core.cpus() if _reads_this_machine() else []
        self._cpus: Sequence[RAPLCPU] = cpus or self._of_files()

    @staticmethod
    def _of_files() -> list[RAPLCPU]:
        rapl_dir = _rapl_dir()
        cpus = [RAPLCPU(zone, rapl_dir) for zone, _ in _package_zones(rapl_dir)]
        if not cpus:
            raise ZeusRAPLNotSupportedError(_not_supported())
        return cpus

    @property
    def cpus(self) -> Sequence[RAPLCPU]:
        """The packages, in the order of their zones; an index is a position in this list."""
        return self._cpus


def get_current_rapl_zone_id(pid: int | Literal["current"] = "current") -> int:
    """Find the CPU package on which a process runs now, as `cpu_indices` want it.

    Args:
        pid: The process; by default this one.

    Returns:
        The position of its package in `get_cpus().cpus`. Where zones are numbered without gaps it
        is also the N of `intel-rapl:N`.

    Raises:
        ZeusCPUNotFoundError: There is no such process.
        ZeusRAPLNotSupportedError: Its package is not known here, or has no zone.
    """
    package, die = socket_of(pid)
    names = [device.id for device in _rapl_core.packages()] if _reads_this_machine() else []
    names = names or [name or "" for _, name in _package_zones(_rapl_dir())]
    position = _position(names, package, die)
    if position is None:
        raise ZeusRAPLNotSupportedError(
            f"no CPU that is measured here is package-{package}, on which the process runs; "
            f"there are {', '.join(filter(None, names)) or 'none'}"
        )
    return position


def _position(names: list[str], package: str, die: str) -> int | None:
    for name in (f"package-{package}-die-{die}", f"package-{package}"):
        if name in names:
            return names.index(name)
    # Dies that repeat the counter of their socket are listed once, under the first of them.
    dies = [i for i, name in enumerate(names) if name.startswith(f"package-{package}-die-")]
    return dies[0] if len(dies) == 1 else None


def _rapl_dir() -> str:
    return RAPL_DIR if os.path.exists(RAPL_DIR) else CONTAINER_RAPL_DIR


def _reads_this_machine() -> bool:
    """Whether the folders are those that the core reads too."""
    return (RAPL_DIR, CONTAINER_RAPL_DIR) == _REAL_DIRS


def _package_zones(rapl_dir: str) -> list[tuple[int, str | None]]:
    """The N of each `intel-rapl:N` that is a package, and its name where that can be read."""
    zones = []
    for path in glob(os.path.join(rapl_dir, "intel-rapl:*")):
        match = re.fullmatch(r"intel-rapl:(\d+)", os.path.basename(path))
        if match is None:
            continue
        try:
            name = read_text(os.path.join(path, "name"))
        except OSError:  # Whoever opens the zone says so.
            name = None
        # "psys" is the platform, packages included.
        if name is None or name.startswith("package"):
            zones.append((int(match[1]), name))
    return sorted(zones, key=lambda zone: zone[0])


def _open_dram(path: str) -> RAPLFile | None:
    """The DRAM of the package at `path`; what else the package has is not opened."""
    for entry in sorted(os.listdir(path)):
        child = os.path.join(path, entry)
        if "intel-rapl" not in entry or not _may_be_dram(child):
            continue
        try:
            zone = RAPLFile(child)
        except (ZeusRAPLFileInitError, ZeusCPUNoPermissionError) as error:
            warnings.warn(f"Failed to initialize subpackage {child}: {error}", stacklevel=3)
            continue
        if zone.name == "dram":
            return zone
    return None


def _may_be_dram(path: str) -> bool:
    try:
        return read_text(os.path.join(path, "name")) == "dram"
    except OSError:
        return True


def _most_w(name: str) -> float:
    return _MOST_W.get(name, _MOST_W_OF_PACKAGE)


def _not_supported() -> str:
    return "RAPL is not supported on this CPU. " + _rapl_core.why_none()


# At the end, since it is made of the classes above.
from zeus.device.cpu import _rapl_core  # noqa: E402
