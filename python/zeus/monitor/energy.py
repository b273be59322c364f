"""Energy of stretches of a program: `ZeusMonitor` and its windows."""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time as _clock
import warnings
import weakref
from dataclasses import dataclass, field
from time import time
from typing import TYPE_CHECKING, Literal

from zeus import _core
from zeus.device._machine import core_device, machine, named
from zeus.device.cpu import get_cpus
from zeus.device.cpu.common import (
    CPUs,
    EmptyCPUs,
    ZeusCPUInitError,
    ZeusCPUNoPermissionError,
)
from zeus.device.exception import ZeusBaseCPUError
from zeus.device.gpu import get_gpus
from zeus.device.gpu.common import EmptyGPUs, GPUs, ZeusGPUInitError
from zeus.device.soc import get_soc
from zeus.device.soc.common import EmptySoC, SoC, SoCMeasurement, ZeusSoCInitError
from zeus.monitor._measurement import CoreWindow, Measurement, Span, Uncertain
from zeus.monitor._result import TOO_SHORT, Result, complete, put_together, warn_of_zero
from zeus.monitor._sources import Core, Objects, Reading
from zeus.monitor._window import Window
from zeus.monitor.power import PowerMonitor
from zeus.utils.framework import sync_execution as sync_execution_fn
from zeus.utils.multiprocessing import warn_if_global_in_subprocess

if TYPE_CHECKING:
    from pathlib import Path

    from zeus.monitor.phases import Phases

__all__ = ["Measurement", "MeasurementState", "Uncertain", "Window", "ZeusMonitor"]

logger = logging.getLogger(__name__)

_REAL_TIME = time


@dataclass
class MeasurementState:
    """A window that is open.

    Attributes:
        time: When it began, by the wall clock, in seconds.
        gpu_energy: Where the counters of GPUs that Python code reads stood, in joules. What the
            core reads is in no such dictionary: it keeps more than a number of each.
        cpu_energy: The same of CPU packages; None where there are none.
        dram_energy: The same of their memory.
    """

    time: float
    gpu_energy: dict[int, float]
    cpu_energy: dict[int, float] | None = None
    dram_energy: dict[int, float] | None = None
    _name: str = field(default="", repr=False, compare=False)
    _monotonic: float = field(default=0.0, repr=False, compare=False)
    _readings: list[Reading] = field(default_factory=list, repr=False, compare=False)
    _soc_key: str = field(default="", repr=False, compare=False)
    _soc: SoCMeasurement | None = field(default=None, repr=False, compare=False)


class _CoreState(MeasurementState):
    """A window of which the core reads everything: the usual one, and a hot one."""

    def __init__(self, time: float, name: str, window: _core.Window) -> None:
        # Field by field: what has a default is the class's.
        self.time = time
        self.gpu_energy = {}
        self._name = name
        self._window = window


