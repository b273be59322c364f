"""The energy counters of the machine that this process runs on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zeus.serving.source import Counter

if TYPE_CHECKING:
    from zeus import _core


@dataclass(frozen=True, slots=True)
class LocalCounter:
    """A counter that never falls: wraps are added up.

    Attributes:
        read: Joules since it was opened. Raises `zeus._core.Error` where it cannot be read.
        update_s: How often it publishes.
    """

    read: Callable[[], float]
    update_s: float


def local_counters(
    gpu_indices: Sequence[int] | None = None, cpu_indices: Sequence[int] | None = None
) -> dict[str, LocalCounter]:
    """The counters of GPUs ("gpu0" ...) and of processors ("package0", "dram0" ...), by name.

    Args:
        gpu_indices: Positions among the GPUs that a CUDA program would see; None: all that have a
            counter; []: none.
        cpu_indices: Sockets; None: all that can be read; []: none.

    Raises:
        IndexError: There is no such GPU or socket.
        RuntimeError: One of them has no energy counter, or there is none at all.
    """
    from zeus import _core
    from zeus.device._machine import machine

    found = machine()
    chosen = [
        *_chosen(found.devices, "gpu", gpu_indices),
        *_chosen(found.devices, "cpu", cpu_indices),
    ]
    if not chosen:
        why = "; ".join(sentence for _, _, sentence in found.problems)
        raise RuntimeError(f"no energy counter can be read here: {why or 'there is no device'}")
    counters = _core.Counters(found, [(device.id, sensor) for _, device, sensor in chosen])

    def reader(i: int) -> Callable[[], float]:
        return lambda: counters.read(i)

    return {
        name: LocalCounter(reader(i), _update_s(device, sensor))
        for i, (name, device, sensor) in enumerate(chosen)
    }


def local_sources(
    gpu_indices: Sequence[int] | None = None, cpu_indices: Sequence[int] | None = None
) -> dict[str, Counter]:
    """`local_counters` polled by a thread each, as sources of a ledger. Stop each when done."""
    return {
        name: Counter(
            counter.read,
            period_s=min(max(counter.update_s / 5, 0.01), 1.0),
            update_s=counter.update_s,
        )
        for name, counter in local_counters(gpu_indices, cpu_indices).items()
    }


def _chosen(
    devices: Sequence[_core.Device], kind: str, indices: Sequence[int] | None
) -> Iterator[tuple[str, _core.Device, str]]:
    """Name, device and sensor of every counter that is meant."""
    of_kind = [device for device in devices if device.kind == kind]
    for i in range(len(of_kind)) if indices is None else indices:
        if not 0 <= i < len(of_kind):
            raise IndexError(f"there is no {kind} {i}: {len(of_kind)} can be seen here")
        device = of_kind[i]
        sensors = ("energy",) if kind == "gpu" else ("package", "dram")
        there = [sensor for sensor in sensors if sensor in device.sensors]
        if not there and indices is not None:
            why = device.why_not(sensors[0])
            raise RuntimeError(f"{kind} {i} ({device.model}) has no energy counter: {why}")
        for sensor in there:
            yield f"{'gpu' if kind == 'gpu' else sensor}{i}", device, sensor


def _update_s(device: _core.Device, sensor: str) -> float:
    """The update period; where no profile tells it, 0.1 s, the longest that is usual."""
    told = device.sensor_info(sensor)["update_s"]
    return told if isinstance(told, float) and 0 < told < 60 else 0.1
