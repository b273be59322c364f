"""NVIDIA's management library as Python knows it (`pynvml`), over the core.

The names, units and errors of the two dozen functions of nvidia-ml-py that the package uses, so
that what replaces `zeus.device.gpu.nvidia.pynvml` finds them all. A handle is a device of the core.
The numbers are NVML's own (nvml.h).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import ParamSpec, TypeVar

from zeus import _core
from zeus.device._machine import machine

NVML_SUCCESS = 0
NVML_ERROR_UNINITIALIZED = 1
NVML_ERROR_INVALID_ARGUMENT = 2
NVML_ERROR_NOT_SUPPORTED = 3
NVML_ERROR_NO_PERMISSION = 4
NVML_ERROR_NOT_FOUND = 6
NVML_ERROR_TIMEOUT = 10
NVML_ERROR_GPU_IS_LOST = 15
NVML_ERROR_UNKNOWN = 999

NVML_DEVICE_ARCH_KEPLER = 2
NVML_DEVICE_ARCH_MAXWELL = 3
NVML_DEVICE_ARCH_PASCAL = 4
NVML_DEVICE_ARCH_VOLTA = 5
NVML_DEVICE_ARCH_TURING = 6
NVML_DEVICE_ARCH_AMPERE = 7
NVML_DEVICE_ARCH_ADA = 8
NVML_DEVICE_ARCH_HOPPER = 9
NVML_DEVICE_ARCH_BLACKWELL = 10
NVML_DEVICE_ARCH_UNKNOWN = 0xFFFFFFFF

NVML_FI_DEV_POWER_AVERAGE = 185
NVML_FI_DEV_POWER_INSTANT = 186
NVML_POWER_SCOPE_GPU = 0
NVML_POWER_SCOPE_MODULE = 1
NVML_POWER_SCOPE_MEMORY = 2
NVML_TEMPERATURE_GPU = 0
NVML_FEATURE_DISABLED = 0
NVML_FEATURE_ENABLED = 1

_ARCHITECTURES = {
    "kepler": NVML_DEVICE_ARCH_KEPLER,
    "maxwell": NVML_DEVICE_ARCH_MAXWELL,
    "pascal": NVML_DEVICE_ARCH_PASCAL,
    "volta": NVML_DEVICE_ARCH_VOLTA,
    "turing": NVML_DEVICE_ARCH_TURING,
    "ampere": NVML_DEVICE_ARCH_AMPERE,
    "ada": NVML_DEVICE_ARCH_ADA,
    "hopper": NVML_DEVICE_ARCH_HOPPER,
    "blackwell": NVML_DEVICE_ARCH_BLACKWELL,
}
_POWER_SENSORS = {
    (NVML_FI_DEV_POWER_INSTANT, NVML_POWER_SCOPE_GPU): "power_instant",
    (NVML_FI_DEV_POWER_AVERAGE, NVML_POWER_SCOPE_GPU): "power_average",
    (NVML_FI_DEV_POWER_INSTANT, NVML_POWER_SCOPE_MODULE): "module_power_instant",
    (NVML_FI_DEV_POWER_AVERAGE, NVML_POWER_SCOPE_MODULE): "module_power_average",
    (NVML_FI_DEV_POWER_AVERAGE, NVML_POWER_SCOPE_MEMORY): "memory_power_average",
}
_RETURNS = {
    "absent": NVML_ERROR_NOT_FOUND,
    "denied": NVML_ERROR_NO_PERMISSION,
    "unsupported": NVML_ERROR_NOT_SUPPORTED,
    "lost": NVML_ERROR_GPU_IS_LOST,
    "busy": NVML_ERROR_TIMEOUT,
    "invalid": NVML_ERROR_INVALID_ARGUMENT,
    "malformed": NVML_ERROR_UNKNOWN,
}


class NVMLError(Exception):
    """What NVML refused.

    Attributes:
        value: NVML's number of the error.
    """

    def __init__(self, value: int, sentence: str = "") -> None:
        """Keep the number and the sentence."""
        super().__init__(sentence or f"NVML error {value}")
        self.value = value


P = ParamSpec("P")
T = TypeVar("T")


def _number(error: _core.Error) -> int:
    """NVML's number of an error of the core: the vendor's own where it is one."""
    _, code, vendor = error.args
    return vendor if 0 < vendor <= NVML_ERROR_UNKNOWN else _RETURNS[code]


def _as_nvml(function: Callable[P, T]) -> Callable[P, T]:
    """Raise the core's errors as NVML's."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except _core.Error as error:
            raise NVMLError(_number(error), error.args[0]) from error

    return call


