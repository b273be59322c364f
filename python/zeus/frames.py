"""Measurements and samples of power as tables and arrays."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from zeus.monitor._extras import extra
from zeus.monitor._levels import CoreLevels
from zeus.monitor._measurement import Measurement

if TYPE_CHECKING:
    import numpy
    import pandas

    from zeus.monitor.power import PowerDomain, PowerMonitor


def to_frame(measurements: Iterable[Measurement]) -> pandas.DataFrame:
    """One row a measurement.

    Columns: name, begin (UTC), time_s, energy_j and u_j of everything (k = 1), then both of each
    device, as "gpu:0_energy_j". What has no number is NaN.

    Args:
        measurements: Of one monitor or several.

    Raises:
        ImportError: pandas is not installed.
    """
    pandas = extra("pandas", "a table of measurements")
    rows = [_row(measurement) for measurement in measurements]
    frame = pandas.DataFrame(rows, columns=None if rows else [*_FIRST])
    frame["begin"] = pandas.to_datetime(frame["begin"], unit="s", utc=True)
    return frame


_FIRST = ("name", "begin", "time_s", "energy_j", "u_j")


def _row(m: Measurement) -> dict[str, Any]:
    span = m.span
    known = (span and span.name, span and span.wall_s, m.time, m.energy, m.total.u_j)
    row: dict[str, Any] = dict(zip(_FIRST, known, strict=True))
    for name, uncertain in m.uncertainty.items():
        row[f"{name}_energy_j"], row[f"{name}_u_j"] = uncertain.value_j, uncertain.u_j
    return row


def power_array(
    monitor: PowerMonitor, domain: PowerDomain, gpu_index: int | None
) -> numpy.ndarray[Any, Any]:
    """What `PowerMonitor.to_numpy()` gives."""
    np = extra("numpy", "an array of power")
    if gpu_index is None and len(monitor.gpu_indices) > 1:
        raise ValueError(f"name one of the GPUs that are sampled: {monitor.gpu_indices}")
    index = monitor.gpu_indices[0] if gpu_index is None else gpu_index
    if index not in monitor.gpu_indices:
        raise ValueError(f"GPU {index} is not sampled; these are: {monitor.gpu_indices}")
    rows: Any
    if isinstance(monitor._levels, CoreLevels):
        rows = monitor._levels.rows((domain, index), 0.0, time.monotonic())
    else:
        runs = monitor._runs(index, 0.0, math.inf, domain)
        rows = [(run.first_s, run.last_s, run.power_w) for run in runs]
    return cast("numpy.ndarray[Any, Any]", np.asarray(rows, dtype=float).reshape(-1, 3))


def power_frame(monitor: PowerMonitor) -> pandas.DataFrame:
    """What `PowerMonitor.to_frame()` gives."""
    pandas = extra("pandas", "a table of power")
    parts = []
    for domain in monitor.measurement_domains:
        for i in monitor.gpu_indices:
            array = power_array(monitor, domain, i)
            first, last = ([monitor._wall.wall(t) for t in array[:, c]] for c in (0, 1))
            columns = {
                "domain": domain.value,
                "gpu": i,
                "first": pandas.to_datetime(first, unit="s", utc=True),
                "last": pandas.to_datetime(last, unit="s", utc=True),
                "power_w": array[:, 2],
            }
            parts.append(pandas.DataFrame(columns))
    return pandas.concat(parts, ignore_index=True)
