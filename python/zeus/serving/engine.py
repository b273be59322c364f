"""What an inference engine tells a ledger, and what a ledger asks of an energy meter."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

Phase = Literal["prefill", "decode"]
Clock = Literal["monotonic", "time"]


@dataclass(frozen=True, slots=True)
class StepItem:
    """A request's part in one step of the engine.

    Attributes:
        request_id: Any name that is unique among the requests in flight.
        phase: "prefill" while prompt tokens are computed (a chunk of them, or again after a
            preemption), "decode" while tokens are generated.
        tokens: Tokens computed in this step. Drafts that were verified count, accepted or not;
            tokens found in a prefix cache do not.
        context_tokens: What these tokens attended to, summed over them; 0 where the engine does
            not say. A single decoded token: the length of the sequence so far.
        output_tokens: Tokens that the request received from this step. None: all of a decode
            step's, none of a prefill's. With speculative decoding: accepted drafts and the one
            sampled; for the prefill chunk that samples the first token: 1.
        cached_tokens: Prompt tokens that a prefix cache saved from being computed.
    """

    request_id: Hashable
    phase: Phase
    tokens: int
    context_tokens: int = 0
    output_tokens: int | None = None
    cached_tokens: int = 0

    def __post_init__(self) -> None:
        least = self.output_tokens or 0
        if self.tokens < 0 or self.context_tokens < 0 or self.cached_tokens < 0 or least < 0:
            raise ValueError(f"request {self.request_id!r} has a token count below zero: {self!r}")
        if self.phase not in ("prefill", "decode"):
            raise ValueError(
                f"request {self.request_id!r} has phase {self.phase!r}: it must be 'prefill' or "
                "'decode'"
            )


@dataclass(frozen=True, slots=True)
class StepEvent:
    """One step of the engine: a batch that ran from `begin_s` to `end_s`.

    Times are seconds of the ledger's clock. Steps may overlap (a pipelined engine) and may have
    no items (warm-up, padding of a data-parallel rank).
    """

    begin_s: float
    end_s: float
    items: Sequence[StepItem] = ()

    def __post_init__(self) -> None:
        if not (math.isfinite(self.begin_s) and self.begin_s <= self.end_s < math.inf):
            raise ValueError(
                f"a step from {self.begin_s} s to {self.end_s} s is none: "
                "it must be finite and not end before it begins"
            )


@runtime_checkable
class EnergySource(Protocol):
    """Tells the energy of one device over stretches of time.

    Attributes:
        clock: Whose seconds `energy` takes: "monotonic" (`time.monotonic()`) or "time"
            (`time.time()`).
        shared_edges: Whether the energies of adjacent stretches add up to that of both, so that an
            error at their common edge cancels, as with differences of a counter. False: the errors
            of stretches are independent, as with sampled power.
        reach_s: Until when energies can be told by now; infinite where they always can.
    """

    @property
    def clock(self) -> Clock: ...

    @property
    def shared_edges(self) -> bool: ...

    @property
    def reach_s(self) -> float: ...

    def energy(self, begin_s: float, end_s: float) -> tuple[float, float] | None:
        """Energy and its standard uncertainty (k = 1, the gain apart) over a stretch, in joules.

        None where it could not be measured; never a zero in its place.
        """
