"""AMD GPUs through AMD SMI's Python binding (ROCm 6.3 or newer)."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from zeus.device.exception import ZeusBaseGPUError
from zeus.device.gpu._amd_energy import EnergyCounter, validate
from zeus.device.gpu._amd_library import MissingModule, call, serialised
from zeus.device.gpu._amd_visible import visible_hip_indices
from zeus.device.gpu.common import (
    GPU,
    GPUs,
    ZeusGPUInitError,
    ZeusGPUNotFoundError,
    ZeusGPUNotSupportedError,
)
from zeus.exception import ZeusBaseError

if TYPE_CHECKING:
    from zeus.utils.zeusd import ZeusdClient

logger = logging.getLogger(__name__)


_import_error: BaseException | None = None
# The binding works at import time: it prints, and on machines without ROCm it raises anything.
try:
    with contextlib.redirect_stdout(io.StringIO()):
        import amdsmi
except Exception as error:
    _import_error = error
    amdsmi = MissingModule(error)


def _call(what: str, function: str, *args: Any, **kwargs: Any) -> Any:
    return call(amdsmi, what, function, *args, **kwargs)


@functools.lru_cache(maxsize=1)
def amdsmi_is_available() -> bool:
    """Whether AMD SMI can be imported and finds a driver. Tried once."""
    if _import_error is not None:
        if isinstance(_import_error, OSError) and "ROCM_PATH" not in os.environ:
            logger.warning(
                "amdsmi is installed and its library was not found: set ROCM_PATH (%s)",
                _import_error,
            )
        elif not isinstance(_import_error, ImportError | OSError):
            logger.warning("amdsmi is installed and does not work: %r", _import_error)
        return False
    try:
        _call("AMD SMI", "amdsmi_init", amdsmi.AmdSmiInitFlags.INIT_AMD_GPUS)
    except ZeusBaseGPUError as error:
        logger.info("no AMD GPU is used: %s", error)
        return False
    return True


@functools.lru_cache(maxsize=1)
def _hip_to_amdsmi_handle() -> dict[int, Any]:
    """Every GPU's handle by its HIP index; the library itself orders them by PCI address.

    Raises:
        ZeusGPUInitError: the library is too old to tell, or tells no number.
    """
    handles = _call("AMD SMI", "amdsmi_get_processor_handles")
    if hasattr(amdsmi, "amdsmi_get_gpu_enumeration_info"):
        return {
            int(_call("AMD SMI", "amdsmi_get_gpu_enumeration_info", handle)["hip_id"]): handle
            for handle in handles
        }
    if not hasattr(amdsmi, "amdsmi_get_gpu_kfd_info"):
        raise ZeusGPUInitError(
            "cannot match HIP indices with AMD SMI's GPUs: ROCm 6.3 or newer is needed"
        )
    nodes = [
        (_call("AMD SMI", "amdsmi_get_gpu_kfd_info", handle)["node_id"], position)
        for position, handle in enumerate(handles)
    ]
    for node, position in nodes:
        if not isinstance(node, int):
            raise ZeusGPUInitError(
                f"cannot match HIP indices with AMD SMI's GPUs: GPU {position} of AMD SMI has "
                f"KFD node {node!r}, not a number"
            )
    return {hip: handles[position] for hip, (_, position) in enumerate(sorted(nodes))}


def _uuid_of(hip_index: int) -> str | None:
    """The UUID that ROCR and HIP know a GPU by; None where the library has none."""
    if not hasattr(amdsmi, "amdsmi_get_gpu_enumeration_info"):
        return None
    handle = _hip_to_amdsmi_handle()[hip_index]
    info = _call(f"GPU {hip_index}", "amdsmi_get_gpu_enumeration_info", handle)
    uuid = info.get("hip_uuid")
    return uuid.lower().removeprefix("gpu-") if isinstance(uuid, str) else None


_SINGLE_RESET = (
    "GPU {}: AMD SMI cannot reset a single clock domain; use reset_locked_clocks, which resets "
    "all of them"
)


class AMDGPU(GPU):
    """One AMD GPU, by its HIP index on the whole machine."""

    _is_dual_die_odd_chiplet = False

    def __init__(self, gpu_index: int) -> None:
        """Find the GPU.

        Raises:
            ZeusGPUNotFoundError: there is no such HIP index.
            ZeusGPUInitError: HIP indices cannot be matched with the library's GPUs.
        """
        super().__init__(gpu_index)
        self._get_handle()
        self._unsupported_reason: str | None = None
        self._validate: Callable[[], None] | None = None
        self._counter = EnergyCounter(
            f"GPU {gpu_index}", self._read_counter, self._power_or_none, serialised
        )

    def _get_handle(self) -> None:
        handles = _hip_to_amdsmi_handle()
        if self.gpu_index not in handles:
            raise ZeusGPUNotFoundError(
                f"cannot open HIP index {self.gpu_index}: AMD SMI has {sorted(handles)}"
            )
        self.handle = handles[self.gpu_index]

    def _call(self, function: str, *args: Any, **kwargs: Any) -> Any:
        return _call(f"GPU {self.gpu_index}", function, self.handle, *args, **kwargs)

    def _unsupported(self, what: str) -> ZeusGPUNotSupportedError:
        return ZeusGPUNotSupportedError(f"GPU {self.gpu_index}: {what}")

    @property
    def supports_nonblocking_setters(self) -> bool:
        """False: calls return when the driver has done it."""
        return False

    def get_name(self) -> str:
        """Market name."""
        return str(self._call("amdsmi_get_gpu_asic_info")["market_name"])

    def _power_cap_mw(self, key: str) -> int:
        cap_uw = int(self._call("amdsmi_get_power_cap_info")[key])
        if cap_uw % 1000:
            logger.warning(
                "GPU %d: %s is %d uW, no whole milliwatts: rounded down",
                self.gpu_index,
                key,
                cap_uw,
            )
        return cap_uw // 1000

    def get_power_management_limit_constraints(self) -> tuple[int, int]:
        """Least and greatest power limit, in mW."""
        return self._power_cap_mw("min_power_cap"), self._power_cap_mw("max_power_cap")

    def get_power_management_limit(self) -> int:
        """Power limit, in mW."""
        return self._power_cap_mw("power_cap")

    def set_power_management_limit(self, power_limit_mw: int, block: bool = True) -> None:
        """Set the power limit in mW, if it is another one; needs SYS_ADMIN."""
        if self.get_power_management_limit() == power_limit_mw:
            return
        self._warn_sys_admin()
        self._call("amdsmi_set_power_cap", 0, int(power_limit_mw * 1000))

    def reset_power_management_limit(self, block: bool = True) -> None:
        """Set the vendor's default power limit; needs SYS_ADMIN."""
        self.set_power_management_limit(self._power_cap_mw("default_power_cap"), block)

    def set_persistence_mode(self, enabled: bool, block: bool = True) -> None:
        """Raises ZeusGPUNotSupportedError: AMD GPUs have no such mode."""
        raise self._unsupported("AMD GPUs have no persistence mode")

    def get_persistence_mode(self) -> bool:
        """Raises ZeusGPUNotSupportedError: AMD GPUs have no such mode."""
        raise self._unsupported("AMD GPUs have no persistence mode")

    def _clock_range(self, clock: str) -> list[int]:
        info = self._call("amdsmi_get_clock_info", getattr(amdsmi.AmdSmiClkType, clock))
        return [info["max_clk"], info["min_clk"]]

    def _lock_clock(self, clock: str, min_mhz: int, max_mhz: int) -> None:
        self._warn_sys_admin()
        clock_type = getattr(amdsmi.AmdSmiClkType, clock)
        self._call("amdsmi_set_gpu_clk_range", min_mhz, max_mhz, clk_type=clock_type)

    def get_supported_memory_clocks(self) -> list[int]:
        """Greatest and least memory clock, in MHz: the library tells no steps."""
        return self._clock_range("MEM")

    def set_memory_locked_clocks(
        self, min_clock_mhz: int, max_clock_mhz: int, block: bool = True
    ) -> None:
        """Keep the memory clock in a range, in MHz; needs SYS_ADMIN."""
        self._lock_clock("MEM", min_clock_mhz, max_clock_mhz)

    def reset_memory_locked_clocks(self, block: bool = True) -> None:
        """Raises ZeusGPUNotSupportedError: only all clocks can be reset."""
        raise ZeusGPUNotSupportedError(_SINGLE_RESET.format(self.gpu_index))

    def get_supported_graphics_clocks(self, memory_clock_mhz: int | None = None) -> list[int]:
        """Greatest and least graphics clock, in MHz, whatever the memory clock."""
        return self._clock_range("GFX")

    def set_gpu_locked_clocks(
        self, min_clock_mhz: int, max_clock_mhz: int, block: bool = True
    ) -> None:
        """Keep the graphics clock in a range, in MHz; needs SYS_ADMIN."""
        self._lock_clock("GFX", min_clock_mhz, max_clock_mhz)

    def reset_gpu_locked_clocks(self, block: bool = True) -> None:
        """Raises ZeusGPUNotSupportedError: only all clocks can be reset."""
        raise ZeusGPUNotSupportedError(_SINGLE_RESET.format(self.gpu_index))

    def reset_locked_clocks(self, block: bool = True) -> None:
        """Give all clocks back to the driver; needs SYS_ADMIN."""
        self._warn_sys_admin()
        self._call("amdsmi_set_gpu_perf_level", amdsmi.AmdSmiDevPerfLevel.AUTO)

    def _power_mw(self, key: str) -> int | None:
        """A power of the library in mW (it tells whole watts); None where it says "N/A"."""
        power_w = self._call("amdsmi_get_power_info")[key]
        return power_w * 1000 if isinstance(power_w, int) else None

    def _power_or_none(self) -> int | None:
        try:
            average_mw = self._power_mw("average_socket_power")
            return self._power_mw("current_socket_power") if average_mw is None else average_mw
        except ZeusBaseGPUError:
            return None  # The callers ask whether there is a reading.

    def _power(self, key: str, kind: str) -> int:
        if self._is_dual_die_odd_chiplet:
            raise self._unsupported(str(self._unsupported_reason))
        power_mw = self._power_mw(key)
        if power_mw is None:
            raise self._unsupported(f"no {kind} power reading on this model ({key} is no number)")
        return power_mw

    def get_average_power_usage(self) -> int:
        """Average power in mW (resolution 1 W)."""
        return self._power("average_socket_power", "average")

    def get_instant_power_usage(self) -> int:
        """Power now in mW (resolution 1 W)."""
        return self._power("current_socket_power", "instant")

    def get_average_memory_power_usage(self) -> int:
        """Raises ZeusGPUNotSupportedError: the library has no such reading."""
        raise self._unsupported("AMD SMI has no memory power reading")

    def supports_get_total_energy_consumption(self) -> bool:
        """Whether the energy counter exists and agrees with the power reading.

        The first question on an `AMDGPUs` compares all its GPUs at once and takes half a second.
        """
        if self._validate is not None:
            self._validate()
        return not self._is_dual_die_odd_chiplet and self._counter.doubt is None

    def _read_counter(self) -> tuple[int, float]:
        info = self._call("amdsmi_get_energy_count")
        # Named "power" before ROCm 6.4.
        counts = info["energy_accumulator"] if "energy_accumulator" in info else info["power"]
        return int(counts), float(info["counter_resolution"])

    def get_total_energy_consumption(self) -> int:
        """Energy since the driver was loaded, in mJ.

        Raises:
            ZeusGPUNotSupportedError: there is no counter, or it is known to be wrong.
        """
        if self._is_dual_die_odd_chiplet:
            raise self._unsupported(str(self._unsupported_reason))
        energy_mj = self._counter.read_mj()
        if self._counter.doubt is not None:
            raise self._unsupported(self._counter.doubt)
        return energy_mj

    def get_gpu_temperature(self) -> int:
        """Hotspot temperature in degrees Celsius (the library tells thousandths)."""
        reading = self._call(
            "amdsmi_get_temp_metric",
            amdsmi.AmdSmiTemperatureType.HOTSPOT,
            amdsmi.AmdSmiTemperatureMetric.CURRENT,
        )
        return int(reading) // 1000


