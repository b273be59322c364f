"""A measurement as a notebook shows it: a table, and the power where it was sampled."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zeus.monitor._measurement import Measurement, PowerRun

_WIDTH, _HEIGHT = 240, 32


def measurement(m: Measurement) -> str:
    """The table. Names are escaped: they are the user's."""
    name = html.escape(m.span.name) if m.span else "measurement"
    rows = [("total", str(m.total), "")] if len(m.uncertainty) > 1 else []
    for device, uncertain in m.uncertainty.items():
        kind, _, index = device.partition(":")
        runs = m.power.get(int(index), ()) if kind == "gpu" else ()
        line = sparkline(runs, m.span.begin_s, m.span.end_s) if runs and m.span else ""
        rows.append((device, str(uncertain), line))
    cells = "".join(
        f"<tr><th>{html.escape(device)}</th><td>{html.escape(text)}</td><td>{line}</td></tr>"
        for device, text, line in rows
    )
    return f"<table><caption>{name}: {m.time:.3f} s</caption>{cells}</table>"


def sparkline(runs: Sequence[PowerRun], begin_s: float, end_s: float) -> str:
    """An SVG of power over time, from nothing to the peak, each reading held until the next.

    Of many readings in one pixel, the least and the greatest are drawn.
    """
    peak = max((run.power_w for run in runs), default=0.0)
    if peak <= 0 or end_s <= begin_s:
        return ""
    columns: dict[int, list[float]] = {}
    for run in runs:
        share = (max(run.first_s, begin_s) - begin_s) / (end_s - begin_s)
        columns.setdefault(min(_WIDTH, math.floor(share * _WIDTH)), []).append(run.power_w)
    points: list[str] = []
    held = runs[0].power_w
    for x, powers in sorted(columns.items()):
        for power_w in (held, min(powers), max(powers), powers[-1]):
            points.append(f"{x},{_HEIGHT * (1 - power_w / peak):.1f}")
        held = powers[-1]
    points.append(f"{_WIDTH},{_HEIGHT * (1 - held / peak):.1f}")
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 -1 {_WIDTH} {_HEIGHT + 2}" '
        f'role="img"><title>power, up to {peak:.0f} W</title><polyline fill="none" '
        f'stroke="currentColor" points="{" ".join(points)}"/></svg>'
    )
