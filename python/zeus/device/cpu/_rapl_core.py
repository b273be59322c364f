"""CPU packages whose counters the core finds and reads, here or through a daemon."""

from __future__ import annotations

import functools
import logging
import os

from zeus import _core
from zeus.device import _machine
from zeus.device.cpu import rapl
from zeus.device.cpu.common import (
    CPU,
    CpuDramMeasurement,
    ZeusCPUInitError,
    ZeusCPUNoPermissionError,
)
from zeus.device.exception import ZeusBaseCPUError

logger = logging.getLogger(__name__)


def is_elsewhere() -> bool:
    """Tell whether the environment names a daemon, or another machine, to read from."""
    host = os.environ.get("ZEUS_HOST")
    if host is not None:
        return not host.startswith("local")
    return any(os.environ.get(name) for name in ("ZEUSD_SOCK_PATH", "ZEUSD_HOST_PORT"))


def packages() -> list[_core.Device]:
    """Give the packages that can be read, in the order of their zones; never the platform.

    Raises:
        ZeusCPUInitError: A daemon or machine that is named does not answer.
    """
    devices = _open().devices
    return [d for d in devices if d.kind == "cpu" and "package" in d.sensors]


def cpus() -> list[rapl.RAPLCPU]:
    """Give the packages as objects of their interface; none where this machine has none.

    Raises:
        ZeusCPUNoPermissionError: There are some, and none may be read.
        ZeusCPUInitError: What the environment names does not answer, or has none.
    """
    found = packages()
    if not found:
        if any(code == "denied" for _, code, _ in _problems()):
            raise ZeusCPUNoPermissionError(why_none())
        if is_elsewhere():
            raise ZeusCPUInitError(f"cannot measure CPUs where {_elsewhere()} says: {why_none()}")
        return []
    for where, _, why in _problems():
        logger.warning("%s: %s", where, why)
    sensors = [(d.id, s) for d in found for s in ("package", "dram") if s in d.sensors]
    try:
        counters = _core.Counters(_open(), sensors)
    except _core.Error as error:
        raise ZeusCPUInitError(f"cannot count the energy of CPUs: {error.args[0]}") from error
    place = {sensor: i for i, sensor in enumerate(sensors)}
    return [
        (_ServedCPU if d.backend == "zeusd" else _CountedCPU)(
            d, counters, place[d.id, "package"], place.get((d.id, "dram"))
        )
        for d in found
    ]


def why_none() -> str:
    """Say why no package can be read."""
    problems = _problems()
    return "; ".join(why for _, _, why in problems) or "it has no CPU whose energy is counted"


class _CountedCPU(rapl.RAPLCPU):
    """One package whose counters the core reads: no file is opened, and no wrap is missed."""

    def __init__(
        self, device: _core.Device, counters: _core.Counters, package: int, dram: int | None
    ) -> None:
        zone = device.facts.get("zone", "")
        is_rapl = zone.startswith("intel-rapl:")
        CPU.__init__(self, int(zone.partition(":")[2]) if is_rapl else device.index)
        self.path = _zone_path(zone) if zone and not is_elsewhere() else ""
        self.device = device  # From it the monitor learns the errors of the counters too.
        self.id = device.id
        self._counters = counters
        self._package = package
        self._dram = dram
        self._dram_failed = False

    # Nothing here needs them: they are opened for those who ask.
    @functools.cached_property
    def rapl_file(self) -> rapl.RAPLFile:  # type: ignore[override]
        if not self.path:
            raise rapl.ZeusRAPLFileInitError(
                f"{self.id} has no files here: it is read through perf, a daemon, or elsewhere"
            )
        return rapl.RAPLFile(self.path)

    @functools.cached_property
    def dram(self) -> rapl.RAPLFile | None:  # type: ignore[override]
        return rapl._open_dram(self.path) if self.path and self._dram is not None else None

    def get_total_energy_consumption(self) -> CpuDramMeasurement:
        """Cumulative energy of the package, and of its DRAM where that is measured, in mJ.

        Raises:
            ZeusCPUNoPermissionError: The counter may not be read any more.
            ZeusBaseCPUError: It cannot be read.
        """
        try:
            cpu_mj = self._read_mj(self._package)
        except _core.Error as error:
            raise _raised(self.id, error) from error
        return CpuDramMeasurement(cpu_mj, None if self._dram is None else self._dram_mj(self._dram))

    def supports_get_dram_energy_consumption(self) -> bool:
        return self._dram is not None

    def _read_mj(self, counter: int) -> float:
        # Counters count microjoules or more: what is beyond them is the noise of a double.
        return round(self._counters.read(counter) * 1e3, 3)

    def _dram_mj(self, counter: int) -> float | None:
        """None, said once, where only the DRAM fails: the package is worth having without it."""
        try:
            return self._read_mj(counter)
        except _core.Error as error:
            if not self._dram_failed:
                logger.warning("no DRAM energy of %s: %s", self.id, error.args[0])
            self._dram_failed = True
            return None


class _ServedCPU(_CountedCPU, rapl.ZeusdRAPLCPU):
    """The same through the daemon that the environment names."""

    @property
    def dram_available(self) -> bool:  # type: ignore[override]
        return self._dram is not None


def _open() -> _core.Machine:
    try:
        return _machine.machine()
    except _core.Error as error:
        where = f" where {_elsewhere()} says" if is_elsewhere() else ""
        raise ZeusCPUInitError(f"cannot measure CPUs{where}: {error.args[0]}") from error


def _elsewhere() -> str:
    host = os.environ.get("ZEUS_HOST")
    return f"ZEUS_HOST={host}" if host is not None else str(_machine.daemon())


def _problems() -> list[tuple[str, str, str]]:
    """What is said of CPUs: by powercap and perf, or about what a daemon serves of them."""
    return [
        (where, code, why)
        for where, code, why in _open().problems
        if where.startswith("rapl") or (where.startswith("zeusd") and "cpu" in why.lower())
    ]


def _zone_path(zone: str) -> str:
    """The zone's folder: in a container the mounted one, as the core prefers."""
    for base in (rapl.CONTAINER_RAPL_DIR, rapl.RAPL_DIR):
        for path in (os.path.join(base, zone), os.path.join(os.path.dirname(base), zone)):
            if os.path.exists(path):
                return path
    return os.path.join(rapl.RAPL_DIR, zone)


def _raised(what: str, error: _core.Error) -> ZeusBaseCPUError:
    kind = ZeusCPUNoPermissionError if error.args[1] == "denied" else ZeusBaseCPUError
    return kind(f"cannot read the energy of {what}: {error.args[0]}")
