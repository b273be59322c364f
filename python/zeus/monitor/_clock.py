"""Between the wall clock, which users give times of, and the monotonic one, which samples have."""

from __future__ import annotations

import time


class WallClock:
    """Translates times of `time.time()` to `time.monotonic()` and back.

    The wall clock is set and slewed now and then. What it showed is noted as time goes on, so that
    a time that a user noted once means the same instant ever after.
    """

    _STEP_S = 1e-3

    def __init__(self) -> None:
        """Note what both clocks show now."""
        self._anchors: list[tuple[float, float]] = []
        self.note()

    def note(self) -> None:
        """Note what both clocks show, where they have moved against each other."""
        monotonic, wall = time.monotonic(), time.time()
        offset = wall - monotonic
        if not self._anchors or abs(offset - self._anchors[-1][1]) > self._STEP_S:
            self._anchors.append((monotonic, offset))

    def monotonic(self, wall_s: float) -> float:
        """The instant at which the wall clock showed this; the latest where it showed it twice."""
        self.note()
        for since, offset in reversed(self._anchors):
            if wall_s - offset >= since:
                return wall_s - offset
        return wall_s - self._anchors[0][1]

    def wall(self, monotonic_s: float) -> float:
        """What the wall clock showed at an instant."""
        for since, offset in reversed(self._anchors):
            if monotonic_s >= since:
                return monotonic_s + offset
        return monotonic_s + self._anchors[0][1]
