"""What Zeus asks of a framework for deep learning: to wait for its GPUs, and who its peers are.

Only a framework that the process has imported has work in flight or peers, so nothing here imports
one but the `*_is_available` functions.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
import warnings
from types import ModuleType
from typing import Any, Literal

MODULE_CACHE: dict[str, ModuleType] = {}

_NAMES = {"torch": "Pytorch", "jax": "JAX", "cupy": "CuPy"}
_CUDA_ERROR_NOT_INITIALIZED = 3


@functools.cache
def torch_is_available(ensure_available: bool = False, ensure_cuda: bool = True) -> bool:
    """Tell whether PyTorch can be imported.

    Args:
        ensure_available: Raise where it cannot.
        ensure_cuda: Raise where it can and has no GPU.

    Raises:
        RuntimeError: As the arguments say.
    """
    torch = _import("torch", ensure_available)
    if torch is None:
        return False
    if ensure_cuda and not torch.cuda.is_available():
        raise RuntimeError("PyTorch was imported, and finds no CUDA or ROCm GPU to work with")
    return True


@functools.cache
def jax_is_available(ensure_available: bool = False, ensure_cuda: bool = True) -> bool:
    """Tell whether JAX can be imported; see `torch_is_available`."""
    jax = _import("jax", ensure_available)
    if jax is None:
        return False
    if ensure_cuda and not _jax_gpus(jax):
        raise RuntimeError("JAX was imported, and finds no GPU to work with")
    return True


@functools.cache
def cupy_is_available(ensure_available: bool = False) -> bool:
    """Tell whether CuPy can be imported; raise RuntimeError where it cannot and must."""
    return _import("cupy", ensure_available) is not None


def sync_execution(
    gpu_devices: list[int], sync_with: Literal["torch", "jax", "cupy"] = "torch"
) -> None:
    """Wait until the GPUs have done what this process gave them through a framework.

    A framework that the process has not imported, and a GPU on which it has no context, have
    nothing to wait for and are left alone: touching them would create a context of hundreds of
    megabytes, whose power would be measured too.

    Args:
        gpu_devices: Indices, as the framework counts them.
        sync_with: The framework.

    Raises:
        RuntimeError: There is no such framework, or it is not installed while another one is in
            use, whose work would be missed.
    """
    if sync_with not in _NAMES:
        raise RuntimeError(
            f"No framework is available. Zeus knows none that is called {sync_with!r}; "
            f"synchronize with one of {', '.join(_NAMES)}"
        )
    module = _loaded(sync_with)
    if module is None:
        _say_if_another_is_loaded(sync_with)
    elif sync_with == "torch":
        _sync_torch(module, gpu_devices)
    elif sync_with == "jax":
        _sync_jax(module, gpu_devices)
    else:
        for device in _with_context(gpu_devices):
            module.cuda.Device(device).synchronize()


def all_reduce(
    object: list[int] | list[float], operation: Literal["sum", "max"]
) -> list[int] | list[float]:
    """Combine lists of numbers over all ranks, item by item, in double precision.

    Args:
        object: This rank's numbers; every rank gives as many.
        operation: How to combine.

    Returns:
        The same list where there is one process only.

    Raises:
        ValueError: There is no such operation.
        NotImplementedError: JAX is distributed.
    """
    if operation not in ("sum", "max"):
        raise ValueError(f"cannot reduce by {operation!r}: give 'sum' or 'max'")
    torch = _loaded("torch")
    if torch is not None:
        if not _torch_is_distributed(torch):
            return object
        dist = torch.distributed
        # NCCL reduces what lies on GPUs only; other backends take what lies in memory.
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        tensor = torch.tensor(object, dtype=torch.float64, device=device)
        dist.all_reduce(tensor, op=dist.ReduceOp.SUM if operation == "sum" else dist.ReduceOp.MAX)
        reduced: list[float] = tensor.cpu().tolist()
        return reduced
    jax = _loaded("jax")
    if jax is not None and jax.device_count() > 1:
        raise NotImplementedError(
            "cannot reduce over the processes of JAX: Zeus does so with PyTorch only"
        )
    return object


def is_distributed() -> bool:
    """Tell whether PyTorch runs on several ranks, or JAX on several devices."""
    torch = _loaded("torch")
    if torch is not None:
        return _torch_is_distributed(torch)
    jax = _loaded("jax")
    return jax is not None and jax.device_count() > 1


def get_rank() -> int:
    """Give the rank of this process; 0 where there is one only."""
    torch = _loaded("torch")
    if torch is not None:
        return int(torch.distributed.get_rank()) if _torch_is_distributed(torch) else 0
    jax = _loaded("jax")
    return 0 if jax is None else int(jax.process_index())


def get_world_size() -> int:
    """Give the number of ranks; 1 where there is one process only."""
    torch = _loaded("torch")
    if torch is not None:
        return int(torch.distributed.get_world_size()) if _torch_is_distributed(torch) else 1
    jax = _loaded("jax")
    return 1 if jax is None else int(jax.process_count())


def _import(name: str, ensure_available: bool) -> Any:
    if name not in MODULE_CACHE:
        try:
            MODULE_CACHE[name] = importlib.import_module(name)
        except ImportError as error:
            if ensure_available:
                raise RuntimeError(f"Failed to import {_NAMES[name]}: {error}") from error
            return None
    return MODULE_CACHE[name]


def _loaded(name: str) -> Any:
    """Give the module of a framework if this process has imported it, else None."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    # What another thread is importing right now has given the GPUs no work yet.
    return None if getattr(spec, "_initializing", False) else module