@dataclass
class Value:
    """The union of NVML's field values; power is in `uiVal`, in mW."""

    uiVal: int = 0


@dataclass
class FieldValue:
    """One field of a GPU: a value, or why there is none (`nvmlReturn`)."""

    fieldId: int
    scopeId: int
    nvmlReturn: int = NVML_SUCCESS
    value: Value = field(default_factory=Value)
    sentence: str = ""


def devices() -> list[_core.Device]:
    """The NVIDIA GPUs that a CUDA program would see here, in CUDA's order."""
    return [d for d in machine().devices if d.kind == "gpu" and _is_nvidia(d)]


def _is_nvidia(device: _core.Device) -> bool:
    """Whether NVML is behind it: a daemon serves GPUs of several vendors."""
    return device.backend == "nvml" or not device.model.startswith("AMD")


@_as_nvml
def nvmlInit() -> None:
    """Open the machine, unless it is open.

    Raises:
        NVMLError: There is no GPU for NVML to tell of.
    """
    if not devices():
        problems = machine().problems
        reasons = [f"{where}: {why}" for where, _, why in problems if "rapl" not in where]
        raise NVMLError(NVML_ERROR_NOT_FOUND, "; ".join(reasons) or "no NVIDIA GPU is visible")


def nvmlShutdown() -> None:
    """Nothing: the core closes NVML with the machine."""


@_as_nvml
def nvmlDeviceGetCount() -> int:
    """How many GPUs are visible."""
    return len(devices())


@_as_nvml
def nvmlDeviceGetHandleByIndex(index: int) -> _core.Device:
    """The GPU at a place among the visible ones."""
    found = devices()
    if not 0 <= index < len(found):
        raise NVMLError(NVML_ERROR_INVALID_ARGUMENT, f"there is no GPU {index} of {len(found)}")
    return found[index]


@_as_nvml
def nvmlDeviceGetIndex(handle: _core.Device) -> int:
    """NVML's own index of the GPU."""
    return handle.index


@_as_nvml
def nvmlDeviceGetName(handle: _core.Device) -> str:
    """The model."""
    return handle.model


@_as_nvml
def nvmlDeviceGetUUID(handle: _core.Device) -> str:
    """The UUID."""
    return handle.id


@_as_nvml
def nvmlDeviceGetArchitecture(handle: _core.Device) -> int:
    """One of NVML_DEVICE_ARCH_..."""
    return _ARCHITECTURES.get(handle.facts.get("architecture", ""), NVML_DEVICE_ARCH_UNKNOWN)


@_as_nvml
def nvmlDeviceGetPowerManagementLimitConstraints(handle: _core.Device) -> tuple[int, int]:
    """The lowest and the highest power limit, in mW."""
    low, high, _ = handle.knob_range("power_limit")
    return round(low * 1e3), round(high * 1e3)


@_as_nvml
def nvmlDeviceGetPowerManagementDefaultLimit(handle: _core.Device) -> int:
    """The vendor's own power limit, in mW."""
    return round(handle.knob_range("power_limit")[2] * 1e3)


@_as_nvml
def nvmlDeviceGetPowerManagementLimit(handle: _core.Device) -> int:
    """The power limit in force, in mW."""
    return round(handle.get_knob("power_limit")[0] * 1e3)


@_as_nvml
def nvmlDeviceSetPowerManagementLimit(handle: _core.Device, limit: int) -> None:
    """Set the power limit, in mW."""
    handle.set_knob("power_limit", limit * 1e-3)