class ZeusdAMDGPU(AMDGPU):
    """An AMD GPU that is read here and set through the daemon zeusd."""

    def __init__(self, gpu_index: int, client: ZeusdClient) -> None:
        """Find the GPU here and, by its PCI address, at the daemon.

        Raises:
            ZeusGPUInitError: not exactly one of the daemon's GPUs has this PCI address.
        """
        from zeus.utils.zeusd import require_capabilities

        super().__init__(gpu_index)
        require_capabilities(client, control_gpu=True)
        self._client = client
        address = str(self._call("amdsmi_get_gpu_device_bdf")).lower()
        matches = [gpu.id for gpu in client.gpus if gpu.pci_address.lower() == address]
        if len(matches) != 1:
            raise ZeusGPUInitError(
                f"GPU {gpu_index}: {len(matches)} GPUs of zeusd at {client.endpoint} have the PCI "
                f"address {address}, where one is needed"
            )
        self._daemon_gpu_id = matches[0]

    @property
    def supports_nonblocking_setters(self) -> bool:
        """True: with `block=False` the daemon answers before the driver has done it."""
        return True

    def set_power_management_limit(self, power_limit_mw: int, block: bool = True) -> None:
        """Set the power limit in mW, if it is another one."""
        if self.get_power_management_limit() != power_limit_mw:
            self._client.set_power_limit([self._daemon_gpu_id], power_limit_mw, block)

    def set_memory_locked_clocks(
        self, min_clock_mhz: int, max_clock_mhz: int, block: bool = True
    ) -> None:
        """Keep the memory clock in a range, in MHz."""
        self._client.set_mem_locked_clocks(
            [self._daemon_gpu_id], min_clock_mhz, max_clock_mhz, block
        )

    def set_gpu_locked_clocks(
        self, min_clock_mhz: int, max_clock_mhz: int, block: bool = True
    ) -> None:
        """Keep the graphics clock in a range, in MHz."""
        self._client.set_gpu_locked_clocks(
            [self._daemon_gpu_id], min_clock_mhz, max_clock_mhz, block
        )

    def reset_locked_clocks(self, block: bool = True) -> None:
        """Give all clocks back to the driver."""
        self._client.reset_locked_clocks([self._daemon_gpu_id], block)