def _say_if_another_is_loaded(sync_with: str) -> None:
    """Refuse, or warn, where work of another framework than the one named may be in flight."""
    others = [name for name in _NAMES if name != sync_with and _loaded(name) is not None]
    if not others:
        return
    advice = f"synchronize with {' or '.join(others)}, which this process has imported"
    if importlib.util.find_spec(sync_with) is None:
        raise RuntimeError(
            f"Failed to import {_NAMES[sync_with]}: it is not installed; {advice}, or switch "
            "synchronization off"
        )
    warnings.warn(
        f"{sync_with} is not in use, and nothing waits for the GPUs; {advice}", stacklevel=4
    )


def _torch_is_distributed(torch: Any) -> bool:
    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())


def _sync_torch(torch: Any, gpu_devices: list[int]) -> None:
    # PyTorch initializes CUDA at its first use of a GPU; asking it for more would be that use.
    if torch.cuda.is_initialized():
        for device in _with_context(gpu_devices):
            torch.cuda.synchronize(device)


def _sync_jax(jax: Any, gpu_devices: list[int]) -> None:
    if not _jax_is_initialized():
        return
    gpus = _jax_gpus(jax)
    devices = [gpus[i] for i in gpu_devices] if gpus else []
    # Work on a device is done in order, so a last addition ends after what was there before it.
    last = [jax.device_put(0.0, device) + 0 for device in [*devices, jax.devices("cpu")[0]]]
    for value in last:
        value.block_until_ready()


def _jax_is_initialized() -> bool:
    """Tell whether JAX has opened its devices, which also takes most of their memory."""
    # There is no public way to ask that does not open them.
    bridge = sys.modules.get("jax._src.xla_bridge")
    ask = getattr(bridge, "backends_are_initialized", None)
    return ask is None or bool(ask())


def _jax_gpus(jax: Any) -> list[Any]:
    """Give the GPUs of this process; without any JAX raises RuntimeError."""
    try:
        return list(jax.local_devices(backend="gpu"))
    except RuntimeError:
        return []


def _with_context(devices: list[int]) -> list[int]:
    """Leave out the devices of which the CUDA driver says that this process has no context there.

    Where it cannot be asked, as with ROCm, all stay.
    """
    driver = _cuda_driver()
    return devices if driver is None else [d for d in devices if _has_context(driver, d)]


def _cuda_driver() -> Any:
    """Give the CUDA driver's library if a framework has loaded it, else None."""
    import ctypes

    try:
        return ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except (OSError, AttributeError):  # Not loaded; or a system without this way to ask.
        return None


def _has_context(driver: Any, device: int) -> bool:
    import ctypes

    flags, active = ctypes.c_uint(), ctypes.c_int()
    # CUDA Driver API, "Primary Context Management"; looks without creating one.
    status = driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
    if status == _CUDA_ERROR_NOT_INITIALIZED:
        return False
    return status != 0 or active.value != 0
