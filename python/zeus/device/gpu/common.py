"""What GPUs of every vendor are to the rest of the package: their methods, units and errors."""

from __future__ import annotations

import abc
import warnings
from collections.abc import Sequence

from zeus.device.common import DeprecatedAliasABCMeta, deprecated_alias, has_sys_admin
from zeus.device.exception import ZeusBaseGPUError

__all__ = [
    "GPU",
    "DeprecatedAliasABCMeta",
    "EmptyGPUs",
    "GPUs",
    "ZeusBaseGPUError",
    "ZeusGPUAlreadyInitializedError",
    "ZeusGPUCorruptedInfoROMError",
    "ZeusGPUDriverNotLoadedError",
    "ZeusGPUFunctionNotFoundError",
    "ZeusGPUHeterogeneousError",
    "ZeusGPUIRQError",
    "ZeusGPUInitError",
    "ZeusGPUInsufficientPowerError",
    "ZeusGPUInsufficientSizeError",
    "ZeusGPUInvalidArgError",
    "ZeusGPULibRMVersionMismatchError",
    "ZeusGPULibraryNotFoundError",
    "ZeusGPULostError",
    "ZeusGPUMemoryError",
    "ZeusGPUNoPermissionError",
    "ZeusGPUNotFoundError",
    "ZeusGPUNotSupportedError",
    "ZeusGPUOperatingSystemError",
    "ZeusGPUResetRequiredError",
    "ZeusGPUTimeoutError",
    "ZeusGPUUnknownError",
    "deprecated_alias",
    "has_sys_admin",
]


class ZeusGPUInitError(ZeusBaseGPUError):
    """The vendor's library could not be started, or there is no GPU to be seen."""


class ZeusGPUInvalidArgError(ZeusBaseGPUError):
    """The vendor's library does not take this argument."""


class ZeusGPUNotSupportedError(ZeusBaseGPUError):
    """This GPU or driver cannot do that."""


class ZeusGPUNoPermissionError(ZeusBaseGPUError):
    """This process may not do that."""


class ZeusGPUAlreadyInitializedError(ZeusBaseGPUError):
    """The vendor's library was started already."""


class ZeusGPUNotFoundError(ZeusBaseGPUError):
    """There is no such GPU or object."""


class ZeusGPUInsufficientSizeError(ZeusBaseGPUError):
    """A buffer given to the vendor's library is too small."""


class ZeusGPUInsufficientPowerError(ZeusBaseGPUError):
    """The GPU's external power cables are not attached as they should be."""


class ZeusGPUDriverNotLoadedError(ZeusBaseGPUError):
    """The vendor's driver is not loaded."""


class ZeusGPUTimeoutError(ZeusBaseGPUError):
    """The vendor's library did not answer in its time."""


class ZeusGPUIRQError(ZeusBaseGPUError):
    """The kernel found a problem with the GPU's interrupts."""


class ZeusGPULibraryNotFoundError(ZeusBaseGPUError):
    """The vendor's library is not installed."""


class ZeusGPUFunctionNotFoundError(ZeusBaseGPUError):
    """The vendor's library is too old for that."""


class ZeusGPUCorruptedInfoROMError(ZeusBaseGPUError):
    """The GPU's infoROM is corrupted."""


class ZeusGPULostError(ZeusBaseGPUError):
    """The GPU has fallen off the bus or cannot be reached."""


class ZeusGPUResetRequiredError(ZeusBaseGPUError):
    """The GPU must be reset before it can be used."""


class ZeusGPUOperatingSystemError(ZeusBaseGPUError):
    """The operating system refused the vendor's library."""


class ZeusGPULibRMVersionMismatchError(ZeusBaseGPUError):
    """The vendor's library and driver are of different versions."""


class ZeusGPUMemoryError(ZeusBaseGPUError):
    """There is not enough memory."""


class ZeusGPUUnknownError(ZeusBaseGPUError):
    """The vendor's library failed without a reason that is known."""


class ZeusGPUHeterogeneousError(ZeusBaseGPUError):
    """The GPUs are not all of one model."""


_NEEDS_SYS_ADMIN = (
    "Changing a GPU's settings needs CAP_SYS_ADMIN, which this process has not; run it as root, "
    "or through zeusd (ZEUSD_SOCK_PATH)"
)