class ZeusMonitor:
    """Measures the time and energy of windows. They nest and overlap; keys are unique.

    It spawns no process. GPUs without an energy counter, and counters that can wrap, are followed
    by one thread of the core. Any thread may begin and end windows.

    Attributes:
        gpu_indices: Places among the GPUs that this process sees.
        cpu_indices: Places among the CPU packages.
        unavailable: One sentence for each thing that is not measured, and why.
    """

    def __init__(
        self,
        gpu_indices: list[int] | None = None,
        cpu_indices: list[int] | None = None,
        approx_instant_energy: bool = False,
        log_file: str | Path | None = None,
        sync_execution_with: Literal["torch", "jax", "cupy"] = "torch",
    ) -> None:
        """Find the devices.

        Args:
            gpu_indices: Which GPUs, as PyTorch numbers them; None: all, []: none.
            cpu_indices: Which CPU packages; None: all that can be read, []: none.
            approx_instant_energy: Give the energy of a GPU in a window that is too short for its
                counter as present power x length.
            log_file: A CSV file to write a row to for each window.
            sync_execution_with: Whose GPU work a window waits for at its edges.

        Raises:
            IndexError: There is no such GPU or CPU package.
            RuntimeError: `cpu_indices` names packages that this process may not read.
            ZeusGPUInitError: The environment names a daemon that does not answer.
        """
        warn_if_global_in_subprocess(self)
        self.approx_instant_energy = approx_instant_energy
        self.sync_with: Literal["torch", "jax", "cupy"] = sync_execution_with
        self.unavailable: list[str] = []
        self._lock = threading.Lock()
        self._soc_keys = itertools.count()
        self.measurement_states: dict[str, MeasurementState] = {}

        self.gpus: GPUs = self._find_gpus()
        self.cpus: CPUs = self._find_cpus(cpu_indices)
        self.soc: SoC = self._find_soc()
        self.soc_is_present = not isinstance(self.soc, EmptySoC)
        self.gpu_indices = list(range(len(self.gpus)) if gpu_indices is None else gpu_indices)
        self.cpu_indices = list(range(len(self.cpus)) if cpu_indices is None else cpu_indices)
        for index in self.cpu_indices:
            if isinstance(self.cpus, EmptyCPUs):
                raise ValueError(f"there is no CPU package {index}: {self._said()}")
            _ = self.cpus.cpus[index]

        asked = gpu_indices != [] or cpu_indices != []
        if asked and not (self.gpu_indices or self.cpu_indices or self.soc_is_present):
            warnings.warn(f"There is nothing to measure here: {self._said()}", stacklevel=2)

        self.power_monitor: PowerMonitor | None = None
        self._core, self._objects = self._sources()
        self._only = self._core if self._core_suffices() else None
        self.log_file = self._open_log(log_file)
        _alive.add(self)

    # --- what there is ---

    def _find_gpus(self) -> GPUs:
        try:
            machine()
        except _core.Error as error:
            # What the user named cannot be had, and nothing takes its place.
            raise ZeusGPUInitError(f"{named()}{error.args[0]}") from error
        try:
            return get_gpus()
        except ZeusGPUInitError as error:
            self.unavailable.append(str(error))
            return EmptyGPUs()

    def _find_cpus(self, wanted: list[int] | None) -> CPUs:
        try:
            return get_cpus()
        except ZeusCPUNoPermissionError as error:
            if wanted:
                raise RuntimeError(
                    f"{error}. The energy of CPUs (RAPL) is root's to read; run as root or through "
                    "zeusd (ZEUSD_SOCK_PATH), or pass cpu_indices=[] to measure GPUs only"
                ) from error
            self.unavailable.append(str(error))
        except ZeusCPUInitError as error:
            self.unavailable.append(str(error))
        except ZeusBaseCPUError as error:
            self.unavailable.append(str(error))
        return EmptyCPUs()

    def _find_soc(self) -> SoC:
        try:
            return get_soc()
        except ZeusSoCInitError:
            return EmptySoC()

    def _said(self) -> str:
        return "; ".join(self.unavailable) or "none was found"

    def _sources(self) -> tuple[Core | None, Objects | None]:
        """The core for its own devices, Python code for the rest."""
        names: dict[str, tuple[str, tuple[str, ...]]] = {}
        gpu_objects: list[int] = []
        polled: list[int] = []
        for i in self.gpu_indices:
            device = core_device(self.gpus.gpus[i])
            if device is not None:
                names[f"gpu:{i}"] = (device.id, ("gpu", "module"))
            elif self.gpus.supports_get_total_energy_consumption(i):
                gpu_objects.append(i)
            else:
                polled.append(i)
        cpu_objects: list[int] = []
        for i in self.cpu_indices:
            device = core_device(self.cpus.cpus[i])
            if device is not None:
                names[f"cpu:{i}"] = (device.id, ("package",))
                if self.cpus.supports_get_dram_energy_consumption(i):
                    names[f"dram:{i}"] = (device.id, ("dram",))
            else:
                cpu_objects.append(i)
        if polled:
            self.power_monitor = PowerMonitor(gpu_indices=polled, update_period=None)
        core = Core(names) if names else None
        for name, reason in core.missing.items() if core else ():
            self.unavailable.append(f"{name}: {reason}")
            warnings.warn(f"{name} is not measured: {reason}", stacklevel=3)
        if not gpu_objects and not cpu_objects:
            return core, None
        return core, Objects(self.gpus, gpu_objects, self.cpus, cpu_objects)

    def _core_suffices(self) -> bool:
        """Whether a window is nothing but what the core reads of it."""
        if self._core is None or self._core.missing or self.approx_instant_energy:
            return False
        others = self._objects is not None or self.power_monitor is not None
        return not others and not self.soc_is_present

    def _open_log(self, log_file: str | Path | None):  # type: ignore[no-untyped-def]
        if log_file is None:
            return None
        from pathlib import Path

        path = Path(log_file)
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w", encoding="utf-8")
        names = [f"gpu{i}_energy" for i in self.gpu_indices]
        file.write(",".join(["start_time", "window_name", "elapsed_time", *names]) + "\n")
        file.flush()
        return file

    # --- windows ---

    def begin_window(self, key: str, sync_execution: bool = True, restart: bool = False) -> None:
        """Begin a window.

        Args:
            key: Its name.
            sync_execution: Wait first for what the process gave the GPUs to do.
            restart: Begin anew where a window of this name is open.

        Raises:
            ValueError: A window of this name is open already.
        """
        with self._lock:
            if key in self.measurement_states and not restart:
                raise ValueError(f"Measurement window '{key}' already exists")
        state = self._begin(key, sync_execution)
        with self._lock:
            former = self.measurement_states.get(key)
            self.measurement_states[key] = state
        if former is not None:
            logger.info("Measurement window '%s' begins anew", key)
            self._drop(former)

    def window(
        self,
        name: str = "window",
        sync_execution: bool = True,
        power_monitor: PowerMonitor | None = None,
    ) -> Window:
        """A window around a block: `with monitor.window("step") as w: ...`, then `w.energy`.

        It has no key, so any number of one name may be open at a time, in any threads and tasks.
        See `Window`.

        Args:
            name: What it is called in results; it need not be unique.
            sync_execution: Wait at both edges for what the process gave the GPUs to do.
            power_monitor: Whose samples become `measurement.power`.

        Raises:
            ValueError: It samples no power of whole GPUs.
        """
        if power_monitor is not None:
            power_monitor._for_energy(None)
        return Window(self, name, sync_execution, power_monitor)

    def phases(self, *names: str, sync_execution: bool = True) -> Phases:
        """A window whose energy is divided among phases, with no synchronization at their edges.

        See `zeus.monitor.phases.Phases`.

        Args:
            names: The phases; none: whatever is begun.
            sync_execution: Wait for the GPUs at the edges of the window as a whole.
        """
        from zeus.monitor.phases import Phases

        return Phases(self, names, sync_execution)

    def _begin(self, name: str, sync_execution: bool) -> MeasurementState:
        self._sync(sync_execution)
        if self._only is not None:
            return _CoreState(time(), name, self._only.window(name))
        state = MeasurementState(time(), {}, _name=name, _monotonic=_clock.monotonic())
        if self.soc_is_present:
            key = f"{id(self)}:{next(self._soc_keys)}:{name}"
            self.soc.begin_window(key)
            state._soc_key = key
        try:
            if self._objects is not None:
                state._readings.append(self._objects.begin())
            if self._core is not None:
                state._readings.append(self._core.begin(name))
        except BaseException:
            self._drop(state)
            raise
        self._show_counters(state)
        return state

    def _show_counters(self, state: MeasurementState) -> None:
        if self.cpu_indices:
            state.cpu_energy, state.dram_energy = {}, {}
        shown = {"gpu": state.gpu_energy, "cpu": state.cpu_energy, "dram": state.dram_energy}
        for reading in state._readings:
            for name, joules in reading.counters.items():
                kind, _, index = name.partition(":")
                energies = shown[kind]
                if energies is not None:
                    energies[int(index)] = joules

    def end_window(
        self, key: str, sync_execution: bool = True, cancel: bool = False
    ) -> Measurement:
        """End a window.

        Args:
            key: Its name.
            sync_execution: Wait first for what the process gave the GPUs to do.
            cancel: Drop it; all its values are zero.

        Raises:
            ValueError: No window of this name is open.
        """
        with self._lock:
            if key not in self.measurement_states:
                raise ValueError(f"Measurement window '{key}' does not exist")
            state = self.measurement_states[key]
        if cancel:
            return self._cancel(key, state)
        measurement = self._end(state, sync_execution, depth=4)
        with self._lock:
            self.measurement_states.pop(key, None)
        return measurement

    def _end(self, state: MeasurementState, sync_execution: bool, depth: int) -> Measurement:
        """End a window. It stays open where this raises.

        Args:
            state: The window.
            sync_execution: Wait for the GPUs first.
            depth: How many calls lie between the user and a warning of this one.
        """
        self._sync(sync_execution)
        if isinstance(state, _CoreState) and self._only is not None:
            return self._end_of(self._only, state, depth + 1)
        end_time, end_monotonic = time(), _clock.monotonic()
        if self.soc_is_present and state._soc is None:
            state._soc = self.soc.end_window(state._soc_key)
        # The core, whose windows end but once, comes last: what may fail comes before it.
        parts = [reading.end() for reading in state._readings]
        seconds = next((p.seconds for p in parts if p.seconds is not None), None)
        if time is not _REAL_TIME:
            seconds = end_time - state.time
        if seconds is None:
            seconds = end_monotonic - state._monotonic
        result = put_together(self, state.time, end_time, parts)
        complete(self, result, seconds, depth)
        begin, end = state._monotonic, end_monotonic
        if result.record is not None:
            begin, end = result.record.begin_s, result.record.end_s
        wall = state.time + (begin - state._monotonic)
        span = Span(state._name, begin, end, wall)
        measurement = result.measurement(seconds, state._soc)._keep(span=span)
        self._log(state.time, state._name, measurement)
        return measurement

    def _end_of(self, core: Core, state: _CoreState, depth: int) -> Measurement:
        record, tables, reason = core.tables.finish(state._window)
        seconds = record.seconds
        if time is not _REAL_TIME:
            seconds = time() - state.time
        gpus, cpus, drams = tables
        measurement = Measurement(seconds, gpus, cpus or None, drams or None)
        known = measurement.__dict__
        known["_record"] = record
        known["_source"] = CoreWindow(core, state._name, state.time)
        if reason == TOO_SHORT:
            warn_of_zero(depth)
        elif reason != 0:
            estimates = core.estimates(record)
            complete(self, Result(gpus, cpus, drams, estimates), seconds, depth)
        if self.log_file is not None:
            self._log(state.time, state._name, measurement)
        return measurement

    def _sync(self, wanted: bool) -> None:
        if wanted and self.gpu_indices:
            sync_execution_fn(self.gpu_indices, sync_with=self.sync_with)

    def _cancel(self, key: str, state: MeasurementState) -> Measurement:
        with self._lock:
            self.measurement_states.pop(key, None)
        soc = None
        if self.soc_is_present:
            soc = self.soc.end_window(state._soc_key)
            soc.zero_all_fields()
        return Measurement(
            time=0.0,
            gpu_energy=dict.fromkeys(self.gpu_indices, 0.0),
            cpu_energy=dict.fromkeys(self.cpu_indices, 0.0) or None,
            soc_energy=soc,
        )

    def _drop(self, state: MeasurementState) -> None:
        if self.soc_is_present:
            try:
                self.soc.end_window(state._soc_key)
            except (KeyError, RuntimeError, ValueError) as error:
                logger.warning("A window of the system on a chip could not be ended: %s", error)

    def reset_windows(self) -> None:
        """Drop all open windows."""
        with self._lock:
            states = list(self.measurement_states.values())
            self.measurement_states.clear()
        for state in states:
            self._drop(state)
        logger.info("Dropped %d measurement windows", len(states))

    def _log(self, start: float, key: str, measurement: Measurement) -> None:
        if self.log_file is None:
            return
        special = any(c in key for c in ',"\r\n')
        name = '"' + key.replace('"', '""') + '"' if special else key
        cells = [start, name, measurement.time, *measurement.gpu_energy.values()]
        with self._lock:
            self.log_file.write(",".join(str(cell) for cell in cells) + "\n")
            self.log_file.flush()


_alive: weakref.WeakSet[ZeusMonitor] = weakref.WeakSet()


def _after_fork() -> None:
    # Another thread of the parent may have held a lock, which no thread of the child gives back.
    for monitor in _alive:
        monitor._lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
