"""Traces for Perfetto and chrome://tracing: windows, phases and power over time.

The format is the JSON of Chrome's "Trace Event Format": spans are complete events ("X"), power is
a counter ("C"), times are microseconds. Like PyTorch's profiler (Kineto), the file says in
`baseTimeNanoseconds` what its times count from, as nanoseconds of the Unix epoch: doubles of
microseconds since 1970 would be off by a quarter of one.
"""

from __future__ import annotations

import gzip
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zeus.monitor._measurement import Measurement
from zeus.monitor._phased import Phased
from zeus.monitor._window import Window

if TYPE_CHECKING:
    from zeus.monitor.power import PowerMonitor

Recorded = Measurement | Phased | Window
Event = dict[str, Any]

# Kineto leaves its own numbers below; anything that no process has will do.
_PID = 1_990_000_000
_POWER_TID, _SPANS_TID = 0, 1


def write(
    path: str | Path,
    recorded: Iterable[Recorded] = (),
    *,
    power: PowerMonitor | Sequence[PowerMonitor] = (),
) -> None:
    """Write a trace of our own.

    Args:
        path: The file; gzip where it ends in `.gz`.
        recorded: Measurements, windows that have ended, and results of phases.
        power: Monitors whose samples become counters, one a GPU and domain.

    Raises:
        ValueError: There is nothing to write, or a measurement was made by hand and has no time.
        OSError: The file cannot be written.
    """
    spans = _spans(recorded)
    monitors = _monitors(power)
    starts = [begin for _, begin, _, _ in spans]
    starts += [runs[0][0] for m in monitors for runs in _runs(m).values() if runs]
    if not starts:
        raise ValueError(f"there is nothing to write to {path}: no measurement and no sample")
    base_ns = math.floor(min(starts)) * 1_000_000_000
    trace = {
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": base_ns,
        "traceEvents": _events(spans, monitors, base_ns, _PID),
    }
    _save(path, trace)


def merge(
    torch_trace: str | Path | Mapping[str, Any],
    path: str | Path,
    recorded: Iterable[Recorded] = (),
    *,
    power: PowerMonitor | Sequence[PowerMonitor] = (),
) -> None:
    """Add windows, phases and power to a trace of PyTorch's profiler, on the same clock.

    The trace must be of this boot of this machine. All that is in it stays as it is.

    Args:
        torch_trace: What `profiler.export_chrome_trace()` wrote, plain or gzip, or its content.
        path: Where the merged trace goes; gzip where it ends in `.gz`.
        recorded: Measurements, windows that have ended, and results of phases.
        power: Monitors whose samples become counters, one a GPU and domain.

    Raises:
        ValueError: It is no such trace, or a measurement was made by hand and has no time.
        OSError: A file cannot be read or written.
    """
    trace, where = _load(torch_trace)
    events = trace.get("traceEvents") if isinstance(trace, dict) else None
    if not isinstance(events, list):
        raise ValueError(f"{where} is no trace of PyTorch's profiler: it has no traceEvents")
    # Before PyTorch 2.4 there was no base, and times were those of the Unix epoch.
    base_ns = int(trace.get("baseTimeNanoseconds", 0))
    pid = _PID
    taken = {event.get("pid") for event in events}
    while pid in taken:
        pid += 1
    ours = _events(_spans(recorded), _monitors(power), base_ns, pid)
    _save(path, {**trace, "traceEvents": [*events, *ours]})


def _load(torch_trace: str | Path | Mapping[str, Any]) -> tuple[Any, str]:
    if isinstance(torch_trace, Mapping):
        return dict(torch_trace), "the mapping"
    content = Path(torch_trace).read_bytes()
    if content.startswith(b"\x1f\x8b"):
        content = gzip.decompress(content)
    try:
        return json.loads(content), str(torch_trace)
    except ValueError as error:
        raise ValueError(f"{torch_trace} is no trace: it is not JSON ({error})") from error


