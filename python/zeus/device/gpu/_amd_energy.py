"""The energy counter of an AMD GPU: its arithmetic, and whether it is to be believed.

On some cards the counter is not implemented or counts in a unit that is not the one it claims
(ROCm/amdsmi issue 38), so it is compared with the power reading before it is used.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from fractions import Fraction

from zeus.device.exception import ZeusBaseGPUError

logger = logging.getLogger(__name__)

_VALIDATION_S = 0.5
_VALIDATION_ROUNDS = 10
# Power moves within the half second and is told in whole watts; the known faults are factors
# of fifteen and more, or a counter that stands still.
_LEAST_RATIO, _GREATEST_RATIO = 0.5, 2.0
_WRAP_32_BITS = 1 << 32


class EnergyCounter:
    """One GPU's counter as a total in mJ that only grows.

    Attributes:
        doubt: Why the counter is not believed; None while nothing speaks against it.
    """

    def __init__(
        self,
        name: str,
        read_counts: Callable[[], tuple[int, float]],
        read_power_mw: Callable[[], int | None],
        lock: Callable[[], AbstractContextManager[object]],
    ) -> None:
        """Wrap a counter without reading it.

        Args:
            name: The GPU, for messages.
            read_counts: Returns the counter and the microjoules of one count.
            read_power_mw: Returns the power now, or None where there is no reading.
            lock: Keeps a reading and its bookkeeping together; may be taken again inside.
        """
        self.doubt: str | None = None
        self._name = name
        self._read_counts = read_counts
        self._read_power_mw = read_power_mw
        self._lock = lock
        self._last_counts: int | None = None
        self._total_counts = 0
        self._proven = False
        self._idle_since: tuple[float, int] | None = None

    def read_mj(self) -> int:
        """Energy since the driver was loaded, in mJ; a counter that restarts is carried on."""
        with self._lock():
            counts, resolution_uj = self._read_counts()
            self._total_counts += self._advance(counts)
            self._last_counts = counts
            # Integers: the total is some 1e9 mJ, and windows subtract two of them.
            total_mj = int(self._total_counts * Fraction(resolution_uj) / 1000)
            if not self._proven and self.doubt is None:
                self._watch(total_mj)
            return total_mj

    def _advance(self, counts: int) -> int:
        last = self._last_counts
        if last is None or counts >= last:
            return counts - (last or 0)
        if _WRAP_32_BITS // 2 <= last < _WRAP_32_BITS:
            return counts + _WRAP_32_BITS - last
        logger.warning(
            "the energy counter of %s went back from %d to %d: it was reset, and what it "
            "counted last before that is lost",
            self._name,
            last,
            counts,
        )
        return counts

    def _watch(self, total_mj: int) -> None:
        """Believe a counter once it moves, and doubt one that stands still under power."""
        now_s = time.monotonic()
        if self._idle_since is None:
            self._idle_since = (now_s, total_mj)
            return
        since_s, then_mj = self._idle_since
        if total_mj != then_mj:
            self._proven = True
        elif now_s - since_s >= _VALIDATION_S and (self._read_power_mw() or 0) > 0:
            self.doubt = f"the energy counter stood still for {now_s - since_s:.1f} s under power"

    def judge(self, counted_mj: int, expected_mj: float) -> None:
        """Compare what was counted with the integral of the power over the same time."""
        if expected_mj <= 0.0:
            return  # An idle or gated GPU proves nothing: later readings are watched.
        ratio = counted_mj / expected_mj
        if _LEAST_RATIO <= ratio <= _GREATEST_RATIO:
            self._proven = True
            return
        self.doubt = (
            f"the energy counter gave {counted_mj} mJ where the power reading gives "
            f"{expected_mj:.0f} mJ (ROCm/amdsmi issue 38)"
        )

    def try_power_mw(self) -> int | None:
        """The power now; None where there is no reading."""
        return self._read_power_mw()


def validate(counters: Sequence[EnergyCounter]) -> None:
    """Compare all counters with their GPUs' power over one half second.

    A counter that cannot be read gets that as its doubt; one without a power reading stays
    believed until it stands still under power.
    """
    readable = [(counter, _try_read(counter)) for counter in counters]
    first = [(counter, total_mj) for counter, total_mj in readable if total_mj is not None]
    if not first:
        return
    energy_mj = [0.0] * len(first)
    start_s = last_s = time.monotonic()
    for round_number in range(1, _VALIDATION_ROUNDS + 1):
        wake_s = start_s + _VALIDATION_S * round_number / _VALIDATION_ROUNDS
        time.sleep(max(0.0, wake_s - time.monotonic()))
        now_s = time.monotonic()
        for position, (counter, _) in enumerate(first):
            energy_mj[position] += (counter.try_power_mw() or 0) * (now_s - last_s)
        last_s = now_s
    for (counter, begin_mj), expected_mj in zip(first, energy_mj, strict=True):
        end_mj = _try_read(counter)
        if end_mj is not None:
            counter.judge(end_mj - begin_mj, expected_mj)
    for counter in counters:
        if counter.doubt is not None:
            logger.info("%s; energy is integrated from power instead", counter.doubt)


def _try_read(counter: EnergyCounter) -> int | None:
    try:
        return counter.read_mj()
    except ZeusBaseGPUError as error:
        counter.doubt = f"the energy counter cannot be read: {error}"
        return None
