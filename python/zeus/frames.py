"""Measurements as tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from zeus.monitor._extras import extra
from zeus.monitor._measurement import Measurement

if TYPE_CHECKING:
    import pandas


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
