"""The energy of all ranks of a distributed program, each physical device counted once.

Ranks may watch whatever they like: only their own GPU, all GPUs of their node, the CPU packages
that they share with other ranks. Neither multiplying by the number of ranks nor dividing by it is
right for all of these; `gather` adds up devices, not ranks.
"""

from __future__ import annotations

import math
import socket
import sys
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zeus.device._machine import core_device
from zeus.monitor.energy import Measurement, Uncertain, ZeusMonitor
from zeus.utils.framework import get_rank, get_world_size

__all__ = ["ClusterMeasurement", "DeviceEnergy", "combine", "gather", "host_id", "readings"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class DeviceEnergy:
    """The energy of one part of one device, as one rank or several measured it.

    Attributes:
        host: Which machine, as `host_id` tells; empty for a device whose id is unique everywhere.
        node: The machine's name, for people.
        device: The device's id: "GPU-5a69...", "package-0".
        kind: "gpu", "cpu" or "dram".
        energy: Joules and what is known about their error.
        begin_s: When the window began, in seconds of the node's wall clock.
        time_s: Its length in seconds.
        ranks: Who measured it.
    """

    host: str
    node: str
    device: str
    kind: str
    energy: Uncertain
    begin_s: float
    time_s: float
    ranks: tuple[int, ...]

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from all others."""
        return self.host, self.device, self.kind


@dataclass(frozen=True)
class ClusterMeasurement:
    """The energy of all ranks.

    Attributes:
        devices: Everything that is in it, once.
        time_s: Length of the longest window in seconds.
        world_size: How many ranks there are.
        problems: Where ranks that measured the same device contradict each other.
    """

    devices: tuple[DeviceEnergy, ...]
    time_s: float
    world_size: int
    problems: tuple[str, ...] = ()

    @property
    def total(self) -> Uncertain:
        """The energy of everything; no number where a part has none."""
        return _sum(self.devices)

    @property
    def by_node(self) -> dict[str, Uncertain]:
        """The energy of each node, by its name; they add up to `total`."""
        nodes = dict.fromkeys(device.node for device in self.devices)
        return {node: _sum(d for d in self.devices if d.node == node) for node in nodes}

    @property
    def by_kind(self) -> dict[str, Uncertain]:
        """The energy of GPUs, CPU packages and their memory."""
        kinds = dict.fromkeys(device.kind for device in self.devices)
        return {kind: _sum(d for d in self.devices if d.kind == kind) for kind in kinds}

    def __str__(self) -> str:
        """The total, and what it covers."""
        parts = [
            f"{sum(d.kind == kind for d in self.devices)} x {kind}: {energy}"
            for kind, energy in self.by_kind.items()
        ]
        nodes = len({device.node for device in self.devices})
        return f"{self.total} on {nodes} node(s), {self.world_size} rank(s); {', '.join(parts)}"


def gather(measurement: Measurement, monitor: ZeusMonitor) -> ClusterMeasurement:
    """Combine what the ranks of PyTorch measured. Each rank calls this, and each gets the result.

    Without `torch.distributed`, or with one rank, it is this process's own measurement.

    Args:
        measurement: This rank's window.
        monitor: Which measured it; it knows the devices.

    Raises:
        NotImplementedError: JAX is distributed.
    """
    own = readings(measurement, monitor, rank=get_rank())
    size = get_world_size()
    if size == 1:
        return combine([own])
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_initialized():
        raise NotImplementedError(
            "cannot gather over the processes of JAX: Zeus does so with PyTorch only; send what "
            "zeus.distributed.readings() gives to one process and combine() it there"
        )
    parts: list[Any] = [None] * size
    torch.distributed.all_gather_object(parts, own)
    return combine(parts)


def readings(measurement: Measurement, monitor: ZeusMonitor, rank: int = 0) -> list[DeviceEnergy]:
    """What one process measured, with the devices' ids. It can be pickled.

    Args:
        measurement: A window.
        monitor: Which measured it.
        rank: Who asks.
    """
    host, node = host_id(), socket.gethostname()
    span = measurement.span
    found = []
    for name, energy in measurement.uncertainty.items():
        kind, _, index = name.partition(":")
        device = _device_id(monitor, kind, int(index))
        found.append(
            DeviceEnergy(
                # A UUID is one device wherever it is seen: two containers of one machine, or a
                # guest and its host, may not agree about which machine they are on.
                host="" if device.startswith("GPU-") else host,
                node=node,
                device=device,
                kind=kind,
                energy=energy,
                begin_s=span.wall_s if span is not None else math.nan,
                time_s=measurement.time,
                ranks=(rank,),
            )
        )
    return found


def combine(parts: Iterable[Sequence[DeviceEnergy]]) -> ClusterMeasurement:
    """Put together what ranks measured, one list each.

    Of a device that several ranks measured, the longest window counts that has a number: it is what
    somebody read, with an uncertainty that holds for it. Nobody read the union of the windows, and
    the power at its margins would be a guess. The others must agree with it: their difference may
    be what uncertainties allow, and what the device can have used in the time that only one of the
    windows covers, at no more than twice the greater mean power. Where it is more, the device is
    flagged "disagree", `problems` says so, and half the difference is added to the uncertainty as
    a rectangle (JCGM 100:2008, 4.3.7).
    """
    by_device: dict[tuple[str, str, str], list[DeviceEnergy]] = {}
    lists = list(parts)
    for device in (one for part in lists for one in part):
        by_device.setdefault(device.key, []).append(device)
    devices, problems = [], []
    for same in by_device.values():
        device, problem = _one_of(same)
        devices.append(device)
        problems += [problem] if problem else []
    devices.sort(key=lambda d: (d.node, d.kind, d.ranks, d.device))
    return ClusterMeasurement(
        tuple(devices),
        max((d.time_s for part in lists for d in part), default=math.nan),
        len(lists),
        tuple(problems),
    )


def host_id() -> str:
    """Tell which machine this is: the same for all its containers, another one after a reboot."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:  # Not Linux.
        return f"{uuid.getnode():012x}"


def _one_of(same: list[DeviceEnergy]) -> tuple[DeviceEnergy, str]:
    """One reading out of those of one device, and where they contradict each other."""
    numbers = [d for d in same if not math.isnan(d.energy.value_j)]
    best = max(numbers or same, key=lambda d: (d.time_s, -d.ranks[0]))
    ranks = tuple(sorted(rank for device in same for rank in device.ranks))
    apart, problem = 0.0, ""
    for other in numbers:
        difference = abs(best.energy.value_j - other.energy.value_j)
        if difference > _allowed_j(best, other) and difference > apart:
            apart = difference
            problem = (
                f"ranks {best.ranks[0]} and {other.ranks[0]} contradict each other about "
                f"{best.device} on {best.node}: {best.energy.value_j:.6g} J in {best.time_s:.3f} s "
                f"and {other.energy.value_j:.6g} J in {other.time_s:.3f} s"
            )
    energy = best.energy
    if apart:
        u = apart / 2 / math.sqrt(3)
        energy = Uncertain(
            value_j=energy.value_j,
            u_j=math.hypot(energy.u_j, u),
            u_cmp_j=math.hypot(energy.u_cmp_j, u),
            bound_j=energy.bound_j,
            flags=tuple(dict.fromkeys((*energy.flags, "disagree"))),
            method=energy.method,
            quality=energy.quality,
        )
    best = DeviceEnergy(
        best.host, best.node, best.device, best.kind, energy, best.begin_s, best.time_s, ranks
    )
    return best, problem


def _allowed_j(a: DeviceEnergy, b: DeviceEnergy) -> float:
    """How far two windows over one device may be apart, in joules.

    One sensor measured both: its gain cannot be why they differ. An uncertainty that nobody knows
    is not an excuse for any difference.
    """
    u = math.hypot(*(d.energy.u_cmp_j for d in (a, b) if not math.isnan(d.energy.u_cmp_j)))
    begin = max(a.begin_s, b.begin_s)
    end = min(a.begin_s + a.time_s, b.begin_s + b.time_s)
    common = 0.0 if math.isnan(begin) else max(0.0, end - begin)
    powers = (d.energy.value_j / d.time_s for d in (a, b) if d.time_s > 0)
    return 3 * u + 2 * max(powers, default=0.0) * (a.time_s + b.time_s - 2 * common)


def _sum(devices: Iterable[DeviceEnergy]) -> Uncertain:
    """Add up devices, as the core does: random parts in quadrature, what sensors share linearly.

    What is in `u_j` and not in `u_cmp_j` are gain and offset, which may have one cause in all
    devices of a kind (JCGM 100:2008, 5.2.2).
    """
    parts = list(devices)
    energies = [device.energy for device in parts]
    random = math.hypot(*(e.u_cmp_j for e in energies))
    common = sum(math.sqrt(max(0.0, e.u_j**2 - e.u_cmp_j**2)) for e in energies)
    return Uncertain(
        value_j=math.fsum(e.value_j for e in energies) if parts else math.nan,
        u_j=math.hypot(random, common) if parts else math.nan,
        u_cmp_j=random if parts else math.nan,
        bound_j=(sum(e.bound_j[0] for e in energies), sum(e.bound_j[1] for e in energies)),
        flags=tuple(dict.fromkeys(flag for e in energies for flag in e.flags)),
        method="sum",
        refusal="; ".join(
            f"{d.kind} {d.device} on {d.node}: {d.energy.refusal}"
            for d in parts
            if d.energy.refusal
        )
        if parts
        else "nothing was measured",
    )


def _device_id(monitor: ZeusMonitor, kind: str, index: int) -> str:
    """What to tell one device from another by."""
    one: Any = (monitor.gpus.gpus if kind == "gpu" else monitor.cpus.cpus)[index]
    device = core_device(one)
    if device is not None:
        return device.id
    if kind == "gpu":
        return f"{type(one).__name__} {one.gpu_index}"
    return str(getattr(one, "id", f"package-{one.cpu_index}"))
