"""NVIDIA GPUs, through the core or, where `pynvml` below is replaced, through what replaces it."""

from __future__ import annotations

import contextlib
import functools
import os
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from zeus import _core
from zeus.device._machine import daemon, machine, named
from zeus.device.exception import ZeusBaseGPUError
from zeus.device.gpu import _nvml as pynvml
from zeus.device.gpu import common

if TYPE_CHECKING:
    from zeus.utils.zeusd import ZeusdClient

_FACADE = pynvml

P = ParamSpec("P")
T = TypeVar("T")

# NVML's numbers: nvml.h, nvmlReturn_t.
_ERRORS: dict[int, type[ZeusBaseGPUError]] = {
    1: common.ZeusGPUInitError,
    2: common.ZeusGPUInvalidArgError,
    3: common.ZeusGPUNotSupportedError,
    4: common.ZeusGPUNoPermissionError,
    5: common.ZeusGPUAlreadyInitializedError,
    6: common.ZeusGPUNotFoundError,
    7: common.ZeusGPUInsufficientSizeError,
    8: common.ZeusGPUInsufficientPowerError,
    9: common.ZeusGPUDriverNotLoadedError,
    10: common.ZeusGPUTimeoutError,
    11: common.ZeusGPUIRQError,
    12: common.ZeusGPULibraryNotFoundError,
    13: common.ZeusGPUFunctionNotFoundError,
    14: common.ZeusGPUCorruptedInfoROMError,
    15: common.ZeusGPULostError,
    16: common.ZeusGPUResetRequiredError,
    17: common.ZeusGPUOperatingSystemError,
    18: common.ZeusGPULibRMVersionMismatchError,
    20: common.ZeusGPUMemoryError,
    999: common.ZeusGPUUnknownError,
}


def _mapped(method: Callable[P, T]) -> Callable[P, T]:
    """Raise NVML's errors as those of this package, with the GPU's index before the sentence."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except pynvml.NVMLError as error:
            kind = _ERRORS.get(error.value, common.ZeusGPUUnknownError)
            index = getattr(args[0], "gpu_index", None)
            where = "" if index is None else f"GPU {index}: "
            raise kind(where + str(error)) from error

    return call


@functools.lru_cache(maxsize=1)
def nvml_is_available() -> bool:
    """Whether NVML tells of a GPU here.

    Raises:
        ZeusGPUInitError: The environment names a daemon that does not answer.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if isinstance(error.__cause__, _core.Error):  # The machine could not be opened.
            raise common.ZeusGPUInitError(f"{named()}{error}") from error
        return False
    return True


