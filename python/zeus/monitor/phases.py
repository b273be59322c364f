"""Phases of a window: `monitor.phases()` divides its energy without waiting at their edges."""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from zeus.monitor import _attribution
from zeus.monitor._cuda_edges import CudaEdges
from zeus.monitor._curve import Curves
from zeus.monitor._measurement import Uncertain
from zeus.monitor._phased import Phase, Phased, PhaseSpan

if TYPE_CHECKING:
    from zeus.monitor.energy import Measurement, ZeusMonitor

__all__ = ["Phase", "PhaseSpan", "Phased", "Phases"]

OTHER = "other"
SHORT = "short_phase"


class Phases:
    """A window that is divided among phases.

        phases = monitor.phases("forward", "backward")
        with phases:
            for batch in batches:
                with phases("forward"):
                    ...
                phases.begin("backward")  # until the next begin() or end()
                ...
        print(phases.result)

    Noting an edge costs a microsecond and no synchronization. The window's energy, which the
    counters tell, is divided by what they, or the power, showed in between: see
    `zeus.monitor._attribution` for the arithmetic. Of each device the phases and `other`, the rest
    of the time, add up to the window's energy to the nanojoule.

    A phase within another takes its time from it. Of a phase shorter than the sensor's update
    period (flag `short_phase`) it is taken for granted that its power is drawn while it runs. With
    PyTorch on CUDA, if it is in use when the window begins, edges are where the GPU came to them,
    by CUDA events on the streams that are current there; else where the program did. One thread
    notes edges.

    Attributes:
        names: The phases, `other` apart.
    """

    def __init__(
        self,
        monitor: ZeusMonitor,
        names: Sequence[str] = (),
        sync_execution: bool = True,
        period_s: float = 0.01,
    ) -> None:
        """Prepare; the window begins with the `with` block.

        Args:
            monitor: Measures the window.
            names: The phases; none: whatever is begun.
            sync_execution: Wait for the GPUs at both ends of the window.
            period_s: How often the counters are looked at, in seconds.

        Raises:
            ValueError: A name stands twice, or is `other`.
        """
        if OTHER in names or len(set(names)) != len(names):
            raise ValueError(
                f"phases need names of their own, and {OTHER!r} is that of the rest: {list(names)}"
            )
        self.names = list(names)
        self._fixed = bool(names)
        self._monitor = monitor
        self._sync_execution = sync_execution
        self._period_s = period_s
        self._numbers = {OTHER: 0, **{name: i + 1 for i, name in enumerate(names)}}
        self._window = monitor.window("phases", sync_execution)
        self._curves: Curves | None = None
        self._cuda: CudaEdges | None = None
        self._edges: list[tuple[float, int]] = []
        self._thread = 0
        self._result: Phased | None = None

    # --- noting ---

    def __enter__(self) -> Phases:
        """Begin the window.

        Raises:
            RuntimeError: It is open already.
        """
        if self._curves is not None:
            raise RuntimeError("these phases are open already; take another monitor.phases()")
        self._result = None
        self._edges = []
        self._thread = threading.get_ident()
        curves = Curves(self._monitor, self._period_s)
        try:
            self._cuda = CudaEdges.where_possible(self._monitor.gpu_indices)
            self._window.__enter__()
        except BaseException:
            curves.stop()
            raise
        self._curves = curves
        return self

    def begin(self, name: str) -> None:
        """A phase begins now; the one before it ends.

        Raises:
            ValueError: The phases were named, and this is none of them.
            RuntimeError: The window is not open, or another thread opened it.
        """
        self._note(self._number(name))

    def end(self) -> None:
        """The phase that runs ends now; what follows is `other`."""
        self._note(0)

    def __call__(self, name: str) -> _Block:
        """A `with` block that is a phase; what it interrupted goes on behind it.

        Raises:
            ValueError: The phases were named, and this is none of them.
        """
        return _Block(self, self._number(name))

    def _number(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None or number == 0:
            if self._fixed or number == 0:
                raise ValueError(f"there is no phase {name!r}; these are: {', '.join(self.names)}")
            number = self._numbers[name] = len(self._numbers)
            self.names.append(name)
        return number

    def _note(self, number: int) -> None:
        if self._curves is None:
            raise RuntimeError("phases begin and end within their window: `with phases: ...`")
        if threading.get_ident() != self._thread:
            raise RuntimeError(
                "phases are noted by the thread that opened their window; take a "
                "monitor.phases() in each thread"
            )
        if self._cuda is not None:
            self._cuda.mark()
        self._edges.append((time.monotonic(), number))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """End the window, also after an exception, which goes on."""
        curves, self._curves = self._curves, None
        if curves is None:
            raise RuntimeError("these phases are not open")
        try:
            self._window.__exit__(kind, error, None)
        finally:
            curves.stop()
        measurement = self._window._measurement
        if measurement is not None:
            self._result = self._divide(measurement, curves, self._gpu_times(error is None))

    def _gpu_times(self, all_is_well: bool) -> dict[int, list[float]]:
        """When GPUs came to the edges; nothing where CUDA does not tell."""
        # A GPU that failed has no clock left to tell edges by.
        if self._cuda is None or not all_is_well:
            return {}
        try:
            return self._cuda.times()
        except RuntimeError as failure:
            warnings.warn(
                f"phases are where the program was, not the GPU: CUDA events failed: {failure}",
                stacklevel=4,
            )
            return {}

    @property
    def result(self) -> Phased:
        """What was measured.

        Raises:
            RuntimeError: The window has not ended, or could not be ended.
        """
        if self._result is None:
            _ = self._window.measurement  # Which says why, where that is so.
            raise RuntimeError("these phases are still open; ask for the result after their block")
        return self._result

    # --- dividing ---

    def _divide(
        self, measurement: Measurement, curves: Curves, cuda: dict[int, list[float]]
    ) -> Phased:
        assert measurement.span is not None
        span = (measurement.span.begin_s, measurement.span.end_s)
        names = list(self._numbers)
        energy_nj: list[dict[str, int]] = [{} for _ in names]
        uncertainty: list[dict[str, Uncertain]] = [{} for _ in names]
        host = _clipped(self._edges, *span)
        for device, whole in measurement.uncertainty.items():
            kind, _, index = device.partition(":")
            edges = host
            if kind == "gpu" and int(index) in cuda:
                # Work is seen to begin no earlier than it was asked for.
                times = zip(cuda[int(index)], self._edges, strict=True)
                edges = _clipped([(max(t, h), number) for t, (h, number) in times], *span)
            segments = curves.segments(device, *span)
            for p, (nj, uncertain) in enumerate(_parts(whole, segments, edges, span, len(names))):
                uncertainty[p][device] = uncertain
                if nj is not None:
                    energy_nj[p][device] = nj
        spans = list(_spans(host, names, span[1]))
        phases = {
            name: Phase(
                name,
                math.fsum(s.end_s - s.begin_s for s in spans if s.name == name),
                sum(1 for s in spans if s.name == name),
                energy_nj[p],
                uncertainty[p],
            )
            for name in [*names[1:], OTHER]
            for p in [self._numbers[name]]
        }
        return Phased(measurement, phases, spans)


class _Block:
    """One block of a phase."""

    def __init__(self, phases: Phases, number: int) -> None:
        self._phases = phases
        self._number = number
        self._former: list[int] = []

    def __enter__(self) -> None:
        edges = self._phases._edges
        former = edges[-1][1] if edges else 0
        self._phases._note(self._number)
        self._former.append(former)

    def __exit__(self, *_: object) -> None:
        self._phases._note(self._former.pop())


def _clipped(
    edges: Sequence[tuple[float, int]], begin_s: float, end_s: float
) -> list[tuple[float, int]]:
    """Edges in order and within the window, which begins with `other`."""
    clipped = [(begin_s, 0)]
    for t, number in edges:
        clipped.append((min(max(t, clipped[-1][0]), end_s), number))
    return clipped


def _spans(
    edges: Sequence[tuple[float, int]], names: Sequence[str], end_s: float
) -> Iterator[PhaseSpan]:
    for i, (begin, number) in enumerate(edges):
        end = edges[i + 1][0] if i + 1 < len(edges) else end_s
        if end > begin or number != 0:
            yield PhaseSpan(names[number], begin, end)


def _parts(
    whole: Uncertain,
    segments: list[_attribution.Segment],
    edges: Sequence[tuple[float, int]],
    span: tuple[float, float],
    phases: int,
) -> list[tuple[int | None, Uncertain]]:
    """What each phase has of one device's energy."""
    if math.isnan(whole.value_j):
        why = whole.refusal or "the window has no number"
        return [(None, Uncertain.missing(why))] * phases
    if not any(s.energy_j is not None for s in segments):
        # Nothing was published within: the window's mean power is all that is known.
        segments = [_attribution.Segment(*span, whole.value_j)]
    _attribution.spread(segments, edges, span[1])
    shares = _attribution.divide(segments, phases)
    sum_j = math.fsum(shares.energy_j)
    scale = whole.value_j / sum_j if sum_j > 0 else 0.0
    nanojoules = _attribution.to_nanojoules(whole.value_j, shares.energy_j)
    short = _short(segments, edges, phases)
    parts: list[tuple[int | None, Uncertain]] = []
    for p, nj in enumerate(nanojoules):
        part_j = nj / 1e9
        share = part_j / whole.value_j if whole.value_j else 0.0
        u_j, bound_j = shares.u_j[p] * scale, shares.bound_j[p] * scale
        low_j = part_j - bound_j - (whole.value_j - whole.bound_j[0])
        high_j = part_j + bound_j + (whole.bound_j[1] - whole.value_j)
        uncertain = Uncertain(
            part_j,
            # The window's own error acts on all its phases alike.
            math.hypot(u_j, share * whole.u_j),
            math.hypot(u_j, share * whole.u_cmp_j),
            (max(0.0, low_j), high_j),
            (*whole.flags, SHORT) if short[p] else whole.flags,
            "phase",
        )
        parts.append((nj, uncertain))
    return parts


def _short(
    segments: Sequence[_attribution.Segment], edges: Sequence[tuple[float, int]], phases: int
) -> list[bool]:
    """Whether a phase's runs are shorter in the mean than what is published at a time."""
    known = [s.length_s for s in segments if s.energy_j is not None]
    seconds, runs = [0.0] * phases, [0] * phases
    for s in segments:
        for p, t in s.seconds.items():
            seconds[p] += t
    for _, p in edges:
        runs[p] += 1
    typical_s = sum(known) / len(known)
    return [0 < t < n * typical_s for t, n in zip(seconds, runs, strict=True)]