@_as_nvml
def nvmlDeviceGetPersistenceMode(handle: _core.Device) -> int:
    """NVML_FEATURE_ENABLED or NVML_FEATURE_DISABLED."""
    return round(handle.get_knob("persistence")[0])


@_as_nvml
def nvmlDeviceSetPersistenceMode(handle: _core.Device, mode: int) -> None:
    """NVML_FEATURE_ENABLED or NVML_FEATURE_DISABLED."""
    handle.set_knob("persistence", float(mode))


def _milli(handle: _core.Device, sensor: str) -> int:
    """A reading in mW or mJ, as NVML has them; the core's joules and watts are exact multiples."""
    return round(handle.read(sensor) * 1e3)


def _mhz(hertz: Sequence[float]) -> list[int]:
    return [round(f * 1e-6) for f in hertz]


@_as_nvml
def nvmlDeviceGetSupportedMemoryClocks(handle: _core.Device) -> list[int]:
    """The memory clocks, in MHz."""
    return _mhz(handle.choices("memory_clock"))


@_as_nvml
def nvmlDeviceGetSupportedGraphicsClocks(
    handle: _core.Device, memoryClockMHz: int | None
) -> list[int]:
    """The graphics clocks at a memory clock, or at the highest, in MHz."""
    return _mhz(handle.choices("sm_clock", (memoryClockMHz or 0) * 1e6))


@_as_nvml
def nvmlDeviceSetGpuLockedClocks(
    handle: _core.Device, minGpuClockMHz: int, maxGpuClockMHz: int
) -> None:
    """Keep the graphics clock within a range, in MHz."""
    handle.set_knob("sm_clock", minGpuClockMHz * 1e6, maxGpuClockMHz * 1e6)


@_as_nvml
def nvmlDeviceResetGpuLockedClocks(handle: _core.Device) -> None:
    """Let the driver choose the graphics clock again."""
    handle.set_knob("sm_clock", 0.0)


@_as_nvml
def nvmlDeviceSetMemoryLockedClocks(
    handle: _core.Device, minMemClockMHz: int, maxMemClockMHz: int
) -> None:
    """Keep the memory clock within a range, in MHz."""
    handle.set_knob("memory_clock", minMemClockMHz * 1e6, maxMemClockMHz * 1e6)


@_as_nvml
def nvmlDeviceResetMemoryLockedClocks(handle: _core.Device) -> None:
    """Let the driver choose the memory clock again."""
    handle.set_knob("memory_clock", 0.0)


@_as_nvml
def nvmlDeviceGetPowerUsage(handle: _core.Device) -> int:
    """The power by the oldest of NVML's ways, in mW."""
    return _milli(handle, "power")


def nvmlDeviceGetFieldValues(
    handle: _core.Device, fieldIds: Sequence[int | tuple[int, int]]
) -> list[FieldValue]:
    """Power fields, each a number or a pair of number and scope; each may fail alone."""
    values = []
    for wanted in fieldIds:
        number, scope = wanted if isinstance(wanted, tuple) else (wanted, NVML_POWER_SCOPE_GPU)
        value = FieldValue(number, scope)
        sensor = _POWER_SENSORS.get((number, scope))
        if sensor is None:
            value.nvmlReturn = NVML_ERROR_INVALID_ARGUMENT
        else:
            try:
                value.value.uiVal = _milli(handle, sensor)
            except _core.Error as error:
                value.nvmlReturn, value.sentence = _number(error), error.args[0]
        values.append(value)
    return values


@_as_nvml
def nvmlDeviceGetTotalEnergyConsumption(handle: _core.Device) -> int:
    """The energy since the driver was loaded, in mJ; a module's where only that is counted."""
    sensors = handle.sensors
    only_module = "energy" not in sensors and "module_energy" in sensors
    return _milli(handle, "module_energy" if only_module else "energy")


@_as_nvml
def nvmlDeviceGetTemperatureV(handle: _core.Device, sensor: int) -> int:
    """The temperature, in degrees Celsius."""
    del sensor  # There is but one.
    return round(handle.read("temperature"))
