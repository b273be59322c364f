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
    name = m.span.name if m.span else "measurement"
    rows = [("total", str(m.total), "")] if len(m.uncertainty) > 1 else []
    for device, uncertain in m.uncertainty.items():
        kind, _, index = device.partition(":")
        runs = m.power.get(int(index), ()) if kind == "gpu" else ()
        line = sparkline(runs, m.span.begin_s, m.span.end_s) if runs and m.span else ""
        rows.append((device, str(uncertain), line))
    return table(f"{name}: {m.time:.3f} s", [(d, text, _Markup(line)) for d, text, line in rows])


class _Markup(str):
    """Text that is HTML already."""


def table(caption: str, rows: Sequence[Sequence[str]]) -> str:
    """Rows of a heading and cells."""
    body = ""
    for heading, *cells in rows:
        texts = (cell if isinstance(cell, _Markup) else html.escape(cell) for cell in cells)
        row = "".join(f"<td>{text}</td>" for text in texts)
        body += f"<tr><th>{html.escape(heading)}</th>{row}</tr>"
    return f"<table><caption>{html.escape(caption)}</caption>{body}</table>"


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