class AMDGPUs(GPUs):
    """The AMD GPUs that a HIP program in this environment would see, in its order."""

    def __init__(self, ensure_homogeneous: bool = False) -> None:
        """Open the GPUs.

        Raises:
            ZeusGPUInitError: the driver or the library does not work, or no GPU is visible.
            ZeusGPUHeterogeneousError: `ensure_homogeneous`, and the models differ.
        """
        _call("AMD SMI", "amdsmi_init", amdsmi.AmdSmiInitFlags.INIT_AMD_GPUS)
        self._init_gpus()
        if ensure_homogeneous:
            self._ensure_homogeneous()

    @property
    def gpus(self) -> Sequence[GPU]:
        """The GPUs; positions are what PyTorch calls `cuda:N`."""
        return self._gpus

    def _init_gpus(self) -> None:
        visible = visible_hip_indices(os.environ, sorted(_hip_to_amdsmi_handle()), _uuid_of)
        client = _zeusd_client()
        self._gpus: list[AMDGPU] = []
        for index in visible:
            gpu = AMDGPU(index) if client is None else ZeusdAMDGPU(index, client)
            gpu._disable_sys_admin_warning = client is not None
            self._gpus.append(gpu)
        self._validate_lock = threading.Lock()
        for gpu in self._gpus:
            _probe(gpu)
            gpu._validate = self._validate_counters

    def _validate_counters(self) -> None:
        """Once for all GPUs, at the first question about one of their counters."""
        with self._validate_lock:
            waiting = [gpu for gpu in self._gpus if gpu._validate is not None]
            validate([gpu._counter for gpu in waiting if not gpu._is_dual_die_odd_chiplet])
            for gpu in waiting:
                gpu._validate = None

    def __del__(self) -> None:
        """Close the library."""
        with contextlib.suppress(Exception):  # At exit the library or the module may be gone.
            _call("AMD SMI", "amdsmi_shut_down")


