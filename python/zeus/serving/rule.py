"""How the energy of a stretch of time is divided among those who caused it: pure functions.

A stretch (a *block*) of measured energy E has parties: each request in each of its phases, the
gaps in which nothing ran, and the steps that ran without a request. Party i has five features v_i:

==========  =====================================================================================
gap_s       seconds without any step; of a ledger that counts idle power apart: all seconds
busy_s      a seat in the batch: the step's seconds, divided equally among its requests
prefill     prompt tokens computed
decode      tokens computed while generating, rejected drafts included
context     tokens of context read: over the computed tokens, the sum of what each attends to
==========  =====================================================================================

With coefficients t >= 0 (watts, watts, and joules per token), the party's share is

    s_i = (t . v_i) / (t . f),    f = sum of all v_i,

and it bears s_i E. The coefficients are found from the blocks themselves, E_k ~ t . f_k, by least
squares under t >= 0, each block weighted by its uncertainty.

Uncertainty of s_i E from the rule, with C the covariance of t:

    g_i = E (v_i - s_i f) / (t . f),    u^2 = g_i' C g_i        (JCGM 100:2008, 5.2.2)

and, whatever t is, s_i lies between the least and the greatest of the party's shares v_ij / f_j of
single features, because s_i is a weighted mean of them with weights t_j f_j.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

FEATURES = ("gap_s", "busy_s", "prefill", "decode", "context")
GAP, BUSY, PREFILL, DECODE, CONTEXT = range(5)
Vector = tuple[float, float, float, float, float]
Matrix = tuple[Vector, Vector, Vector, Vector, Vector]

ZERO: Vector = (0.0, 0.0, 0.0, 0.0, 0.0)
_SCALE = 1 << 53
_LEAST_PIVOT = 1e-9  # of a correlation matrix: below, rounding decides the solution


def apportion(total: int, weights: Sequence[float]) -> list[int]:
    """Divides a whole number in proportion to weights, by largest remainders.

    The parts add up to `total` exactly; each differs from its real quota by less than 1. Equal
    remainders are served in order. All arithmetic is on integers: the weights are first brought to
    whole multiples of 2^-53 of the greatest.

    Args:
        total: What to divide, not negative.
        weights: Not negative, finite, at least one above zero.

    Returns:
        As many whole numbers as weights.

    Raises:
        ValueError: A total or a weight that cannot be divided by.
    """
    greatest = max(weights, default=0.0)
    if total < 0 or not 0 < greatest < math.inf or min(weights) < 0:
        raise ValueError(
            f"cannot apportion {total} by {len(weights)} weights: the total must not be negative, "
            "the weights finite, not negative and not all zero"
        )
    whole = [int(weight / greatest * _SCALE) for weight in weights]
    divided = [divmod(total * weight, sum(whole)) for weight in whole]
    parts = [quota for quota, _ in divided]
    missing = total - sum(parts)
    for i in sorted(range(len(parts)), key=lambda i: -divided[i][1])[:missing]:
        parts[i] += 1
    return parts


@dataclass(frozen=True, slots=True)
class Coefficients:
    """The cost of each feature.

    Attributes:
        values: Watts of a gap, watts of a busy second, joules per prefill, decode and context
            token.
        covariance: Of `values`.
        blocks: How many blocks they were fitted to; 0 where they were given.
        scatter: Reduced chi-square of that fit, at least 1: how much more the blocks scatter about
            the model than their own uncertainties say.
    """

    values: Vector
    covariance: Matrix = (ZERO, ZERO, ZERO, ZERO, ZERO)
    blocks: int = 0
    scatter: float = 1.0

    def cost(self, features: Sequence[float]) -> float:
        """Joules that the model expects of these features."""
        return sum(t * v for t, v in zip(self.values, features, strict=True))

    def to_dict(self) -> dict[str, object]:
        """Coefficients and their standard uncertainties by name, for JSON."""
        names = ("gap_w", "busy_w", "prefill_j", "decode_j", "context_j")
        return {
            **dict(zip(names, self.values, strict=True)),
            "u": {n: math.sqrt(max(0.0, self.covariance[i][i])) for i, n in enumerate(names)},
            "blocks": self.blocks,
            "scatter": self.scatter,
        }


def total_of(vectors: Sequence[Vector]) -> Vector:
    """Sum of the parties' features."""
    a, b, c, d, e = (math.fsum(column) for column in zip(*vectors, strict=True))
    return a, b, c, d, e


def gradient(vector: Vector, share: float, total: Vector, cost: float, energy: float) -> Vector:
    """How the energy of a party changes with each coefficient: E (v - s f) / (t . f)."""
    a, b, c, d, e = (energy * (v - share * f) / cost for v, f in zip(vector, total, strict=True))
    return a, b, c, d, e


def quadratic_form(vector: Vector, matrix: Matrix) -> float:
    """v' M v."""
    return math.fsum(
        vector[i] * matrix[i][j] * vector[j] for i in range(5) for j in range(5) if vector[i]
    )


def share_range(vector: Vector, total: Vector, gap_share: float) -> tuple[float, float]:
    """Between what and what a party's share lies, whatever the coefficients.

    Args:
        vector: Features of the party, not a gap.
        total: Sum of the features of all.
        gap_share: The greatest share that the gaps may have.
    """
    shares = [v / f for v, f in zip(vector[BUSY:], total[BUSY:], strict=True) if f > 0]
    return (1 - gap_share) * min(shares, default=0.0), max(shares, default=0.0)


