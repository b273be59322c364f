"""What can be measured here, and why not the rest: `python -m zeus.show_env`.

Everything is tried by itself. What fails is a row with its reason, and nothing is raised.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import os
import platform
import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import zeus

if TYPE_CHECKING:
    from zeus._core import Machine
    from zeus.device.cpu.common import CPU
    from zeus.utils.zeusd import ZeusdClient

SECTION_SEPARATOR = "-" * shutil.get_terminal_size().columns


def show_env() -> None:
    """Print what Zeus finds on this machine, and a reason for what it does not find."""
    _section("## Package availability and versions", _packages, logs=True)
    _section("## Device availability", _gpus, logs=True)
    _section("## CPU availability", _cpus, logs=True)
    _section("## SoC availability", _soc, logs=True)
    _section("## What the core found", _core)
    _section("## Zeusd daemon", _zeusd)
    print(SECTION_SEPARATOR)


def _section(title: str, rows: Callable[[], Iterable[str]], logs: bool = False) -> None:
    print(f"{SECTION_SEPARATOR}\n{title}\n")
    if logs:
        print("Logging output:")
    found = []
    try:
        for row in rows():
            found.append(row)
    # This is where people look when something is broken: whatever it is becomes a row.
    except Exception as error:
        found.append(f"  Error: {_reason(error)}")
    if logs:
        print("\nDetected:")
    print("\n".join(found) + "\n")


def _reason(error: Exception) -> str:
    if isinstance(error, RuntimeError) and len(error.args) == 3:
        return str(error.args[0])  # The core's: the sentence, its code, the vendor's number.
    return str(error) or type(error).__name__


def _packages() -> Iterator[str]:
    yield f"  Python version: {platform.python_version()}"
    yield f"  Zeus: {zeus.__version__}"
    yield f"  PyTorch: {_framework('torch', _torch_has_gpu)}"
    yield f"  JAX: {_framework('jax', _jax_has_gpu)}"
    yield f"  CuPy: {_framework('cupy', None)}"


def _framework(name: str, has_gpu: Callable[[], bool] | None) -> str:
    """Version of a framework, which is imported only to learn whether it has a GPU."""
    try:
        if importlib.util.find_spec(name) is None:
            return "not available"
        version = _version(name)
        if has_gpu is None:
            return version
        return f"{version} ({'with' if has_gpu() else 'without'} CUDA support)"
    except Exception as error:  # Frameworks fail to import in every way there is.
        return f"installed, and cannot be used: {type(error).__name__}: {_reason(error)}"


def _version(name: str) -> str:
    """Version of what is installed under an import name: CuPy has a distribution a CUDA version."""
    distributions = importlib.metadata.packages_distributions().get(name, [])
    return importlib.metadata.version(distributions[0]) if distributions else "of unknown version"


def _torch_has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _jax_has_gpu() -> bool:
    import jax

    try:
        return bool(jax.devices("gpu"))
    except RuntimeError:  # JAX without a GPU knows no platform of that name.
        return False


def _gpus() -> Iterator[str]:
    from zeus.device.exception import ZeusBaseGPUError
    from zeus.device.gpu import ZeusGPUInitError, get_gpus

    try:
        gpus = get_gpus().gpus
    except ZeusGPUInitError as error:
        yield "  No GPUs available."
        yield f"    {error}"
        return
    except ZeusBaseGPUError as error:
        yield f"  Error initializing GPUs: {error}"
        return
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        yield f"  {name}={os.environ.get(name, '[NOT SET]')}"
    yield "  Device index mapping: Physical (e.g., nvidia-smi) -> Zeus (or any CUDA application)"
    for i, gpu in enumerate(gpus):
        try:
            name = gpu.get_name()
        except Exception as error:  # The others have their rows.
            name = f"no name: {_reason(error)}"
        yield f"    GPU {gpu.gpu_index} -> GPU {i} ({name})"


def _cpus() -> Iterator[str]:
    from zeus.device.cpu import get_cpus
    from zeus.device.exception import ZeusBaseCPUError

    try:
        cpus = get_cpus().cpus
    except ZeusBaseCPUError as error:
        yield "  No CPUs available."
        yield f"    {error}"
        return
    for i, cpu in enumerate(cpus):
        yield f"  CPU {i}:"
        try:
            yield from _cpu(cpu)
        except Exception as error:  # The others have their rows.
            yield f"    CPU measurements unavailable: {_reason(error)}"


def _cpu(cpu: CPU) -> Iterator[str]:
    energy = cpu.get_total_energy_consumption()
    package, dram = _sources(cpu)
    yield f"    CPU measurements available ({package})"
    if not cpu.supports_get_dram_energy_consumption():
        yield "    DRAM measurements unavailable"
    elif energy.dram_mj is None:
        yield f"    DRAM measurements unavailable: {dram} cannot be read now"
    else:
        yield f"    DRAM measurements available ({dram})"


def _sources(cpu: CPU) -> tuple[str, str]:
    """Where the energy of a package and of its DRAM is read."""
    from zeus.device import _machine
    from zeus.device.cpu.emi import EMICPU
    from zeus.device.cpu.rapl import RAPLCPU, ZeusdRAPLCPU

    if isinstance(cpu, ZeusdRAPLCPU):
        host = os.environ.get("ZEUS_HOST") or (_machine.daemon() or "").partition("=")[2]
        return (f"Zeusd at {host.removeprefix('zeusd:')}",) * 2
    if isinstance(cpu, EMICPU):
        channel = f"EMI channel {{}} on {cpu.emi_file.path}"
        return channel.format(cpu.pkg_channel_index), channel.format(cpu.dram_channel_index)
    if isinstance(cpu, RAPLCPU) and cpu.path:
        return cpu.path, cpu.dram.path if cpu.dram is not None else "perf"
    if _machine.machine().simulation is not None:
        return "simulated", "simulated"
    return "perf", "perf"


def _soc() -> Iterator[str]:
    from zeus.device.exception import ZeusBaseSoCError
    from zeus.device.soc import get_soc

    try:
        soc = get_soc()
    except ZeusBaseSoCError as error:
        yield "  No SoC available."
        yield f"    {error}"
        return
    yield f"  {type(soc).__name__} available"
    yield f"    Available metrics: {', '.join(sorted(soc.get_available_metrics()))}"


def _core() -> Iterator[str]:
    from zeus.device._machine import machine

    found = machine()
    simulated = _simulated(found)
    if simulated is not None:
        yield f"  SIMULATED: {simulated}. Nothing of this is real."
    if not found.devices:
        yield "  No devices."
    for device in found.devices:
        name = f"{device.model} " if device.model else ""
        yield f"  {device.kind} {name}{device.id} ({device.backend}): {', '.join(device.sensors)}"
    for where, _, why in found.problems:
        yield f"  missing {where}: {why}"


def _simulated(found: Machine) -> str | None:
    """What shows that this is no real machine."""
    session = os.environ.get("ZEUS_SIM_SESSION")
    if session is not None:
        return f"this process runs in the session {session}"
    scenarios = [d.facts["simulated"] for d in found.devices if "simulated" in d.facts]
    scenario = found.simulation or next(iter(scenarios), None)
    return None if scenario is None else f"this is the scenario {scenario}"


def _zeusd() -> Iterator[str]:
    from zeus.utils.zeusd import ZeusdClient, ZeusdConfig

    config = ZeusdConfig.from_env()
    if config is None:
        yield "  Not configured (set ZEUSD_SOCK_PATH or ZEUSD_HOST_PORT to connect)."
        return
    yield f"  Endpoint: {config.endpoint}"
    client = ZeusdClient(config)
    yield f"  GPUs: {[(gpu.id, gpu.name) for gpu in client.gpus]}"
    yield f"  CPU IDs: {client.cpu_ids}"
    yield f"  DRAM available: {client.dram_available}"
    yield f"  Auth required: {client.auth_required}"
    yield f"  Clock offset: {_clock_offset_s(client):+.4f} s (client - daemon)"
    yield f"  can_read_gpu: {client.can_read_gpu}"
    yield f"  can_control_gpu: {client.can_control_gpu}"
    yield f"  can_read_cpu: {client.can_read_cpu}"
    if client.auth_error is not None:
        yield f"  Auth error: {client.auth_error}"
    elif client.auth_required:
        yield f"  Authenticated as: {client._whoami_sub}"
        yield f"  Granted scopes: {sorted(client.granted_scopes)}"
        yield f"  Token expires: {_expiry(client._whoami_exp)}"


def _clock_offset_s(client: ZeusdClient) -> float:
    """Our clock minus the daemon's: the median of five, each at the middle of its round trip."""
    offsets = []
    for _ in range(5):
        sent_s = time.time()
        daemon_s = client.get_time()
        offsets.append((sent_s + time.time()) / 2 - daemon_s)
    return statistics.median(offsets)


def _expiry(expires_s: int | None) -> str:
    if expires_s is None:
        return "never"
    when = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(expires_s))
    return f"{when} ({'valid' if expires_s > time.time() else 'expired'})"


if __name__ == "__main__":
    logging.basicConfig(
        level=logging.INFO,
        format="  [%(asctime)s] [%(name)s:%(lineno)d] %(message)s",
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    show_env()
