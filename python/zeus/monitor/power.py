"""Power over time: `PowerMonitor` samples it on a thread and answers for any interval."""

from __future__ import annotations

import bisect
import collections
import itertools
import logging
import math
import time as _clock
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from zeus import _core
from zeus.device._machine import core_device
from zeus.device.exception import ZeusBaseGPUError
from zeus.device.gpu import get_gpus
from zeus.device.gpu.common import GPUs, ZeusGPUNotSupportedError
from zeus.monitor._clock import WallClock
from zeus.monitor._levels import CoreLevels, Levels, PythonLevels
from zeus.monitor._measurement import PowerRun
from zeus.utils.multiprocessing import warn_if_global_in_subprocess

if TYPE_CHECKING:
    import queue

    import numpy
    import pandas

logger = logging.getLogger(__name__)

_SLOWEST_S = 0.1
_FASTEST_S = 0.01
_PROBE_S = 0.6


class PowerDomain(Enum):
    """What part of a GPU power is told of, and how."""

    DEVICE_INSTANT = "device_instant"
    DEVICE_AVERAGE = "device_average"
    MEMORY_AVERAGE = "memory_average"


_GETTERS = {
    PowerDomain.DEVICE_INSTANT: "get_instant_power_usage",
    PowerDomain.DEVICE_AVERAGE: "get_average_power_usage",
    PowerDomain.MEMORY_AVERAGE: "get_average_memory_power_usage",
}
# Of the core's sensors the best one first: the GPU's own before its module's.
_SENSORS = {
    PowerDomain.DEVICE_INSTANT: ("power_instant", "power", "module_power_instant"),
    PowerDomain.DEVICE_AVERAGE: ("power_average", "module_power_average"),
    PowerDomain.MEMORY_AVERAGE: ("memory_power_average",),
}


@dataclass
class PowerSample:
    """One reading: seconds by the wall clock, the GPU, and its power in milliwatts."""

    timestamp: float
    gpu_index: int
    power_mw: float


@dataclass(frozen=True)
class PowerIntegral:
    """The energy of a GPU over an interval, from samples of its power.

    Attributes:
        energy_j: Joules of the time that is covered; NaN: none of it is.
        u_j: Standard uncertainty (k = 1).
        covered_s: Seconds of the interval that a sample stands for.
        length_s: Seconds of the interval.
    """

    energy_j: float
    u_j: float
    covered_s: float
    length_s: float


def infer_counter_update_period(gpu_indicies: list[int]) -> float:
    """Half the update period of the fastest power sensor among the GPUs' models, in seconds.

    Never more than 0.1 s, and never less than 0.01 s, at which polling would cost more than it
    tells.
    """
    gpus = get_gpus()
    first_of = {gpus.get_name(i): i for i in reversed(gpu_indicies)}
    fastest = min(_infer_counter_update_period_single(i) for i in first_of.values())
    if fastest / 2 > _SLOWEST_S:
        logger.warning("Power updates every %.2f s only; it is polled every 0.1 s", fastest)
    return min(max(fastest / 2, _FASTEST_S), _SLOWEST_S)


def _infer_counter_update_period_single(gpu_index: int) -> float:
    """The update period of one GPU's power sensor, in seconds: what is known of it, else watched.

    The median distance of changes in 0.6 s of polling; 0.1 s where fewer than three are seen, 0.2 s
    where the GPU does not tell its power.
    """
    gpus = get_gpus()
    device = core_device(gpus.gpus[gpu_index])
    if device is not None and (sensor := _sensor(device, _SENSORS)) is not None:
        known = device.sensor_info(sensor)["update_s"]
        if isinstance(known, float) and known > 0:
            return known
    for getter in (gpus.get_instant_power_usage, gpus.get_average_power_usage):
        try:
            getter(gpu_index)
        except ZeusGPUNotSupportedError:
            continue
        return _watch_changes(lambda getter=getter: getter(gpu_index))  # type: ignore[misc]
    logger.warning("GPU %d does not tell its power; taking 0.2 s for its update period", gpu_index)
    return 0.2


def _watch_changes(read: Callable[[], int]) -> float:
    import statistics

    begin = _clock.monotonic()
    changes: list[float] = []
    last = read()
    while (now := _clock.monotonic()) - begin < _PROBE_S:
        if (value := read()) != last:
            changes.append(now)
            last = value
        _clock.sleep(1e-3)
    gaps = [b - a for a, b in itertools.pairwise(changes)]
    return statistics.median(gaps) if len(gaps) >= 2 else 0.1


def _sensor(device: _core.Device, by_domain: dict[PowerDomain, tuple[str, ...]]) -> str | None:
    """The first power sensor that a device has."""
    has = device.sensors
    return next((s for names in by_domain.values() for s in names if s in has), None)


