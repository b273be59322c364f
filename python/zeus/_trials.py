"""Trials of a function that repeats, and what they come to."""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zeus.utils.framework import all_reduce, get_rank, get_world_size, sync_execution

if TYPE_CHECKING:
    from zeus.monitor import Measurement, ZeusMonitor

# The name that users switch on.
logger = logging.getLogger("zeus.profile")

_WINDOW = "__zeus_profile_run_trial"
_LONGEST_COOLDOWN_S = 300.0
_LOOK_S = 0.5


@dataclass
class TrialResult:
    """What one trial came to.

    Attributes:
        energy_per_iter: Joules of an iteration.
        time_per_iter: Seconds of an iteration.
        total_energy: Joules of all iterations: of the GPUs; of CPU packages and their memory where
            the monitor measures no GPU. NaN where a part of it is not known.
        total_time: Seconds of all iterations, of the slowest rank.
        iterations: How many were measured.
        temperature_before: Mean of the GPUs in degrees Celsius, after warm-up, just before the
            measurement; NaN where no GPU tells it.
        temperature_after: The same just after the measurement.
        temperature_cooled: The same after the rest, before warm-up: what a rest has come to.
    """

    energy_per_iter: float
    time_per_iter: float
    total_energy: float
    total_time: float
    iterations: int
    temperature_before: float
    temperature_after: float
    temperature_cooled: float = math.nan


@dataclass
class SweepResult:
    """Trials at one pair of durations.

    Attributes:
        measurement_duration: Seconds.
        cooldown_duration: Seconds.
        trials: One by one.
        energy_mean: Of joules per iteration.
        energy_std: Their standard deviation (n - 1); 0 of a single trial.
        avg_temperature_before: Degrees Celsius.
        avg_temperature_after: Degrees Celsius.
        avg_total_time: Seconds.
        avg_total_energy: Joules.
        is_valid: Whether the deviation is below the threshold.
    """

    measurement_duration: float
    cooldown_duration: float
    trials: list[TrialResult]
    energy_mean: float
    energy_std: float
    avg_temperature_before: float
    avg_temperature_after: float
    avg_total_time: float
    avg_total_energy: float
    is_valid: bool

    def __str__(self) -> str:
        """One line."""
        durations = (
            f"measurement={self.measurement_duration} s  cooldown={self.cooldown_duration} s"
        )
        return f"{durations}  {self._figures()}"

    def _figures(self) -> str:
        return (
            f"mean={self.energy_mean:.4f} J  std={self.energy_std:.4f} J  "
            f"temp_before={self.avg_temperature_before:.1f} °C  "
            f"temp_after={self.avg_temperature_after:.1f} °C  "
            f"[{'VALID' if self.is_valid else 'INVALID'}]"
        )


@dataclass
class SweepReport:
    """Results over a range of one duration, with the other one fixed.

    Attributes:
        sweep_param: Which duration was swept, and its values in seconds.
        fixed_param: Which was fixed, and its value in seconds.
        entries: One for each value.
    """

    sweep_param: tuple[str, list[float]]
    fixed_param: tuple[str, float]
    entries: list[SweepResult]

    def __str__(self) -> str:
        """One line for each value, under a header."""
        swept, values = self.sweep_param
        fixed, fixed_s = self.fixed_param
        labels = [f"{swept}={value} s" for value in values]
        width = max(map(len, labels), default=0)
        rows = [
            f"  {label:<{width}}  {entry._figures()}"
            for label, entry in zip(labels, self.entries, strict=True)
        ]
        return "\n".join([f"Sweep {swept} (fixed {fixed}={fixed_s} s):", *rows])


