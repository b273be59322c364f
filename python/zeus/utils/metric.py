"""The cost of Zeus, and energy and power from a log of power."""

from __future__ import annotations

import csv
import itertools
import re
from datetime import datetime, timezone
from pathlib import Path


def zeus_cost(energy: float, time: float, eta_knob: float, max_power: int | float) -> float:
    """Weigh energy against time (Zeus, NSDI'23, section 3.1).

    Args:
        energy: Joules.
        time: Seconds.
        eta_knob: From 0, only time counts, to 1, only energy.
        max_power: Of the GPUs that were used, in watts.

    Returns:
        eta_knob * energy + (1 - eta_knob) * max_power * time, in joules.
    """
    return eta_knob * energy + (1 - eta_knob) * max_power * time


def energy(logfile: Path | str, start: float | None = None, end: float | None = None) -> float:
    """Integrate the power of a log by the trapezoidal rule.

    The log is CSV with the columns `Time` and `Power`, the latter in milliwatts. Its last row is
    left out: whoever wrote it may have been stopped in the middle of it.

    Args:
        logfile: Path of the log.
        start: Seconds after the first row, or, if negative, before the last. None is the beginning.
        end: Alike. None is the end. Rows at `start` and `end` belong to the window.

    Returns:
        Joules between the first and the last row of the window.

    Raises:
        OSError: The log cannot be read.
        ValueError: It is malformed, or has fewer than two rows in the window.
    """
    return _integrate(_window(logfile, start, end))


def avg_power(logfile: Path | str, start: float | None = None, end: float | None = None) -> float:
    """Give the energy of a log between its first and last row, divided by their distance.

    Args:
        logfile: As for `energy`.
        start: As for `energy`.
        end: As for `energy`.

    Returns:
        Watts.

    Raises:
        OSError: The log cannot be read.
        ValueError: It is malformed, has fewer than two rows in the window, or all at one time.
    """
    rows = _window(logfile, start, end)
    elapsed_s = rows[-1][0] - rows[0][0]
    if elapsed_s <= 0:
        raise ValueError(f"cannot average the power of {logfile}: its rows are of one time")
    return _integrate(rows) / elapsed_s


def _integrate(rows: list[tuple[float, float]]) -> float:
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in itertools.pairwise(rows))


def _window(
    logfile: Path | str, start: float | None, end: float | None
) -> list[tuple[float, float]]:
    """Give the rows of the window as (seconds since the first row, watts)."""
    rows = _read(logfile)
    last_s = rows[-1][0] if rows else 0.0
    first = 0.0 if start is None else start + (last_s if start < 0 else 0.0)
    last = last_s if end is None else end + (last_s if end < 0 else 0.0)
    inside = [row for row in rows if first <= row[0] <= last]
    if len(inside) < 2:
        raise ValueError(
            f"cannot integrate the power of {logfile}: {len(inside)} of its {len(rows)} rows lie "
            f"from {first:g} s to {last:g} s, and two are needed"
        )
    return inside


def _read(logfile: Path | str) -> list[tuple[float, float]]:
    with open(logfile, newline="") as log:
        rows = list(csv.DictReader(log))[:-1]
    try:
        read = [(_seconds(row["Time"]), float(row["Power"]) / 1000.0) for row in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"cannot read {logfile} as a log of power: {error}; it needs the columns Time (a date "
            "and time, or seconds) and Power (milliwatts)"
        ) from error
    return [(time_s - read[0][0], power_w) for time_s, power_w in read]


def _seconds(text: str) -> float:
    """Give a date and time, or a number of seconds, as seconds since some fixed point."""
    try:
        return float(text)
    except ValueError:
        pass  # Not a number, so it is a date.
    # Python before 3.11 takes no other fraction than one of 3 or 6 digits.
    text = re.sub(r"\.(\d+)", lambda m: "." + m[1][:6].ljust(6, "0"), text.strip())
    when = datetime.fromisoformat(text)
    # Of two local times only the difference counts: read both as UTC, which has no jumps.
    return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()