class NVIDIAGPU(common.GPU):
    """One NVIDIA GPU.

    Attributes:
        handle: NVML's handle; with the core a device of it.
    """

    def __init__(self, gpu_index: int) -> None:
        """Find the GPU with NVML's index."""
        super().__init__(gpu_index)
        self._scopes: dict[int, int] = {}
        self._get_handle()

    @_mapped
    def _get_handle(self) -> None:
        self.handle: Any = pynvml.nvmlDeviceGetHandleByIndex(self.gpu_index)

    @classmethod
    def _of(cls, device: _core.Device) -> NVIDIAGPU:
        gpu = cls.__new__(cls)
        common.GPU.__init__(gpu, device.index)
        gpu._scopes = {}
        gpu.handle = device
        return gpu

    @property
    def supports_nonblocking_setters(self) -> bool:
        """False: NVML's setters return when the GPU has taken the value."""
        return False

    @_mapped
    def get_name(self) -> str:
        """The model."""
        return pynvml.nvmlDeviceGetName(self.handle)

    @_mapped
    def get_power_management_limit_constraints(self) -> tuple[int, int]:
        """The lowest and the highest power limit, in mW."""
        low, high = pynvml.nvmlDeviceGetPowerManagementLimitConstraints(self.handle)
        return (low, high)

    @_mapped
    def get_power_management_limit(self) -> int:
        """The power limit in force, in mW."""
        return pynvml.nvmlDeviceGetPowerManagementLimit(self.handle)

    @_mapped
    def set_power_management_limit(self, power_limit_mw: int, block: bool = True) -> None:
        """Set the power limit, in mW; nothing is done where it is in force."""
        if pynvml.nvmlDeviceGetPowerManagementLimit(self.handle) == power_limit_mw:
            return
        self._warn_sys_admin()
        pynvml.nvmlDeviceSetPowerManagementLimit(self.handle, power_limit_mw)

    @_mapped
    def reset_power_management_limit(self, block: bool = True) -> None:
        """Set the power limit to the vendor's own."""
        self.set_power_management_limit(
            pynvml.nvmlDeviceGetPowerManagementDefaultLimit(self.handle), block
        )

    @_mapped
    def set_persistence_mode(self, enabled: bool, block: bool = True) -> None:
        """Have the driver stay loaded while nobody uses the GPU, or not."""
        mode = pynvml.NVML_FEATURE_ENABLED if enabled else pynvml.NVML_FEATURE_DISABLED
        if pynvml.nvmlDeviceGetPersistenceMode(self.handle) == mode:
            return
        self._warn_sys_admin()
        pynvml.nvmlDeviceSetPersistenceMode(self.handle, mode)

    @_mapped
    def get_persistence_mode(self) -> bool:
        """Whether the driver stays loaded while nobody uses the GPU."""
        mode = pynvml.nvmlDeviceGetPersistenceMode(self.handle)
        return mode == pynvml.NVML_FEATURE_ENABLED

    @_mapped
    def get_supported_memory_clocks(self) -> list[int]:
        """The memory clocks that may be locked, in MHz."""
        return list(pynvml.nvmlDeviceGetSupportedMemoryClocks(self.handle))

    @_mapped
    def set_memory_locked_clocks(
        self, min_clock_mhz: int, max_clock_mhz: int, block: bool = True
    ) -> None:
        """Keep the memory clock within a range, in MHz."""
        self._warn_sys_admin()
        pynvml.nvmlDeviceSetMemoryLockedClocks(self.handle, min_clock_mhz, max_clock_mhz)

    @_mapped
    def reset_memory_locked_clocks(self, block: bool = True) -> None:
        """Let the driver choose the memory clock again."""
        self._warn_sys_admin()
        pynvml.nvmlDeviceResetMemoryLockedClocks(self.handle)

    @_mapped
    def get_supported_graphics_clocks(self, memory_clock_mhz: int | None = None) -> list[int]:
        """The graphics clocks that may be locked, in MHz, at a memory clock or the highest."""
        if memory_clock_mhz is None:
            memory_clock_mhz = max(pynvml.nvmlDeviceGetSupportedMemoryClocks(self.handle))
        return list(pynvml.nvmlDeviceGetSupportedGraphicsClocks(self.handle, memory_clock_mhz))

    @_mapped
    def set_gpu_locked_clocks(
        self, min_clock_mhz: int, max_clock_mhz: int, block: bool = True
    ) -> None:
        """Keep the graphics clock within a range, in MHz."""
        self._warn_sys_admin()
        pynvml.nvmlDeviceSetGpuLockedClocks(self.handle, min_clock_mhz, max_clock_mhz)

    @_mapped
    def reset_gpu_locked_clocks(self, block: bool = True) -> None:
        """Let the driver choose the graphics clock again."""
        self._warn_sys_admin()
        pynvml.nvmlDeviceResetGpuLockedClocks(self.handle)

    def _field_mw(self, field: int, scope: int) -> int:
        (value,) = pynvml.nvmlDeviceGetFieldValues(self.handle, [(field, scope)])
        if value.nvmlReturn != pynvml.NVML_SUCCESS:
            kind = _ERRORS.get(value.nvmlReturn, common.ZeusGPUUnknownError)
            reason = getattr(value, "sentence", "") or f"NVML error {value.nvmlReturn}"
            raise kind(f"GPU {self.gpu_index}: {reason}")
        return value.value.uiVal

    def _power_mw(self, field: int) -> int:
        """Power of the GPU alone or, where only that is told, of its whole module."""
        if (scope := self._scopes.get(field)) is not None:
            return self._field_mw(field, scope)
        try:
            power_mw = self._field_mw(field, pynvml.NVML_POWER_SCOPE_GPU)
            self._scopes[field] = pynvml.NVML_POWER_SCOPE_GPU
            return power_mw
        except common.ZeusGPUNotSupportedError:
            power_mw = self._field_mw(field, pynvml.NVML_POWER_SCOPE_MODULE)
        self._scopes[field] = pynvml.NVML_POWER_SCOPE_MODULE
        name = "instant" if field == pynvml.NVML_FI_DEV_POWER_INSTANT else "average"
        warnings.warn(
            f"GPU {self.gpu_index} does not tell its own {name} power: what is read is that of the "
            "whole module, CPU and GPU",
            stacklevel=4,
        )
        return power_mw

    @_mapped
    def get_average_power_usage(self) -> int:
        """The mean power of the last second, in mW."""
        return self._power_mw(pynvml.NVML_FI_DEV_POWER_AVERAGE)

    @_mapped
    def get_instant_power_usage(self) -> int:
        """The present power, in mW; of old drivers, the power by NVML's oldest way."""
        try:
            return self._power_mw(pynvml.NVML_FI_DEV_POWER_INSTANT)
        except common.ZeusGPUNotSupportedError as no_field:
            try:
                return pynvml.nvmlDeviceGetPowerUsage(self.handle)
            except pynvml.NVMLError:
                raise no_field from None

    @_mapped
    def get_average_memory_power_usage(self) -> int:
        """The mean power of the memory over the last second, in mW."""
        power_mw = self._field_mw(pynvml.NVML_FI_DEV_POWER_AVERAGE, pynvml.NVML_POWER_SCOPE_MEMORY)
        if power_mw == 0:
            warnings.warn(
                f"GPU {self.gpu_index} tells 0 W for its memory: most likely without a sensor",
                stacklevel=3,
            )
        return power_mw

    @_mapped
    def supports_get_total_energy_consumption(self) -> bool:
        """Whether the GPU counts its energy. With the core this was tried, not guessed."""
        if isinstance(self.handle, _core.Device):
            sensors = self.handle.sensors
            return "energy" in sensors or "module_energy" in sensors
        if not hasattr(self, "_supportsGetTotalEnergyConsumption"):
            self._supportsGetTotalEnergyConsumption = (
                pynvml.nvmlDeviceGetArchitecture(self.handle) >= pynvml.NVML_DEVICE_ARCH_VOLTA
            )
        return self._supportsGetTotalEnergyConsumption

    @_mapped
    def get_total_energy_consumption(self) -> int:
        """The energy since the driver was loaded, in mJ."""
        return pynvml.nvmlDeviceGetTotalEnergyConsumption(self.handle)

    @_mapped
    def get_gpu_temperature(self) -> int:
        """The temperature, in degrees Celsius."""
        return pynvml.nvmlDeviceGetTemperatureV(self.handle, pynvml.NVML_TEMPERATURE_GPU)