class GPU(metaclass=DeprecatedAliasABCMeta):
    """One GPU.

    Attributes:
        gpu_index: The vendor's own index (NVML's or HIP's), not the one among visible GPUs.
    """

    def __init__(self, gpu_index: int) -> None:
        """Remember which GPU this is."""
        self.gpu_index = gpu_index
        self._disable_sys_admin_warning = False

    def _warn_sys_admin(self) -> None:
        """Warn once where this process has not the right to change settings."""
        if not self._disable_sys_admin_warning and not has_sys_admin():
            warnings.warn(_NEEDS_SYS_ADMIN, stacklevel=2)
            self._disable_sys_admin_warning = True

    @property
    @abc.abstractmethod
    def supports_nonblocking_setters(self) -> bool:
        """Whether `block=False` makes a setter return before the GPU has taken the value."""

    @deprecated_alias("getName")
    @abc.abstractmethod
    def get_name(self) -> str:
        """The model."""

    @deprecated_alias("getPowerManagementLimitConstraints")
    @abc.abstractmethod
    def get_power_management_limit_constraints(self) -> tuple[int, int]:
        """The lowest and the highest power limit, in mW."""

    @abc.abstractmethod
    def get_power_management_limit(self) -> int:
        """The power limit in force, in mW."""

    @deprecated_alias("setPowerManagementLimit")
    @abc.abstractmethod
    def set_power_management_limit(self, power_limit_mw: int, block: bool = True) -> None:
        """Set the power limit, in mW."""

    @deprecated_alias("resetPowerManagementLimit")
    @abc.abstractmethod
    def reset_power_management_limit(self, block: bool = True) -> None:
        """Set the power limit to the vendor's own."""

    @deprecated_alias("setPersistenceMode")
    @abc.abstractmethod
    def set_persistence_mode(self, enabled: bool, block: bool = True) -> None:
        """Have the driver stay loaded while nobody uses the GPU, or not."""

    @abc.abstractmethod
    def get_persistence_mode(self) -> bool:
        """Whether the driver stays loaded while nobody uses the GPU."""

    @deprecated_alias("getSupportedMemoryClocks")
    @abc.abstractmethod
    def get_supported_memory_clocks(self) -> list[int]:
        """The memory clocks that may be locked, in MHz."""

    @deprecated_alias("setMemoryLockedClocks")
    @abc.abstractmethod
    def set_memory_locked_clocks(
        self, min_clock_mhz: int, max_clock_mhz: int, block: bool = True
    ) -> None:
        """Keep the memory clock within a range, in MHz."""

    @deprecated_alias("resetMemoryLockedClocks")
    @abc.abstractmethod
    def reset_memory_locked_clocks(self, block: bool = True) -> None:
        """Let the driver choose the memory clock again."""

    @deprecated_alias("getSupportedGraphicsClocks")
    @abc.abstractmethod
    def get_supported_graphics_clocks(self, memory_clock_mhz: int | None = None) -> list[int]:
        """The graphics clocks that may be locked, in MHz.

        Args:
            memory_clock_mhz: At this memory clock; None: at the highest.
        """

    @deprecated_alias("setGpuLockedClocks")
    @abc.abstractmethod
    def set_gpu_locked_clocks(
        self, min_clock_mhz: int, max_clock_mhz: int, block: bool = True
    ) -> None:
        """Keep the graphics clock within a range, in MHz."""

    @deprecated_alias("resetGpuLockedClocks")
    @abc.abstractmethod
    def reset_gpu_locked_clocks(self, block: bool = True) -> None:
        """Let the driver choose the graphics clock again."""

    def reset_locked_clocks(self, block: bool = True) -> None:
        """Let the driver choose both clocks again."""
        self.reset_gpu_locked_clocks(block=block)
        self.reset_memory_locked_clocks(block=block)

    @deprecated_alias("getAveragePowerUsage")
    @abc.abstractmethod
    def get_average_power_usage(self) -> int:
        """The mean power over the vendor's own window (NVIDIA: one second), in mW."""

    @deprecated_alias("getInstantPowerUsage")
    @abc.abstractmethod
    def get_instant_power_usage(self) -> int:
        """The present power, in mW."""

    @deprecated_alias("getAverageMemoryPowerUsage")
    @abc.abstractmethod
    def get_average_memory_power_usage(self) -> int:
        """The mean power of the memory, in mW."""

    @deprecated_alias("supportsGetTotalEnergyConsumption")
    @abc.abstractmethod
    def supports_get_total_energy_consumption(self) -> bool:
        """Whether the GPU counts its energy."""

    @deprecated_alias("getTotalEnergyConsumption")
    @abc.abstractmethod
    def get_total_energy_consumption(self) -> int:
        """The energy since the driver was loaded, in mJ."""

    @deprecated_alias("getGpuTemperature")
    @abc.abstractmethod
    def get_gpu_temperature(self) -> int:
        """The temperature, in degrees Celsius."""


