"""Where the joules of a window come from.

The core reads all counters at once and knows their errors; objects of Python code are asked one by
one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Protocol

from zeus import _core
from zeus.device._machine import machine
from zeus.device.cpu.common import CPUs
from zeus.device.gpu.common import GPUs
from zeus.device.gpu.nvidia import NVIDIAGPU
from zeus.monitor._measurement import Uncertain


@functools.cache
def place_of(name: str) -> tuple[str, int]:
    """What a value is of, and which one: ("gpu", 3) of "gpu:3"."""
    kind, _, index = name.partition(":")
    return kind, int(index)


Estimates = Mapping[str, "_core.Estimate | Uncertain"]


class Joules:
    """What was used since a window began.

    Attributes:
        tables: Joules by kind ("gpu", "cpu", "dram") and index.
        estimates: What is known of their errors, under names like "gpu:0".
        seconds: Length of the window, where the source knows it.
        record: What the core read.
        sum: Adds up some of the values with their uncertainty; None where that cannot be told.
    """

    __slots__ = ("estimates", "record", "seconds", "sum", "tables")

    def __init__(
        self,
        tables: dict[str, dict[int, float]],
        estimates: dict[str, _core.Estimate | Uncertain],
        seconds: float | None = None,
        record: _core.Record | None = None,
        sum: Callable[[list[str]], _core.Estimate | None] | None = None,
    ) -> None:
        """Put together by a source."""
        self.tables = tables
        self.estimates = estimates
        self.seconds = seconds
        self.record = record
        self.sum = sum

    @property
    def values(self) -> dict[str, float]:
        """Joules under names like "gpu:0"."""
        return {
            f"{kind}:{index}": joules
            for kind, table in self.tables.items()
            for index, joules in table.items()
        }


class Reading(Protocol):
    """A window that is open."""

    counters: dict[str, float]
    """What counters that Python code reads stood at, in joules."""

    def end(self) -> Joules:
        """Read again, and say what was used in between. The window is not used up by an error."""
        ...


class Core:
    """Counters and sampled power that the core reads, of some devices of the machine."""

    def __init__(self, names: Mapping[str, tuple[str, tuple[str, ...]]]) -> None:
        """Watch the devices.

        Args:
            names: What each value is called, its device's id and the scopes that may tell it, the
                best one first: {"gpu:0": ("GPU-...", ("gpu", "module"))}.
        """
        devices = list(dict.fromkeys(device for device, _ in names.values()))
        self.missing: dict[str, str] = {}
        self._places: dict[str, int] = {}
        self._slots: dict[str, list[tuple[int, int]]] = {"gpu": [], "cpu": [], "dram": []}
        self._monitor: _core.Monitor | None = None
        try:
            self._monitor = _core.Monitor.open(machine(), devices=devices)
        except _core.Error as error:
            if error.args[1] != "absent":
                raise
            self.missing = dict.fromkeys(names, error.args[0])
            return
        domains = [(d.device, d.scope) for d in self._monitor.domains]
        for name, (device, scopes) in names.items():
            place = next((domains.index((device, s)) for s in scopes if (device, s) in domains), -1)
            if place >= 0:
                self._places[name] = place
                kind, index = place_of(name)
                self._slots[kind].append((index, place))
            else:
                self.missing[name] = _why(device)

    @property
    def sensors(self) -> dict[str, tuple[str, str]]:
        """A device's id and the sensor that tells its energy, by name."""
        domains = self._monitor.domains if self._monitor is not None else []
        return {
            name: (domains[place].device, domains[place].sensor)
            for name, place in self._places.items()
        }

    def nothing(self) -> dict[str, dict[int, float]]:
        """No number of what is missing."""
        tables: dict[str, dict[int, float]] = {"gpu": {}, "cpu": {}, "dram": {}}
        for name in self.missing:
            kind, index = place_of(name)
            tables[kind][index] = float("nan")
        return tables

    def reasons(self) -> dict[str, _core.Estimate | Uncertain]:
        """Why what is missing is."""
        return {name: Uncertain.missing(reason) for name, reason in self.missing.items()}

    @functools.cached_property
    def tables(self) -> _core.Tables:
        """Ends windows, and makes the tables of their values."""
        return _core.Tables(list(self._slots.values()))

    def window(self, key: str) -> _core.Window:
        """Read the counters; nothing is missing of what was asked for."""
        return self._monitor.begin(key)  # type: ignore[union-attr]

    def estimates(self, record: _core.Record) -> LazyEstimates:
        """What is known of the errors of a record."""
        return LazyEstimates(record, self._places, {})

    def begin(self, key: str) -> CoreReading:
        """Read the counters."""
        window = self._monitor.begin(key) if self._monitor is not None else None
        return CoreReading(self, window)