class ZeusdNVIDIAGPU(NVIDIAGPU):
    """An NVIDIA GPU whose settings a daemon changes.

    With a client, requests go through that; else through the core, which found the GPU there by
    its UUID or PCI address.
    """

    def __init__(self, gpu_index: int, client: ZeusdClient) -> None:
        """Find the GPU here, and by its PCI address at the daemon.

        Raises:
            ZeusBaseError: The daemon does not let this client control GPUs, or has no such GPU.
        """
        from zeus.utils.zeusd import require_capabilities

        super().__init__(gpu_index)
        require_capabilities(client, control_gpu=True)
        self._client: ZeusdClient | None = client
        self._daemon_id = self._id_at(client)

    def _id_at(self, client: ZeusdClient) -> int:
        """The daemon's number of this GPU: the same PCI address, else the same index."""
        pci = getattr(self.handle, "pci", "")
        same = [info.id for info in client.gpus if pci and (info.pci_address or "").lower() == pci]
        if len(same) == 1:
            return same[0]
        if pci and any(info.pci_address for info in client.gpus):
            raise common.ZeusGPUInitError(
                f"The daemon at {client.endpoint} has no GPU with the PCI address {pci}, which GPU "
                f"{self.gpu_index} has here; let it serve that GPU"
            )
        return self.gpu_index

    @classmethod
    def _of(cls, device: _core.Device) -> NVIDIAGPU:
        gpu = super()._of(device)
        gpu._disable_sys_admin_warning = True
        gpu._client = None  # type: ignore[attr-defined]
        return gpu

    @property
    def supports_nonblocking_setters(self) -> bool:
        """Whether requests need not wait until the GPU has taken the value."""
        return self._client is not None

    def set_power_management_limit(self, power_limit_mw: int, block: bool = True) -> None:
        """Have the daemon set the power limit, in mW; nothing is done where it is in force."""
        if self._client is None:
            super().set_power_management_limit(power_limit_mw, block)
        elif self.get_power_management_limit() != power_limit_mw:
            self._client.set_power_limit([self._daemon_id], power_limit_mw, block)

    def set_persistence_mode(self, enabled: bool, block: bool = True) -> None:
        """Have the daemon set the persistence mode."""
        if self._client is None:
            super().set_persistence_mode(enabled, block)
        else:
            self._client.set_persistence_mode([self._daemon_id], enabled, block)

    def set_memory_locked_clocks(
        self, min_clock_mhz: int, max_clock_mhz: int, block: bool = True
    ) -> None:
        """Have the daemon keep the memory clock within a range, in MHz."""
        if self._client is None:
            super().set_memory_locked_clocks(min_clock_mhz, max_clock_mhz, block)
        else:
            self._client.set_mem_locked_clocks(
                [self._daemon_id], min_clock_mhz, max_clock_mhz, block
            )

    def reset_memory_locked_clocks(self, block: bool = True) -> None:
        """Have the daemon let the driver choose the memory clock again."""
        if self._client is None:
            super().reset_memory_locked_clocks(block)
        else:
            self._client.reset_mem_locked_clocks([self._daemon_id], block)

    def set_gpu_locked_clocks(
        self, min_clock_mhz: int, max_clock_mhz: int, block: bool = True
    ) -> None:
        """Have the daemon keep the graphics clock within a range, in MHz."""
        if self._client is None:
            super().set_gpu_locked_clocks(min_clock_mhz, max_clock_mhz, block)
        else:
            self._client.set_gpu_locked_clocks(
                [self._daemon_id], min_clock_mhz, max_clock_mhz, block
            )

    def reset_gpu_locked_clocks(self, block: bool = True) -> None:
        """Have the daemon let the driver choose the graphics clock again."""
        if self._client is None:
            super().reset_gpu_locked_clocks(block)
        else:
            self._client.reset_gpu_locked_clocks([self._daemon_id], block)