class Trials:
    """Runs trials of one function, on this rank beside the others."""

    def __init__(
        self,
        target: Callable[[], Any],
        monitor: ZeusMonitor,
        num_warmup_iterations: int,
        num_calibration_iterations: int,
    ) -> None:
        """Run nothing yet.

        Args:
            target: One iteration.
            monitor: Measures this rank's devices.
            num_warmup_iterations: Before calibration, and before each measurement.
            num_calibration_iterations: Iterations that tell how long one takes.
        """
        self._target = target
        self._monitor = monitor
        self._num_warmup = num_warmup_iterations
        self._num_calibration = num_calibration_iterations
        self._iteration_s = math.nan

    def calibrate(self, known_s: float | None) -> float:
        """Learn the seconds of an iteration, of the slowest rank, unless they are known.

        Raises:
            ValueError: They are not above zero.
        """
        mine_s = self._time() if known_s is None else known_s
        # The slowest rank's, so that every rank runs as many iterations as the others.
        (self._iteration_s,) = _over_ranks([mine_s], "max")
        if not self._iteration_s > 0:
            raise ValueError(f"an iteration takes {self._iteration_s} s: give seconds above zero")
        if known_s is None:
            _info(f"an iteration takes {self._iteration_s:.6g} s")
        return self._iteration_s

    def iterations(self, seconds: float) -> int:
        """How many iterations fill a time; one at least."""
        return max(1, math.ceil(seconds / self._iteration_s))

    def warm_up(self, count: int, measurement_s: float) -> None:
        """Run trials without a rest, and drop them."""
        for _ in range(count):
            self.run(measurement_s, 0.0, 0)

    def repeat(
        self,
        count: int,
        measurement_s: float,
        cooldown_s: float,
        is_valid: Callable[[float, float], bool],
    ) -> SweepResult:
        """Run trials at one pair of durations."""
        trials = [self.run(measurement_s, cooldown_s, self._num_warmup) for _ in range(count)]
        energies = [trial.energy_per_iter for trial in trials]
        mean_j = statistics.fmean(energies)
        std_j = _deviation(energies)
        result = SweepResult(
            measurement_duration=measurement_s,
            cooldown_duration=cooldown_s,
            trials=trials,
            energy_mean=mean_j,
            energy_std=std_j,
            avg_temperature_before=statistics.fmean(t.temperature_before for t in trials),
            avg_temperature_after=statistics.fmean(t.temperature_after for t in trials),
            avg_total_time=statistics.fmean(t.total_time for t in trials),
            avg_total_energy=statistics.fmean(t.total_energy for t in trials),
            is_valid=is_valid(std_j, mean_j),
        )
        _info(str(result))
        return result

    def run(
        self,
        measurement_s: float,
        cooldown_s: float,
        num_warmup: int,
        cooldown_temperature: float | None = None,
    ) -> TrialResult:
        """Rest, warm up, measure."""
        iterations = self.iterations(measurement_s)
        if cooldown_s > 0:
            time.sleep(cooldown_s)
        if cooldown_temperature is not None:
            self._cool_to(cooldown_temperature)
        cooled = self._temperature()
        for _ in range(num_warmup):
            self._target()
        self._sync()
        before = self._temperature()
        measurement = self._window(iterations)
        after = self._temperature()

        (energy_j,) = _over_ranks([_joules(self._monitor, measurement)], "sum")
        (seconds,) = _over_ranks([measurement.time], "max")
        ranks = get_world_size()
        degrees = [total / ranks for total in _over_ranks([before, after, cooled], "sum")]
        return TrialResult(
            *(energy_j / iterations, seconds / iterations, energy_j, seconds, iterations), *degrees
        )

    def _window(self, iterations: int) -> Measurement:
        self._monitor.begin_window(_WINDOW, sync_execution=False)
        try:
            for _ in range(iterations):
                self._target()
            return self._monitor.end_window(_WINDOW)
        except BaseException:
            # The next trial begins a window of this name.
            if _WINDOW in self._monitor.measurement_states:
                self._monitor.end_window(_WINDOW, cancel=True)
            raise

    def _time(self) -> float:
        for _ in range(self._num_warmup):
            self._target()
        self._sync()
        begin = time.monotonic()
        for _ in range(self._num_calibration):
            self._target()
        self._sync()
        return (time.monotonic() - begin) / self._num_calibration

    def _sync(self) -> None:
        if self._monitor.gpu_indices:
            sync_execution(self._monitor.gpu_indices, sync_with=self._monitor.sync_with)

    def _temperature(self) -> float:
        """Mean of this rank's GPUs that tell it; NaN where none does."""
        return statistics.fmean(list(_temperatures(self._monitor)) or [math.nan])

    def _cool_to(self, degrees: float) -> None:
        until = time.monotonic() + _LONGEST_COOLDOWN_S
        # A comparison with NaN is false: what is not known is not waited for.
        while (now := self._temperature()) > degrees:
            if time.monotonic() > until:
                logger.warning(
                    "the GPUs are at %.1f °C after %g s of rest, above the %g °C that were asked "
                    "for; measuring all the same",
                    *(now, _LONGEST_COOLDOWN_S, degrees),
                )
                return
            time.sleep(_LOOK_S)


def _temperatures(monitor: ZeusMonitor) -> Iterator[float]:
    from zeus.device.exception import ZeusBaseGPUError

    for index in monitor.gpu_indices:
        try:
            yield monitor.gpus.get_gpu_temperature(index)
        except ZeusBaseGPUError as error:
            logger.debug("GPU %d does not tell its temperature: %s", index, error)


def _joules(monitor: ZeusMonitor, measurement: Measurement) -> float:
    """Of the GPUs; where none is measured, of CPU packages and their memory."""
    return measurement.total_energy if monitor.gpu_indices else measurement.energy


def _deviation(values: list[float]) -> float:
    """Sample standard deviation; 0 of fewer than two, NaN where one is not known."""
    if any(map(math.isnan, values)):
        return math.nan
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _over_ranks(values: list[float], operation: Any) -> list[float]:
    return list(all_reduce(values, operation)) if get_world_size() > 1 else values


def _info(sentence: str) -> None:
    if get_rank() == 0:
        logger.info("%s", sentence)
