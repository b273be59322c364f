"""Temperature over time: `TemperatureMonitor` samples it on a thread."""

from __future__ import annotations

import math
import time as _clock
from collections.abc import Callable
from dataclasses import dataclass

from zeus.device._machine import core_device
from zeus.device.gpu import get_gpus
from zeus.device.gpu.common import GPUs
from zeus.monitor._clock import WallClock
from zeus.monitor._levels import CoreLevels, Levels, PythonLevels
from zeus.utils.multiprocessing import warn_if_global_in_subprocess


@dataclass
class TemperatureSample:
    """One reading: seconds by the wall clock, the GPU, degrees Celsius."""

    timestamp: float
    gpu_index: int
    temperature_c: int


class TemperatureMonitor:
    """Samples the temperature of GPUs from its construction on, on a thread.

    Attributes:
        gpu_indices: Places among the GPUs that this process sees.
        update_period: Seconds between two samples.
    """

    def __init__(
        self,
        gpu_indices: list[int] | None = None,
        update_period: float = 1.0,
        max_samples_per_gpu: int | None = None,
    ) -> None:
        """Begin to sample.

        Args:
            gpu_indices: Which GPUs; None: all.
            update_period: Seconds between two samples.
            max_samples_per_gpu: How many changes are kept of each; None: all.

        Raises:
            ValueError: There is no GPU to sample, or one does not tell its temperature.
            ZeusGPUInitError: This process sees no GPU; the sentence says why.
        """
        warn_if_global_in_subprocess(self)
        if gpu_indices is not None and not gpu_indices:
            raise ValueError("gpu_indices is empty: name a GPU, or pass None for all")
        gpus = get_gpus()
        self.gpu_indices = list(range(len(gpus)) if gpu_indices is None else gpu_indices)
        self.update_period = update_period
        self._wall = WallClock()
        self._levels = _sample(gpus, self.gpu_indices, update_period, max_samples_per_gpu)

    def stop(self) -> None:
        """End the sampling, at once; a second time is nothing. What was sampled stays."""
        self._levels.stop()

    def get_temperature_timeline(
        self,
        gpu_index: int | None = None,
        start_time: float | None = None,
        end_time: float | None = None,
    ) -> dict[int, list[tuple[float, int]]]:
        """The changes of temperature, as (seconds by the wall clock, degrees), by GPU."""
        begin = -math.inf if start_time is None else start_time
        end = math.inf if end_time is None else end_time
        wanted = self.gpu_indices if gpu_index is None else [gpu_index]
        return {
            i: [
                (t, round(degrees))
                for t, degrees in (
                    (self._wall.wall(first), value) for first, _, value in self._levels.changes(i)
                )
                if begin <= t <= end
            ]
            for i in wanted
            if i in self.gpu_indices
        }

    def get_temperature(self, time: float | None = None) -> dict[int, int] | None:
        """Degrees Celsius by GPU at a time of the wall clock; None: in the last reading.

        Returns:
            None where the temperature in force then is not known of every GPU.
        """
        values = {i: self._value(i, time) for i in self.gpu_indices}
        known = {i: round(value) for i, value in values.items() if value is not None}
        return known if len(known) == len(values) else None

    def _value(self, index: int, time: float | None) -> float | None:
        if time is not None:
            return self._levels.at(index, self._wall.monotonic(time))
        # Asked first, since a forked child begins to sample when it is asked.
        latest = self._levels.latest(index)
        return self._levels.at(index, _clock.monotonic()) if latest else None


def _sample(gpus: GPUs, gpu_indices: list[int], period_s: float, most: int | None) -> Levels[int]:
    found = [core_device(gpus.gpus[i]) for i in gpu_indices]
    devices = [device for device in found if device is not None]
    if len(devices) == len(found):
        for i, device in zip(gpu_indices, devices, strict=True):
            if "temperature" not in device.sensors:
                why = device.why_not("temperature") or "its driver does not support it"
                raise ValueError(f"GPU {i} ({device.model}) does not tell its temperature: {why}")
        return CoreLevels(
            {i: (d.id, "temperature") for i, d in zip(gpu_indices, devices, strict=True)},
            period_s,
            most,
        )
    return PythonLevels({i: _reader(gpus, i) for i in gpu_indices}, 1.0, period_s, most)


def _reader(gpus: GPUs, index: int) -> Callable[[], int]:
    return lambda: gpus.get_gpu_temperature(index)