class NVIDIAGPUs(common.GPUs):
    """The NVIDIA GPUs that a CUDA program would see here, in CUDA's order."""

    def __init__(self, ensure_homogeneous: bool = False) -> None:
        """Find the GPUs.

        Raises:
            ZeusGPUInitError: None is to be seen; the sentence says why.
            ZeusGPUHeterogeneousError: They are of several models, and must not be.
        """
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise common.ZeusGPUInitError(f"{named()}{error}") from error
        self._gpus: list[NVIDIAGPU] = _of_core() if pynvml is _FACADE else _of_indices()
        if ensure_homogeneous:
            self._ensure_homogeneous()

    def __del__(self) -> None:
        """Balance `nvmlInit`."""
        # While the interpreter ends, there may be no module left to ask.
        if pynvml is not None:
            with contextlib.suppress(Exception):
                pynvml.nvmlShutdown()

    @property
    def gpus(self) -> Sequence[NVIDIAGPU]:
        """The GPUs, in the order of their places."""
        return self._gpus


def _of_core() -> list[NVIDIAGPU]:
    """The GPUs of the core, which follows CUDA's own rules of what is visible."""
    gpus: list[NVIDIAGPU] = []
    for device in pynvml.devices():
        served = device.backend == "zeusd" and daemon() is not None
        gpus.append((ZeusdNVIDIAGPU if served else NVIDIAGPU)._of(device))
    if not gpus:
        reasons = "; ".join(why for _, _, why in machine().problems)
        raise common.ZeusGPUInitError(f"This process sees no NVIDIA GPU: {reasons}")
    return gpus


def _of_indices() -> list[NVIDIAGPU]:
    """The GPUs of a replaced `pynvml`, of which only their number and indices are known."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        indices = list(range(pynvml.nvmlDeviceGetCount()))
    else:
        try:
            indices = list(dict.fromkeys(int(entry) for entry in visible.split(",")))
        except ValueError as error:
            raise common.ZeusGPUInitError(
                f"CUDA_VISIBLE_DEVICES={visible} is not a list of indices, which is all that can "
                "be followed here"
            ) from error
    return [NVIDIAGPU(index) for index in indices]
