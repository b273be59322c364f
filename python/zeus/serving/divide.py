"""Divides the energy of one block among its parties, with the uncertainty of the rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from zeus.serving.block import Open, Party
from zeus.serving.meter import Block
from zeus.serving.rule import (
    BUSY,
    GAP,
    Coefficients,
    Vector,
    apportion,
    gradient,
    share_range,
    token_weights,
    total_of,
)


@dataclass(frozen=True, slots=True)
class Terms:
    """What the caller knows beside the blocks.

    Attributes:
        idle_power_w: Power of all devices while nothing runs, and its standard uncertainty.
        u_weights: Relative standard uncertainty of each request's weight.
    """

    idle_power_w: tuple[float, float] | None
    u_weights: float


def divide(
    parties: Sequence[Party],
    reading: Block,
    length_s: float,
    coefficients: Coefficients | None,
    terms: Terms,
) -> tuple[dict[Open, float], dict[str, int]]:
    """Writes each party's energy and the rule's uncertainty to its account.

    Every device is divided by itself, by the same weights.

    Returns:
        Each account's share, and by device what was not a request's, in nanojoules.
    """
    vectors = [party.vector for party in parties]
    total, energy = total_of(vectors), reading.energy_j
    gap_share = _gap_share(total, energy, length_s, terms)
    cost = coefficients.cost(total) if coefficients else 0.0
    if coefficients and cost > 0:
        weights = [coefficients.cost(v) for v in vectors]
        rule = "fitted" if coefficients.blocks else "given"
    else:
        weights, coefficients, rule = token_weights(vectors, gap_share), None, "tokens"
        if not sum(weights) > 0:  # a block full of idle power, or steps that computed nothing
            weights = [v[GAP] + v[BUSY] or 1.0 for v in vectors]
    idle_nj = {name: _write(parties, whole, weights) for name, whole in reading.whole_nj.items()}
    shares, features = _by_account(parties, weights)
    concentration = sum(s * s for s in shares.values())
    spread = _spread(coefficients, reading, concentration)
    gaps = {party.account for party in parties if party.kind == "gap"}
    for account, share in shares.items():
        account.rules.add(rule)
        vector = features[account]
        if account in gaps:
            low, high = _gap_range(share, gap_share, terms)
        else:
            low, high = share_range(vector, total, gap_share)
        bound = energy * max(share - low, high - share, 0.0) / math.sqrt(3)
        others = math.sqrt(max(0.0, (1 - share) ** 2 + concentration - share * share))
        account.other += energy * share * terms.u_weights * others
        if coefficients is None:
            account.other += bound
            continue
        g = gradient(vector, share, total, cost, energy)
        a, b, c, d, e = (x + y for x, y in zip(account.slope, g, strict=True))
        account.slope = (a, b, c, d, e)
        account.fit_range += bound
        account.fit += energy * share * spread * others
    return shares, idle_nj


def _write(parties: Sequence[Party], whole_nj: int, weights: list[float]) -> int:
    """Divides one device's energy; returns what was not a request's."""
    idle = 0
    for party, part in zip(parties, apportion(whole_nj, weights), strict=True):
        party.account.measured = True
        if party.kind == "prefill":
            party.account.prefill_nj += part
        else:
            party.account.decode_nj += part
        if party.kind in ("gap", "empty"):
            idle += part
    return idle


def _gap_share(total: Vector, energy_j: float, length_s: float, terms: Terms) -> float:
    """The gaps' share where no fit tells it: by known idle power, else that of time."""
    if terms.idle_power_w and energy_j > 0:
        return min(1.0, terms.idle_power_w[0] * total[GAP] / energy_j)
    return min(1.0, total[GAP] / length_s)


def _gap_range(share: float, gap_share: float, terms: Terms) -> tuple[float, float]:
    """Between what the gaps' share lies: no less than nothing, no more than the mean power."""
    if terms.idle_power_w and terms.idle_power_w[0] > 0:
        relative = terms.idle_power_w[1] / terms.idle_power_w[0] * math.sqrt(3)
        return share * (1 - relative), share * (1 + relative)
    return 0.0, max(share, gap_share)


def _spread(coefficients: Coefficients | None, reading: Block, concentration: float) -> float:
    """Relative deviation of weights that explains how blocks scatter about the fit.

    Weights that deviate by r each, independently, move a block by r sqrt(sum s^2).
    """
    if coefficients is None or coefficients.scatter <= 1 or reading.energy_j <= 0:
        return 0.0
    u = max(reading.u_j, 1e-3 * reading.energy_j)
    return math.sqrt((coefficients.scatter - 1) / concentration) * u / reading.energy_j


def _by_account(
    parties: Sequence[Party], weights: list[float]
) -> tuple[dict[Open, float], dict[Open, Vector]]:
    """Shares and features of accounts: the sums over their phases."""
    whole = math.fsum(weights)
    shares: dict[Open, float] = {}
    features: dict[Open, Vector] = {}
    for party, weight in zip(parties, weights, strict=True):
        account = party.account
        shares[account] = shares.get(account, 0.0) + weight / whole
        old = features.get(account)
        features[account] = total_of([old, party.vector]) if old else party.vector
    return shares, features