def token_weights(vectors: Sequence[Vector], gap_share: float) -> list[float]:
    """The rule where coefficients are not known: gaps first, then time, then plain tokens.

    The gaps have `gap_share` of the energy. Of the rest, requests and steps without a request have
    their seconds' share, and the requests divide theirs by the tokens computed for them.
    """
    tokens = [v[PREFILL] + v[DECODE] for v in vectors]
    busy = math.fsum(v[BUSY] for v in vectors)
    seated = math.fsum(v[BUSY] for v, n in zip(vectors, tokens, strict=True) if n)
    all_tokens = math.fsum(tokens)
    weights = []
    for v, n in zip(vectors, tokens, strict=True):
        if v[GAP]:
            weights.append(gap_share)
        elif not busy:  # steps of no duration: tokens are all there is
            weights.append((1 - gap_share) * n / all_tokens if all_tokens else 1.0)
        else:
            time = n / all_tokens * seated if n else v[BUSY]
            weights.append((1 - gap_share) * time / busy)
    return weights


class Fit:
    """Least squares over blocks, in constant memory: t >= 0 that minimises sum ((E - t.f) / u)^2.

    Args:
        half_life: Blocks after which one counts half: clocks and temperature change the costs.
    """

    def __init__(self, half_life: float = 3600.0) -> None:
        self._keep = 0.5 ** (1 / half_life)
        self._normal = [[0.0] * 5 for _ in range(5)]
        self._right = [0.0] * 5
        self._square = 0.0
        self._weight = 0.0  # number of blocks, each with what is left of it
        self.blocks = 0

    def add(self, features: Vector, energy_j: float, u_j: float) -> None:
        """Adds a block. An uncertainty below a thousandth of the energy counts as that."""
        u = max(u_j, 1e-3 * energy_j)
        if not (math.isfinite(u) and u > 0):
            return  # a block of no energy, or of none that is known, says nothing of costs
        w = 1 / (u * u)
        for i in range(5):
            self._right[i] = self._keep * self._right[i] + w * features[i] * energy_j
            for j in range(5):
                row = self._normal[i]
                row[j] = self._keep * row[j] + w * features[i] * features[j]
        self._square = self._keep * self._square + w * energy_j * energy_j
        self._weight = self._keep * self._weight + 1
        self.blocks += 1

    def solve(self) -> Coefficients | None:
        """The coefficients; None where the blocks cannot tell them apart.

        With five unknowns the constraint is met exactly by trying every set of coefficients that
        may be above zero. The covariance is that of the unconstrained solution, which is not less:
        scatter * (normal matrix)^-1.
        """
        used = [i for i in range(5) if self._normal[i][i] > 0]
        if not used or self._weight < max(8, 3 * len(used)):
            return None
        inverse = _inverse(self._normal, used)
        if inverse is None:
            return None
        best, residual = self._best(used)
        scatter = max(1.0, residual / (self._weight - len(used)))
        rows = [[scatter * x for x in row] for row in inverse]
        return Coefficients(_vector(best), _matrix(rows), self.blocks, scatter)

    def _best(self, used: list[int]) -> tuple[list[float], float]:
        best, least = [0.0] * 5, self._square
        for size in range(1, len(used) + 1):
            for chosen in itertools.combinations(used, size):
                inverse = _inverse(self._normal, list(chosen))
                if inverse is None:
                    continue
                t = [sum(inverse[i][j] * self._right[j] for j in chosen) for i in range(5)]
                residual = self._square - sum(t[i] * self._right[i] for i in chosen)
                if min(t) >= 0 and residual < least:
                    best, least = t, residual
        return best, max(0.0, least)


def _vector(values: Sequence[float]) -> Vector:
    a, b, c, d, e = values
    return a, b, c, d, e


def _matrix(rows: Sequence[Sequence[float]]) -> Matrix:
    a, b, c, d, e = (_vector(row) for row in rows)
    return a, b, c, d, e


def _inverse(matrix: list[list[float]], used: list[int]) -> list[list[float]] | None:
    """Inverse of the rows and columns in `used`, zero elsewhere; None if it is singular.

    Gauss-Jordan on the matrix scaled to a unit diagonal, which for a symmetric positive definite
    one needs no exchange of rows.
    """
    n = len(used)
    scale = [math.sqrt(matrix[i][i]) for i in used]
    work = [
        [matrix[i][j] / (scale[a] * scale[b]) for b, j in enumerate(used)]
        + [float(a == b) for b in range(n)]
        for a, i in enumerate(used)
    ]
    for a in range(n):
        pivot = work[a][a]
        if pivot < _LEAST_PIVOT:
            return None
        work[a] = [x / pivot for x in work[a]]
        for b in range(n):
            if b != a and work[b][a]:
                factor = work[b][a]
                work[b] = [x - factor * y for x, y in zip(work[b], work[a], strict=True)]
    out = [[0.0] * 5 for _ in range(5)]
    for a, i in enumerate(used):
        for b, j in enumerate(used):
            out[i][j] = work[a][n + b] / (scale[a] * scale[b])
    return out