def _save(path: str | Path, trace: Mapping[str, Any]) -> None:
    # A value that JSON has no number for would make the file unreadable.
    content = json.dumps(trace, allow_nan=False).encode()
    path = Path(path)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def _events(
    spans: list[_Span], monitors: list[PowerMonitor], base_ns: int, pid: int
) -> list[Event]:
    def micros(wall_s: float) -> float:
        return (wall_s - base_ns / 1e9) * 1e6

    named: list[Event] = [
        _name("process_name", pid, _POWER_TID, f"Zeus energy (process {os.getpid()})"),
        {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": -1}},
    ]
    events: list[Event] = []
    lanes = 0
    for lane, (name, begin_s, end_s, args) in _laned(spans):
        lanes = max(lanes, lane + 1)
        begin = micros(begin_s)
        event = {"ph": "X", "cat": "energy", "name": name, "pid": pid, "tid": _SPANS_TID + lane}
        events.append(event | {"ts": begin, "dur": max(0.0, micros(end_s) - begin), "args": args})
    for lane in range(lanes):
        named.append(_name("thread_name", pid, _SPANS_TID + lane, f"windows {lane + 1}"))
    for monitor in monitors:
        for track, runs in _runs(monitor).items():
            events.extend(_counter(track, runs, monitor.update_period, pid, micros))
    # Outer spans before those that begin with them.
    return named + sorted(events, key=lambda e: (e["ts"], -e.get("dur", 0.0)))


def _name(what: str, pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


_Span = tuple[str, float, float, dict[str, Any]]


def _spans(recorded: Iterable[Recorded]) -> list[_Span]:
    """(name, begin, end, what is said of it), by the wall clock as it was when the span began."""
    spans: list[_Span] = []
    for one in recorded:
        measurement = one if isinstance(one, Measurement) else one.measurement
        span = measurement.span
        if span is None:
            raise ValueError(f"{measurement!r} was made by hand: nobody knows when it was")
        known = measurement.to_dict()
        about = {"energy": format(measurement, "u"), "devices": known["devices"]}
        offset = span.wall_s - span.begin_s
        spans.append((span.name, span.wall_s, span.end_s + offset, about))
        if isinstance(one, Phased):
            about_phases = {
                name: {"energy of all runs": str(phase.total), "runs": phase.count}
                for name, phase in one.phases.items()
            }
            spans.extend(
                (s.name, s.begin_s + offset, s.end_s + offset, about_phases[s.name])
                for s in one.spans
            )
    return sorted(spans, key=lambda s: (s[1], -s[2]))


def _laned(spans: list[_Span]) -> list[tuple[int, _Span]]:
    """Spans of one lane lie in or behind each other, as viewers want it."""
    lanes: list[list[float]] = []
    placed = []
    for span in spans:
        _, begin, end, _ = span
        for ends in lanes:
            while ends and ends[-1] <= begin:
                ends.pop()
        free = (i for i, ends in enumerate(lanes) if not ends or end <= ends[-1])
        lane = next(free, len(lanes))
        if lane == len(lanes):
            lanes.append([])
        lanes[lane].append(end)
        placed.append((lane, span))
    return placed


def _monitors(power: PowerMonitor | Sequence[PowerMonitor]) -> list[PowerMonitor]:
    return list(power) if isinstance(power, Sequence) else [power]


def _runs(monitor: PowerMonitor) -> dict[str, list[tuple[float, float, float]]]:
    """(first reading, last reading, watts) by track, by the wall clock as it was then."""
    wall = monitor._wall.wall
    return {
        f"GPU {i} {domain.value} power": [
            (wall(run.first_s), wall(run.last_s), run.power_w)
            for run in monitor._runs(i, 0.0, math.inf, domain)
        ]
        for domain in monitor.measurement_domains
        for i in monitor.gpu_indices
    }


def _counter(
    track: str,
    runs: list[tuple[float, float, float]],
    period_s: float,
    pid: int,
    micros: Callable[[float], float],
) -> Iterable[Event]:
    """Steps of a counter. A stretch that nobody read is marked: viewers draw the last value on."""
    common = {"name": track, "pid": pid, "tid": _POWER_TID}
    for i, (first, last, power_w) in enumerate(runs):
        yield common | {"ph": "C", "ts": micros(first), "args": {"W": power_w}}
        following = runs[i + 1][0] if i + 1 < len(runs) else math.inf
        # As the core: a reading stands for two periods and 50 ms where no other comes.
        if following - last > 2 * period_s + 0.05:
            why = f"{track}: not read from here on"
            yield common | {"ph": "i", "s": "p", "name": why, "ts": micros(last), "args": {}}
            yield common | {"ph": "C", "ts": micros(last), "args": {"W": power_w}}