class GPUs(metaclass=DeprecatedAliasABCMeta):
    """The GPUs that this process sees. `gpu_index` is a place among them, from 0 on.

    Raises:
        IndexError: There is no GPU at that place.
    """

    @abc.abstractmethod
    def __init__(self, ensure_homogeneous: bool = False) -> None:
        """Find the GPUs.

        Args:
            ensure_homogeneous: Raise `ZeusGPUHeterogeneousError` where they are of several models.
        """

    @abc.abstractmethod
    def __del__(self) -> None:
        """Let go of the vendor's library."""

    @property
    @abc.abstractmethod
    def gpus(self) -> Sequence[GPU]:
        """The GPUs, in the order of their places."""

    def __len__(self) -> int:
        """How many GPUs there are."""
        return len(self.gpus)

    def _ensure_homogeneous(self) -> None:
        models = sorted({gpu.get_name() for gpu in self.gpus})
        if len(models) > 1:
            raise ZeusGPUHeterogeneousError(
                f"The GPUs must all be of one model, but there are {', '.join(models)}; choose "
                "some of one model with CUDA_VISIBLE_DEVICES or gpu_indices"
            )

    def _warn_sys_admin(self) -> None:
        if not getattr(self, "_disable_sys_admin_warning", False) and not has_sys_admin():
            warnings.warn(_NEEDS_SYS_ADMIN, stacklevel=2)
            self._disable_sys_admin_warning = True

    def supports_nonblocking_setters(self, gpu_index: int) -> bool:
        """Whether `block=False` makes a setter return before the GPU has taken the value."""
        return self.gpus[gpu_index].supports_nonblocking_setters

    @deprecated_alias("getName")
    def get_name(self, gpu_index: int) -> str:
        """The model."""
        return self.gpus[gpu_index].get_name()

    @deprecated_alias("getPowerManagementLimitConstraints")
    def get_power_management_limit_constraints(self, gpu_index: int) -> tuple[int, int]:
        """The lowest and the highest power limit, in mW."""
        return self.gpus[gpu_index].get_power_management_limit_constraints()

    def get_power_management_limit(self, gpu_index: int) -> int:
        """The power limit in force, in mW."""
        return self.gpus[gpu_index].get_power_management_limit()

    @deprecated_alias("setPowerManagementLimit")
    def set_power_management_limit(
        self, gpu_index: int, power_limit_mw: int, block: bool = True
    ) -> None:
        """Set the power limit, in mW."""
        self.gpus[gpu_index].set_power_management_limit(power_limit_mw, block)

    @deprecated_alias("resetPowerManagementLimit")
    def reset_power_management_limit(self, gpu_index: int, block: bool = True) -> None:
        """Set the power limit to the vendor's own."""
        self.gpus[gpu_index].reset_power_management_limit(block)

    @deprecated_alias("setPersistenceMode")
    def set_persistence_mode(self, gpu_index: int, enabled: bool, block: bool = True) -> None:
        """Have the driver stay loaded while nobody uses the GPU, or not."""
        self.gpus[gpu_index].set_persistence_mode(enabled, block)

    def get_persistence_mode(self, gpu_index: int) -> bool:
        """Whether the driver stays loaded while nobody uses the GPU."""
        return self.gpus[gpu_index].get_persistence_mode()

    @deprecated_alias("getSupportedMemoryClocks")
    def get_supported_memory_clocks(self, gpu_index: int) -> list[int]:
        """The memory clocks that may be locked, in MHz."""
        return self.gpus[gpu_index].get_supported_memory_clocks()

    @deprecated_alias("setMemoryLockedClocks")
    def set_memory_locked_clocks(
        self, gpu_index: int, min_clock_mhz: int, max_clock_mhz: int, block: bool = True
    ) -> None:
        """Keep the memory clock within a range, in MHz."""
        self.gpus[gpu_index].set_memory_locked_clocks(min_clock_mhz, max_clock_mhz, block)

    @deprecated_alias("resetMemoryLockedClocks")
    def reset_memory_locked_clocks(self, gpu_index: int, block: bool = True) -> None:
        """Let the driver choose the memory clock again."""
        self.gpus[gpu_index].reset_memory_locked_clocks(block)

    @deprecated_alias("getSupportedGraphicsClocks")
    def get_supported_graphics_clocks(
        self, gpu_index: int, memory_clock_mhz: int | None = None
    ) -> list[int]:
        """The graphics clocks that may be locked, in MHz, at a memory clock or the highest."""
        return self.gpus[gpu_index].get_supported_graphics_clocks(memory_clock_mhz)

    @deprecated_alias("setGpuLockedClocks")
    def set_gpu_locked_clocks(
        self, gpu_index: int, min_clock_mhz: int, max_clock_mhz: int, block: bool = True
    ) -> None:
        """Keep the graphics clock within a range, in MHz."""
        self.gpus[gpu_index].set_gpu_locked_clocks(min_clock_mhz, max_clock_mhz, block)

    @deprecated_alias("resetGpuLockedClocks")
    def reset_gpu_locked_clocks(self, gpu_index: int, block: bool = True) -> None:
        """Let the driver choose the graphics clock again."""
        self.gpus[gpu_index].reset_gpu_locked_clocks(block)

    def reset_locked_clocks(self, gpu_index: int, block: bool = True) -> None:
        """Let the driver choose both clocks again."""
        self.gpus[gpu_index].reset_locked_clocks(block)

    @deprecated_alias("getAveragePowerUsage")
    def get_average_power_usage(self, gpu_index: int) -> int:
        """The mean power over the vendor's own window (NVIDIA: one second), in mW."""
        return self.gpus[gpu_index].get_average_power_usage()

    @deprecated_alias("getInstantPowerUsage")
    def get_instant_power_usage(self, gpu_index: int) -> int:
        """The present power, in mW."""
        return self.gpus[gpu_index].get_instant_power_usage()

    @deprecated_alias("getAverageMemoryPowerUsage")
    def get_average_memory_power_usage(self, gpu_index: int) -> int:
        """The mean power of the memory, in mW."""
        return self.gpus[gpu_index].get_average_memory_power_usage()

    @deprecated_alias("supportsGetTotalEnergyConsumption")
    def supports_get_total_energy_consumption(self, gpu_index: int) -> bool:
        """Whether the GPU counts its energy."""
        return self.gpus[gpu_index].supports_get_total_energy_consumption()

    @deprecated_alias("getTotalEnergyConsumption")
    def get_total_energy_consumption(self, gpu_index: int) -> int:
        """The energy since the driver was loaded, in mJ."""
        return self.gpus[gpu_index].get_total_energy_consumption()

    @deprecated_alias("getGpuTemperature")
    def get_gpu_temperature(self, gpu_index: int) -> int:
        """The temperature, in degrees Celsius."""
        return self.gpus[gpu_index].get_gpu_temperature()


class _NoGPUs(tuple[GPU, ...]):
    """A sequence without a GPU, which says so when one is asked for."""

    def __getitem__(self, index: object) -> GPU:  # type: ignore[override]
        raise ValueError(f"there is no GPU {index}: this process sees no GPU")


class EmptyGPUs(GPUs):
    """What stands for the GPUs where there are none: empty; asked for a GPU, `ValueError`."""

    def __init__(self, ensure_homogeneous: bool = False) -> None:
        """Nothing is looked for."""

    def __del__(self) -> None:
        """Nothing is let go of."""

    @property
    def gpus(self) -> Sequence[GPU]:
        """No GPU."""
        return _NoGPUs()

    def _ensure_homogeneous(self) -> None:
        raise ValueError("this process sees no GPU")

    def _warn_sys_admin(self) -> None:
        raise ValueError("this process sees no GPU")
