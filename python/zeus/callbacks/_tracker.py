"""What the callbacks share: which GPUs a rank watches, its windows, and how energy is logged."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass

from zeus.distributed import ClusterMeasurement, gather
from zeus.monitor import ZeusMonitor
from zeus.monitor.energy import Uncertain
from zeus.utils.framework import get_rank, get_world_size


@dataclass(frozen=True)
class Window:
    """One window of a training run.

    Attributes:
        name: "train", "epoch", "steps" or "eval".
        number: Which of this name, from 0.
        steps: Optimizer steps within it.
        energy: What all ranks together used.
    """

    name: str
    number: int
    steps: int
    energy: ClusterMeasurement


class Tracker:
    """The windows of a training run on this rank. Every rank ends the same ones, in one order."""

    def __init__(self, monitor: ZeusMonitor | None, gpu_indices: list[int] | None) -> None:
        """Keep what to measure with; nothing is opened before the first window.

        Args:
            monitor: The user's own; None: make one.
            gpu_indices: Which GPUs that one watches; None: those that this rank trains on.
        """
        self.monitor = monitor
        self.gpu_indices = gpu_indices
        self.windows: list[Window] = []
        self._began_at: dict[str, int] = {}

    def open(self, used: list[int] | None) -> None:
        """Find the devices.

        Args:
            used: The GPUs that the framework says this rank trains on; None: it trains on none.
        """
        if self.monitor is None:
            wanted = _default_gpus(used) if self.gpu_indices is None else self.gpu_indices
            self.monitor = ZeusMonitor(gpu_indices=wanted, sync_execution_with="torch")

    def begin(self, name: str, step: int) -> None:
        """Begin a window; one of this name that is open is dropped."""
        assert self.monitor is not None
        self.monitor.begin_window(self._key(name), restart=True)
        self._began_at[name] = step

    def is_open(self, name: str) -> bool:
        """Tell whether a window is open."""
        return name in self._began_at

    def steps(self, name: str, step: int) -> int:
        """How many optimizer steps lie in a window up to now; 0 where it is not open."""
        return step - self._began_at.get(name, step)

    def end(self, name: str, step: int) -> Window:
        """End a window, and gather what all ranks used in it."""
        assert self.monitor is not None
        measurement = self.monitor.end_window(self._key(name))
        steps = step - self._began_at.pop(name)
        number = sum(window.name == name for window in self.windows)
        window = Window(name, number, steps, gather(measurement, self.monitor))
        self.windows.append(window)
        return window

    def cancel(self, *names: str) -> None:
        """Drop windows, those that are open of them."""
        for name in names:
            if self.monitor is not None and self._began_at.pop(name, None) is not None:
                self.monitor.end_window(self._key(name), sync_execution=False, cancel=True)

    def _key(self, name: str) -> str:
        # A monitor of the user's may have windows of its own, and serve two callbacks.
        return f"{name} of callback {id(self):x}"

    def summary(self) -> str:
        """What the run used, for people: a line for each kind of window, and what it covers."""
        lines = []
        for name in dict.fromkeys(window.name for window in self.windows):
            windows = [window for window in self.windows if window.name == name]
            known = [w for w in windows if not math.isnan(w.energy.total.value_j)]
            if len(windows) == 1:
                text = f"{windows[0].energy} in {windows[0].energy.time_s:.1f} s"
            elif known:
                joules = math.fsum(window.energy.total.value_j for window in known)
                seconds = sum(window.energy.time_s for window in known)
                text = (
                    f"{joules:.6g} J in {seconds:.1f} s, by {len(known)} of {len(windows)} windows"
                )
            else:
                reason = windows[-1].energy.total.refusal
                text = f"not known of any of {len(windows)} windows, the last one since {reason}"
            lines.append(f"{name}: {text}")
        if self.monitor is not None:
            lines += [f"not measured: {reason}" for reason in self.monitor.unavailable]
        problems = dict.fromkeys(p for window in self.windows for p in window.energy.problems)
        return "\n".join(["Energy of this training run", *(f"  {o}" for o in [*lines, *problems])])


def to_log(window: Window, name: str | None = None, per_step: bool = False) -> dict[str, float]:
    """What to log of a window, in joules and seconds; what has no number is left out.

    Args:
        window: The window.
        name: What the keys begin with; None: the window's name.
        per_step: Divide by the number of steps.
    """
    kinds = window.energy.by_kind
    parts: Mapping[str, Uncertain] = {
        "": window.energy.total,
        **(kinds if len(kinds) > 1 else {}),
    }
    divisor = max(1, window.steps) if per_step else 1
    name = name or window.name
    values = {f"{name}_energy_time_s": window.energy.time_s / divisor}
    for kind, energy in parts.items():
        key = f"{name}_{kind}_energy" if kind else f"{name}_energy"
        values[f"{key}_j"] = energy.value_j / divisor
        values[f"{key}_u_j"] = energy.u_j / divisor
    return {key: value for key, value in values.items() if not math.isnan(value)}


def is_first_rank() -> bool:
    """Tell whether this process speaks for all of them."""
    return get_rank() == 0


def _default_gpus(used: list[int] | None) -> list[int] | None:
    """Which GPUs a rank watches.

    A process that is alone and trains on none watches all, as `ZeusMonitor` does. One of several
    that was given none takes the one of its local rank: ranks that do not know of each other's
    devices should not all watch the same.
    """
    if used is not None:
        return used
    if get_world_size() == 1:
        return None
    from zeus.device import get_gpus
    from zeus.device.gpu.common import ZeusGPUInitError

    try:
        count = len(get_gpus())
    except ZeusGPUInitError:  # The monitor says so.
        return None
    rank = int(os.environ.get("LOCAL_RANK", get_rank()))
    return [rank] if rank < count else []