def _zeusd_client() -> ZeusdClient | None:
    """The daemon that the environment names, for setting; None where it names none or may not set.

    Raises:
        ZeusGPUInitError: the daemon does not answer.
    """
    if "ZEUSD_SOCK_PATH" not in os.environ and "ZEUSD_HOST_PORT" not in os.environ:
        return None
    from zeus.utils.zeusd import ZeusdClient, ZeusdConfig, require_capabilities

    try:
        client = ZeusdClient(ZeusdConfig.from_env())
    except ZeusBaseError as error:
        raise ZeusGPUInitError(str(error)) from error
    try:
        require_capabilities(client, control_gpu=True)
    except ZeusBaseError as error:
        warnings.warn(
            f"AMD GPUs are read here and set without zeusd, which needs SYS_ADMIN: {error}",
            stacklevel=2,
        )
        return None
    return client


def _probe(gpu: AMDGPU) -> None:
    """Say what the readings of a package with several parts are of."""
    name = gpu.get_name()
    if "MI300A" in name:
        logger.warning(
            "GPU %d (%s): readings are of the whole package, with its CPU and memory",
            gpu.gpu_index,
            name,
        )
    if "MI250" in name:
        _probe_dual_die(gpu)


def _probe_dual_die(gpu: AMDGPU) -> None:
    """An MI250's card is metered on one of its two dies; the other one reads 0 or "N/A"."""
    if gpu._power_or_none():
        logger.warning("GPU %d: readings are of both dies of its MI250 card", gpu.gpu_index)
        return
    # The dies of a card are neighbours by PCI address, whatever their HIP indices.
    by_address = [
        (str(_call("AMD SMI", "amdsmi_get_gpu_device_bdf", handle)).lower(), hip)
        for hip, handle in _hip_to_amdsmi_handle().items()
    ]
    ordered = [hip for _, hip in sorted(by_address)]
    position = ordered.index(gpu.gpu_index)
    partner = f"GPU {ordered[position - 1]}" if position else "another GPU"
    gpu._is_dual_die_odd_chiplet = True
    gpu._unsupported_reason = (
        f"this die of an MI250 card has no readings; those of {partner} (HIP index) are of both"
    )
    logger.warning("GPU %d: %s", gpu.gpu_index, gpu._unsupported_reason)