class PowerMonitor:
    """Samples the power of GPUs from its construction on, on a thread; no process is started.

    A reading holds until the next one, so constant power is integrated as such; what no reading
    stands for is told as not covered, never as zero. Queries stay valid after `stop()`.

    Attributes:
        gpu_indices: Places among the GPUs that this process sees.
        update_period: Seconds between two samples.
        measurement_domains: What is sampled.
    """

    _levels: Levels[tuple[PowerDomain, int]] | None = None

    def __init__(
        self,
        gpu_indices: list[int] | None = None,
        update_period: float | None = None,
        max_samples_per_gpu: int | None = None,
        power_domains: Sequence[PowerDomain | str] | None = None,
    ) -> None:
        """Begin to sample.

        Args:
            gpu_indices: Which GPUs; None: all.
            update_period: Seconds between two samples; None: half the sensor's update period.
            max_samples_per_gpu: How many changes of power are kept of each; None: all.
            power_domains: What to sample; None: all that the GPUs tell.

        Raises:
            ValueError: There is no GPU or domain to sample, or one is not told by a GPU.
            ZeusGPUInitError: This process sees no GPU; the sentence says why.
        """
        warn_if_global_in_subprocess(self)
        if gpu_indices is not None and not gpu_indices:
            raise ValueError("gpu_indices is empty: name a GPU, or pass None for all")
        if power_domains is not None and not power_domains:
            raise ValueError("power_domains is empty: name one, or pass None for all")
        gpus = get_gpus()
        self.gpu_indices = list(range(len(gpus)) if gpu_indices is None else gpu_indices)
        if not self.gpu_indices:
            raise ValueError("there is no GPU to sample")
        if update_period is None:
            update_period = infer_counter_update_period(self.gpu_indices)
        elif update_period < 0.05:
            logger.warning(
                "Polling every %g s may disturb the GPU; 0.05 s is enough", update_period
            )
        self.update_period = update_period
        supported = _supported_domains(gpus, self.gpu_indices)
        self.measurement_domains = _chosen(power_domains, supported)
        self._wall = WallClock()
        self._levels = _sample(
            gpus, self.gpu_indices, self.measurement_domains, update_period, max_samples_per_gpu
        )

    def stop(self) -> None:
        """End the sampling, at once; a second time is nothing. What was sampled stays."""
        if self._levels is not None:
            self._levels.stop()

    def __enter__(self) -> PowerMonitor:
        """Sample within a `with` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    # --- questions ---

    def get_power_timeline(
        self,
        power_domain: PowerDomain | str,
        gpu_index: int | None = None,
        start_time: float | None = None,
        end_time: float | None = None,
    ) -> dict[int, list[tuple[float, float]]]:
        """The changes of power, as (seconds by the wall clock, watts), by GPU.

        Args:
            power_domain: Of what.
            gpu_index: Of which GPU; None: of all.
            start_time: From when on; None: from the beginning.
            end_time: Until when; None: until now.

        Raises:
            ValueError: The domain is not sampled.
        """
        domain = self._monitored(power_domain)
        begin = -math.inf if start_time is None else start_time
        end = math.inf if end_time is None else end_time
        wanted = self.gpu_indices if gpu_index is None else [gpu_index]
        return {
            i: [(t, w) for t, _, w in self._changes(domain, i) if begin <= t <= end]
            for i in wanted
            if i in self.gpu_indices
        }

    def get_all_power_timelines(
        self,
        gpu_index: int | None = None,
        start_time: float | None = None,
        end_time: float | None = None,
    ) -> dict[str, dict[int, list[tuple[float, float]]]]:
        """The timelines of all domains, by the value of the domain."""
        return {
            domain.value: self.get_power_timeline(domain, gpu_index, start_time, end_time)
            for domain in self.measurement_domains
        }

    def get_energy(
        self, start_time: float, end_time: float, power_domain: PowerDomain | str | None = None
    ) -> dict[int, float] | None:
        """Joules by GPU between two times of the wall clock.

        Only what samples stand for is in it: `get_energy_integral` says how much of the interval
        that is. NaN where nothing of it is; None where that is so of every GPU.

        Args:
            start_time: Seconds, as of `time.time()`.
            end_time: The same.
            power_domain: From which power; None: instant, else average.

        Raises:
            ValueError: The domain is not sampled.
        """
        integrals = self.get_energy_integral(start_time, end_time, power_domain)
        energies = {i: integral.energy_j for i, integral in integrals.items()}
        return None if all(map(math.isnan, energies.values())) else energies

    def get_energy_integral(
        self, start_time: float, end_time: float, power_domain: PowerDomain | str | None = None
    ) -> dict[int, PowerIntegral]:
        """The same as `get_energy` with its uncertainty and what is covered.

        E = sum P_k (t_k+1 - t_k); each change came at some instant of an update period and a poll
        distance, which u takes for a rectangle (JCGM 100:2008, 4.3.7).
        """
        domain = self._for_energy(power_domain)
        return {i: self._integral(domain, i, start_time, end_time) for i in self.gpu_indices}

    def get_power(
        self,
        time: float | None = None,
        power_domain: PowerDomain | str = PowerDomain.DEVICE_INSTANT,
    ) -> dict[int, float] | None:
        """Watts by GPU at a time of the wall clock.

        Args:
            time: When; None: the last reading.
            power_domain: Which power.

        Returns:
            The power in force then; None where that is not known of every GPU: before the first
            reading, after `stop()`, or where a GPU can no longer be read.

        Raises:
            ValueError: The domain is not sampled.
        """
        domain = self._monitored(power_domain)
        powers: dict[int, float] = {}
        for i in self.gpu_indices:
            power = self._latest(domain, i) if time is None else self._at(domain, i, time)
            if power is None:
                return None
            powers[i] = power
        return powers

    def get_known_power(
        self, power_domain: PowerDomain | str = PowerDomain.DEVICE_INSTANT
    ) -> dict[int, float]:
        """Watts now, of those GPUs whose power is known now.

        Raises:
            ValueError: The domain is not sampled.
        """
        domain = self._monitored(power_domain)
        powers = ((i, self._latest(domain, i)) for i in self.gpu_indices)
        return {i: power for i, power in powers if power is not None}

    def health(self) -> dict[str, str]:
        """What can no longer be read and why, by "device_instant of GPU 0"; empty: all is well."""
        if self._levels is None:
            return {}
        told = {
            f"{domain.value} of GPU {i}": self._levels.health((domain, i))[0]
            for domain in self.measurement_domains
            for i in self.gpu_indices
        }
        return {what: why for what, why in told.items() if why}

    def to_numpy(
        self, power_domain: PowerDomain | str | None = None, gpu_index: int | None = None
    ) -> numpy.ndarray[Any, Any]:
        """All readings of one GPU's power, as an array over the core's memory: nothing is copied.

        Args:
            power_domain: Which power; None: instant, else average.
            gpu_index: Of which GPU; None: of the only one.

        Returns:
            Doubles, shape (runs of equal readings, 3): when it was first and last read, in seconds
            of `time.monotonic()`, and watts.

        Raises:
            ValueError: The domain or the GPU is not sampled, or there are several.
            ImportError: NumPy is not installed.
        """
        from zeus import frames

        return frames.power_array(self, self._for_energy(power_domain), gpu_index)

    def to_frame(self) -> pandas.DataFrame:
        """All readings as a table: domain, gpu, first and last (UTC), power_w; one row a run.

        Raises:
            ImportError: pandas is not installed.
        """
        from zeus import frames

        return frames.power_frame(self)

    # --- how they are answered ---

    def _runs(
        self, index: int, begin_s: float, end_s: float, domain: PowerDomain | None = None
    ) -> list[PowerRun]:
        """The readings that touch an interval of the monotonic clock, and the one before them."""
        if self._levels is None:
            return []
        changes = self._levels.changes((domain or self._for_energy(None), index))
        first = bisect.bisect_left(changes, begin_s, key=lambda run: run[1])
        last = bisect.bisect_right(changes, end_s, key=lambda run: run[0])
        return [PowerRun(*run) for run in changes[max(0, first - 1) : last]]

    def _monitored(self, domain: PowerDomain | str) -> PowerDomain:
        domain = PowerDomain(domain)
        if domain not in self.measurement_domains:
            monitored = ", ".join(d.value for d in self.measurement_domains)
            raise ValueError(
                f"Power domain {domain.value} is not being monitored; these are: {monitored}"
            )
        return domain

    def _for_energy(self, domain: PowerDomain | str | None) -> PowerDomain:
        if domain is not None:
            return self._monitored(domain)
        for whole in (PowerDomain.DEVICE_INSTANT, PowerDomain.DEVICE_AVERAGE):
            if whole in self.measurement_domains:
                return whole
        raise ValueError(
            "Neither device_instant nor device_average is being monitored; energy is integrated "
            "from one of them"
        )

    def _changes(self, domain: PowerDomain, index: int) -> list[tuple[float, float, float]]:
        """(first seen, last seen, watts), by the wall clock."""
        if self._levels is None:
            return self._given(domain, index)
        wall = self._wall.wall
        return [
            (wall(first), wall(last), watts)
            for first, last, watts in self._levels.changes((domain, index))
        ]

    def _integral(self, domain: PowerDomain, index: int, start: float, end: float) -> PowerIntegral:
        if self._levels is None:
            return self._integral_of_given(domain, index, start, end)
        to = self._wall.monotonic
        return PowerIntegral(*self._levels.integral((domain, index), to(start), to(end)))

    def _at(self, domain: PowerDomain, index: int, t: float) -> float | None:
        if self._levels is None:
            given = self._given(domain, index)
            return next((w for first, _, w in reversed(given) if first <= t), None)
        return self._levels.at((domain, index), self._wall.monotonic(t))

    def _latest(self, domain: PowerDomain, index: int) -> float | None:
        if self._levels is None:
            given = self._given(domain, index)
            return given[-1][2] if given else None
        latest = self._levels.latest((domain, index))
        # A reading that no later one has confirmed is a thing of the past.
        return self._levels.at((domain, index), _clock.monotonic()) if latest else None

    # --- samples that somebody else made ---

    data_queues: dict[PowerDomain, queue.Queue[Any]]
    samples: dict[PowerDomain, dict[int, collections.deque[PowerSample]]]

    def _given(self, domain: PowerDomain, index: int) -> list[tuple[float, float, float]]:
        """Samples put into `data_queues` and `samples` of an object made without sampling."""
        waiting = self.data_queues[domain]
        while not waiting.empty():
            sample = waiting.get()
            if isinstance(sample, PowerSample):
                self.samples[domain][sample.gpu_index].append(sample)
        given = self.samples[domain].get(index, ())
        return [(s.timestamp, s.timestamp, s.power_mw / 1e3) for s in given]

    def _integral_of_given(
        self, domain: PowerDomain, index: int, start: float, end: float
    ) -> PowerIntegral:
        """Each sample holds until the next one; the last one for no time at all."""
        given = self._given(domain, index)
        energy_j = covered_s = 0.0
        for (begin, _, watts), (until, _, _) in itertools.pairwise(given):
            seconds = max(0.0, min(until, end) - max(begin, start))
            energy_j += watts * seconds
            covered_s += seconds
        if covered_s == 0:
            energy_j = math.nan
        return PowerIntegral(energy_j, math.nan, covered_s, end - start)


def _supported_domains(gpus: GPUs, gpu_indices: list[int]) -> dict[PowerDomain, str]:
    """Of each domain why it is not supported by every one of these GPUs; empty: it is."""
    return {
        domain: "; ".join(filter(None, (_unsupported(gpus, i, domain) for i in gpu_indices)))
        for domain in PowerDomain
    }


def _unsupported(gpus: GPUs, index: int, domain: PowerDomain) -> str:
    device = core_device(gpus.gpus[index])
    if device is not None:
        names = _SENSORS[domain]
        if any(name in device.sensors for name in names):
            return ""
        why = device.why_not(names[0])
        return f"GPU {index} does not tell it" + (f" ({why})" if why else "")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            power_mw = getattr(gpus, _GETTERS[domain])(index)
    except ZeusBaseGPUError as error:
        return str(error)
    if domain is PowerDomain.MEMORY_AVERAGE and power_mw == 0:
        return f"GPU {index} tells 0 W for its memory"
    return ""


def _chosen(
    wanted: Sequence[PowerDomain | str] | None, supported: dict[PowerDomain, str]
) -> list[PowerDomain]:
    able = [domain for domain, why in supported.items() if not why]
    if wanted is None:
        domains = able
    else:
        domains = list(dict.fromkeys(PowerDomain(domain) for domain in wanted))
        for domain in domains:
            if domain not in able:
                raise ValueError(
                    f"Power domain {domain.value} is not supported here: {supported[domain]}; "
                    f"these are: {', '.join(d.value for d in able)}"
                )
    if not domains:
        reasons = "; ".join(f"{domain.value}: {why}" for domain, why in supported.items())
        raise ValueError(f"There is no power to sample: {reasons}")
    if PowerDomain.DEVICE_INSTANT not in domains:
        logger.warning("Instant power is not sampled; averages show a change late")
    return domains


def _sample(
    gpus: GPUs,
    gpu_indices: list[int],
    domains: list[PowerDomain],
    period_s: float,
    most: int | None,
) -> Levels[tuple[PowerDomain, int]]:
    found = [core_device(gpus.gpus[i]) for i in gpu_indices]
    devices = [device for device in found if device is not None]
    if len(devices) == len(found):
        return CoreLevels(
            {
                (domain, i): (device.id, _sensor(device, {domain: _SENSORS[domain]}) or "")
                for domain in domains
                for i, device in zip(gpu_indices, devices, strict=True)
            },
            period_s,
            most,
        )
    return PythonLevels(
        {
            (domain, i): _reader(gpus, _GETTERS[domain], i)
            for domain in domains
            for i in gpu_indices
        },
        1e-3,
        period_s,
        most,
    )


def _reader(gpus: GPUs, getter: str, index: int) -> Callable[[], int]:
    read = getattr(gpus, getter)
    return lambda: round(read(index))
