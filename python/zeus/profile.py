"""How long to measure and how long to rest for the energy of an iteration to repeat.

A trial rests, warms up, and measures whole iterations of a function. Energies are those of the
GPUs that a `ZeusMonitor` measures; on a machine where it measures none, those of its CPU packages
and their memory. On several ranks the energies of all are added up; each rank calls the same
functions at the same time, with a monitor of its own GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from zeus._trials import SweepReport, SweepResult, TrialResult, Trials

if TYPE_CHECKING:
    from zeus.monitor import ZeusMonitor

__all__ = [
    "SweepReport",
    "SweepResult",
    "TrialResult",
    "measure",
    "profile_cooldown_duration",
    "profile_measurement_duration",
    "profile_parameters",
]

_RANGE_S = tuple(float(seconds) for seconds in range(1, 11))


def measure(
    target_function: Callable[[], Any],
    zeus_monitor: ZeusMonitor,
    measurement_duration: float,
    cooldown_duration: float,
    num_warmup_iterations: int = 10,
    num_calibration_iterations: int = 100,
    warmup_settle_duration: float | None = None,
    *,
    iteration_duration: float | None = None,
    cooldown_temperature: float | None = None,
) -> TrialResult:
    """Measure a function: rest, warm up, and run it for about a given time.

    Args:
        target_function: One iteration.
        zeus_monitor: Measures this rank's devices.
        measurement_duration: Seconds to measure; the iterations that this takes are rounded up.
        cooldown_duration: Seconds to rest first.
        num_warmup_iterations: Iterations before calibration, and before the measurement.
        num_calibration_iterations: Iterations that tell how long one takes.
        warmup_settle_duration: Seconds of warm-up before the measurement, instead of a number of
            iterations.
        iteration_duration: Seconds of an iteration where that is known; nothing is calibrated.
        cooldown_temperature: Rest on until the GPUs' mean is not above this many degrees Celsius,
            300 s at most.

    Raises:
        ValueError: An argument makes no sense, or the monitor measures neither GPUs nor CPUs.
    """
    _check(zeus_monitor, num_warmup_iterations, num_calibration_iterations)
    if warmup_settle_duration is not None and warmup_settle_duration < 0:
        raise ValueError(f"warmup_settle_duration is {warmup_settle_duration}: give 0 s or more")
    trials = Trials(
        target_function, zeus_monitor, num_warmup_iterations, num_calibration_iterations
    )
    trials.calibrate(iteration_duration)
    warmup = num_warmup_iterations
    if warmup_settle_duration is not None:
        warmup = trials.iterations(warmup_settle_duration)
    return trials.run(measurement_duration, cooldown_duration, warmup, cooldown_temperature)


def profile_measurement_duration(
    target_function: Callable[[], Any],
    zeus_monitor: ZeusMonitor,
    measurement_duration_search_range: list[float] | None = None,
    cooldown_duration: float = 10.0,
    num_trials: int = 10,
    num_warmup_trials: int = 2,
    trial_stddev_threshold: float = 0.01,
    num_warmup_iterations: int = 10,
    num_calibration_iterations: int = 100,
    iteration_duration: float | None = None,
    *,
    trial_relative_stddev_threshold: float | None = None,
) -> SweepReport:
    """Repeat trials of several lengths, to see which ones agree.

    Args:
        target_function: One iteration.
        zeus_monitor: Measures this rank's devices.
        measurement_duration_search_range: Seconds; None: 1 to 10.
        cooldown_duration: Seconds of rest before each trial.
        num_trials: How many of each length.
        num_warmup_trials: How many come first and are dropped.
        trial_stddev_threshold: In joules per iteration; a length whose deviation is below is valid.
        num_warmup_iterations: Before calibration, and before each measurement.
        num_calibration_iterations: Iterations that tell how long one takes.
        iteration_duration: Seconds of an iteration where that is known; nothing is calibrated.
        trial_relative_stddev_threshold: A share of the mean, instead of joules.

    Raises:
        ValueError: An argument makes no sense, or the monitor measures neither GPUs nor CPUs.
    """
    _check(zeus_monitor, num_warmup_iterations, num_calibration_iterations, num_trials)
    values = _values("measurement_duration_search_range", measurement_duration_search_range)
    trials = Trials(
        target_function, zeus_monitor, num_warmup_iterations, num_calibration_iterations
    )
    trials.calibrate(iteration_duration)
    trials.warm_up(num_warmup_trials, max(values))
    is_valid = _judge(trial_stddev_threshold, trial_relative_stddev_threshold)
    entries = [trials.repeat(num_trials, value, cooldown_duration, is_valid) for value in values]
    return SweepReport(
        ("measurement_duration", values), ("cooldown_duration", cooldown_duration), entries
    )


def profile_cooldown_duration(
    target_function: Callable[[], Any],
    zeus_monitor: ZeusMonitor,
    cooldown_duration_search_range: list[float] | None = None,
    measurement_duration: float = 10.0,
    num_trials: int = 10,
    num_warmup_trials: int = 2,
    trial_stddev_threshold: float = 0.01,
    num_warmup_iterations: int = 10,
    num_calibration_iterations: int = 100,
    iteration_duration: float | None = None,
    *,
    trial_relative_stddev_threshold: float | None = None,
) -> SweepReport:
    """Repeat trials after rests of several lengths, to see which ones agree.

    Args and errors are those of `profile_measurement_duration`, the durations changed over.
    """
    _check(zeus_monitor, num_warmup_iterations, num_calibration_iterations, num_trials)
    values = _values("cooldown_duration_search_range", cooldown_duration_search_range)
    trials = Trials(
        target_function, zeus_monitor, num_warmup_iterations, num_calibration_iterations
    )
    trials.calibrate(iteration_duration)
    trials.warm_up(num_warmup_trials, measurement_duration)
    is_valid = _judge(trial_stddev_threshold, trial_relative_stddev_threshold)
    entries = [trials.repeat(num_trials, measurement_duration, value, is_valid) for value in values]
    return SweepReport(
        ("cooldown_duration", values), ("measurement_duration", measurement_duration), entries
    )


def profile_parameters(
    target_function: Callable[[], Any],
    zeus_monitor: ZeusMonitor,
    measurement_duration_search_range: list[float] | None = None,
    cooldown_duration_search_range: list[float] | None = None,
    num_trials: int = 10,
    num_warmup_trials: int = 2,
    trial_stddev_threshold: float = 0.01,
    num_warmup_iterations: int = 10,
    num_calibration_iterations: int = 100,
    *,
    trial_relative_stddev_threshold: float | None = None,
) -> tuple[SweepReport, SweepReport]:
    """Sweep the measurement's duration, then the rest's, each with the other's longest.

    Args and errors are those of `profile_measurement_duration`.

    Returns:
        The report on the measurement's duration, and that on the rest's.
    """
    _check(zeus_monitor, num_warmup_iterations, num_calibration_iterations, num_trials)
    lengths = _values("measurement_duration_search_range", measurement_duration_search_range)
    rests = _values("cooldown_duration_search_range", cooldown_duration_search_range)
    trials = Trials(
        target_function, zeus_monitor, num_warmup_iterations, num_calibration_iterations
    )
    iteration_s = trials.calibrate(None)
    first = profile_measurement_duration(
        *(target_function, zeus_monitor, lengths, max(rests), num_trials, num_warmup_trials),
        *(trial_stddev_threshold, num_warmup_iterations, num_calibration_iterations, iteration_s),
        trial_relative_stddev_threshold=trial_relative_stddev_threshold,
    )
    second = profile_cooldown_duration(
        *(target_function, zeus_monitor, rests, max(lengths), num_trials, 0),
        *(trial_stddev_threshold, num_warmup_iterations, num_calibration_iterations, iteration_s),
        trial_relative_stddev_threshold=trial_relative_stddev_threshold,
    )
    return first, second


def _check(
    monitor: ZeusMonitor, num_warmup: int, num_calibration: int, num_trials: int = 1
) -> None:
    if not monitor.gpu_indices and not monitor.cpu_indices:
        raise ValueError(
            "cannot profile: the monitor measures neither GPUs nor CPU packages: "
            + "; ".join(monitor.unavailable)
        )
    if num_warmup < 0:
        raise ValueError(f"num_warmup_iterations is {num_warmup}: give 0 or more")
    if num_calibration < 1:
        raise ValueError(f"num_calibration_iterations is {num_calibration}: give 1 or more")
    if num_trials < 1:
        raise ValueError(f"num_trials is {num_trials}: give 1 or more")


def _values(name: str, values: Sequence[float] | None) -> list[float]:
    if values is None:
        return list(_RANGE_S)
    if not values:
        raise ValueError(f"{name} is empty: give seconds, or None for 1 to 10")
    return list(values)


def _judge(absolute_j: float, relative: float | None) -> Callable[[float, float], bool]:
    """What tells from deviation and mean whether trials agree."""
    if relative is None:
        return lambda std_j, mean_j: std_j < absolute_j
    return lambda std_j, mean_j: std_j < relative * mean_j