class CoreReading:
    """A window of the core."""

    def __init__(self, core: Core, window: _core.Window | None) -> None:
        """Belongs to a source."""
        self.counters: dict[str, float] = {}
        self._core = core
        self._window = window

    def end(self) -> Joules:
        """End the window, once."""
        core = self._core
        if self._window is None:
            return Joules(core.nothing(), core.reasons())
        record, (gpus, cpus, drams), _ = core.tables.finish(self._window)
        tables = {"gpu": gpus, "cpu": cpus, "dram": drams}
        known = {}
        if core.missing:
            for kind, table in core.nothing().items():
                tables[kind].update(table)
            known = core.reasons()
        estimates = LazyEstimates(record, core._places, known)
        return Joules(tables, estimates, record.seconds, record, estimates.total)


class LazyEstimates(dict[str, "_core.Estimate | Uncertain"]):
    """Estimates that are made out of the record when somebody asks for them."""

    def __init__(
        self,
        record: _core.Record,
        places: Mapping[str, int],
        known: Mapping[str, _core.Estimate | Uncertain],
    ) -> None:
        """Start with what is known."""
        super().__init__(known)
        self._record = record
        self._places = places

    def __missing__(self, name: str) -> _core.Estimate:
        self[name] = estimate = self._record.estimate(self._places[name])
        return estimate

    def total(self, names: list[str]) -> _core.Estimate | None:
        """The sum of some of them; None where one of them is no value of the core."""
        if not names or any(name not in self._places for name in names):
            return None
        return self._record.sum([self._places[name] for name in names])

    def get(self, name, default=None):  # type: ignore[no-untyped-def]
        """One of them, made now."""
        return self[name] if name in self or name in self._places else default

    def items(self):  # type: ignore[no-untyped-def]
        """Everything, made now."""
        for name in self._places:
            self[name]
        return super().items()


class Objects:
    """Counters behind `GPUs` and `CPUs` objects of Python code: other vendors', tests' own.

    A GPU's counter that did not move is no number. Only where somebody replaced NVML's binding it
    is the zero that upstream gives: his arithmetic is to be upstream's to the letter.
    """

    def __init__(
        self, gpus: GPUs, gpu_indices: list[int], cpus: CPUs, cpu_indices: list[int]
    ) -> None:
        """Read the GPUs that have a counter, and the CPU packages."""
        self._gpus, self._cpus = gpus, cpus
        self._gpu_indices, self._cpu_indices = gpu_indices, cpu_indices
        self.still_is_zero = {
            f"gpu:{i}" for i in gpu_indices if isinstance(gpus.gpus[i], NVIDIAGPU)
        }

    def read(self) -> dict[str, float]:
        """Each counter once, GPUs first, in millijoules."""
        millijoules: dict[str, float] = {}
        for i in self._gpu_indices:
            millijoules[f"gpu:{i}"] = self._gpus.get_total_energy_consumption(i)
        for i in self._cpu_indices:
            both = self._cpus.get_total_energy_consumption(i)
            millijoules[f"cpu:{i}"] = both.cpu_mj
            if both.dram_mj is not None:
                millijoules[f"dram:{i}"] = both.dram_mj
        return millijoules

    def readers(self) -> dict[str, Callable[[], int]]:
        """What reads each counter alone, in millijoules."""

        def gpu(index: int) -> Callable[[], int]:
            return lambda: round(self._gpus.get_total_energy_consumption(index))

        def cpu(index: int, part: str) -> Callable[[], int]:
            return lambda: round(getattr(self._cpus.get_total_energy_consumption(index), part))

        readers: dict[str, Callable[[], int]] = {}
        for i in self._gpu_indices:
            readers[f"gpu:{i}"] = gpu(i)
        for i in self._cpu_indices:
            readers[f"cpu:{i}"] = cpu(i, "cpu_mj")
            if self._cpus.supports_get_dram_energy_consumption(i):
                readers[f"dram:{i}"] = cpu(i, "dram_mj")
        return readers

    def begin(self) -> ObjectsReading:
        """Read the counters."""
        return ObjectsReading(self)


class ObjectsReading:
    """A window over counters of Python code."""

    def __init__(self, objects: Objects) -> None:
        """Read for the first time."""
        self._objects = objects
        self._begin = objects.read()
        self.counters = {name: mj / 1e3 for name, mj in self._begin.items()}

    def end(self) -> Joules:
        """Read again. A GPU's counter that did not move tells nothing."""
        end = self._objects.read()
        tables: dict[str, dict[int, float]] = {"gpu": {}, "cpu": {}, "dram": {}}
        known: dict[str, _core.Estimate | Uncertain] = {}
        for name, begin_mj in self._begin.items():
            kind, index = place_of(name)
            value = (end[name] - begin_mj) / 1e3 if name in end else float("nan")
            if name not in end:
                known[name] = Uncertain.missing("its counter could not be read again")
            elif value == 0 and kind == "gpu":
                known[name] = Uncertain.missing(
                    "R1: the counter did not move: the window was shorter than its update period"
                )
                value = 0.0 if name in self._objects.still_is_zero else float("nan")
            elif value < 0:
                known[name] = Uncertain.missing("the counter fell: it was reset in the window")
                value = float("nan")
            tables[kind][index] = value
        return Joules(tables, known)


def _why(device: str) -> str:
    """What the core says is missing of a device."""
    said = [why for where, _, why in machine().problems if device in where]
    return "; ".join(said) or f"nothing tells the energy of {device}"
