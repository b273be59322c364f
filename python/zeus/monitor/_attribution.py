"""Divides the energy of a window among phases, from a coarse curve of one device's energy.

A sensor publishes now and then: between two publications lies a *segment*, whose energy is known
and in which one phase or several ran. Segments with one phase belong to it. Of the others only the
sum is known; the shares come from a model in which each phase has a mean power:

    E_k = sum_p P_p s_kp + e_k,   s_kp: seconds of phase p in segment k.

The powers are fitted to all segments by least squares (JCGM 102:2011 names the model; weights
1 / T_k), so that even phases shorter than a segment are told apart, unless they run in step with
the publications. What the fit cannot tell keeps a prior: the mean power, give or take the range.
Segment k then gives phase p the share P_p s_kp / sum_q P_q s_kq of E_k, never more than E_k.

That power follows its phase is taken for granted only of phases shorter than a segment: where the
load of such comes later than they do, nothing in the curve tells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Segment:
    """Time between two publications.

    Attributes:
        begin_s: Its beginning, by the monotonic clock.
        end_s: Its end.
        energy_j: What was used in it; None: not known.
        blur_s: Half of the time in which either publication may have been.
        seconds: How long each phase ran in it, by the phase's number, in the order of coming.
        edges: When one phase gave way to another in it: (time, from, to).
    """

    begin_s: float
    end_s: float
    energy_j: float | None
    blur_s: float = 0.0
    seconds: dict[int, float] = field(default_factory=dict)
    edges: list[tuple[float, int, int]] = field(default_factory=list)

    @property
    def length_s(self) -> float:
        """Its length."""
        return self.end_s - self.begin_s


@dataclass
class Shares:
    """What each phase used, before the whole is set to the window's energy.

    Attributes:
        energy_j: By the phase's number.
        u_j: Standard uncertainty of it: of the division only.
        bound_j: How far off it may be at most, if power stays within 1.5 times the greatest seen.
    """

    energy_j: list[float]
    u_j: list[float]
    bound_j: list[float]


def spread(segments: Sequence[Segment], edges: Sequence[tuple[float, int]], end_s: float) -> None:
    """Note in each segment how long each phase ran in it, and where they changed.

    Args:
        segments: In the order of time.
        edges: When a phase began and its number, in the order of time; each lasts until the next.
        end_s: When the last one ended.
    """
    place = 0
    for segment in segments:
        while place + 1 < len(edges) and edges[place + 1][0] <= segment.begin_s:
            place += 1
        at = place
        begin = segment.begin_s
        while begin < segment.end_s and at < len(edges):
            until = edges[at + 1][0] if at + 1 < len(edges) else end_s
            until = min(until, segment.end_s)
            if until > begin:
                phase = edges[at][1]
                if at > 0 and begin > segment.begin_s:
                    segment.edges.append((begin, edges[at - 1][1], phase))
                segment.seconds[phase] = segment.seconds.get(phase, 0.0) + until - begin
                begin = until
            at += 1


def divide(segments: Sequence[Segment], phases: int) -> Shares:
    """Give each phase its part of the segments.

    The uncertainty of the division has three parts. Of the fitted powers: by their covariance. Of
    power that differs within a phase: where phase p has the share f of a segment of length T, its
    energy is off by f (1 - f) T (d_p - d_q) if the phases there differ by d from the fit. What the
    segments beside and the segment itself differ by stands for that, once with their signs added
    up over all edges from one phase to another, which finds what happens at each of them alike, as
    where the load comes late, and once in quadrature. Of the
    instants of the publications: rectangles, in quadrature. It is never more than a rectangle over
    all that is possible, between nothing and 1.5 times the greatest power seen.
    """
    known = [s for s in segments if s.energy_j is not None and s.length_s > 0]
    seconds = sum(s.length_s for s in known)
    mean_w = sum(s.energy_j or 0.0 for s in known) / seconds if seconds > 0 else 0.0
    most_w = 1.5 * max(((s.energy_j or 0.0) / s.length_s for s in known), default=0.0)
    powers_w, covariance, scatter_w = _fit(known, phases, mean_w, most_w / 2)

    shares = Shares([0.0] * phases, [0.0] * phases, [0.0] * phases)
    slopes = [[0.0] * phases for _ in range(phases)]
    for segment in segments:
        _give(segment, powers_w, most_w, shares, slopes)
    doubts = _doubts(segments, powers_w, scatter_w)
    in_step = _in_step(segments, phases)
    for p, slope in enumerate(slopes):
        fitted = sum(
            slope[a] * covariance[a][b] * slope[b] for a in range(phases) for b in range(phases)
        )
        u = math.sqrt(max(0.0, fitted) + doubts[p].squared())
        anything = shares.bound_j[p] / math.sqrt(3)
        shares.u_j[p] = anything if in_step[p] else min(u, anything)
    return shares


def to_nanojoules(total_j: float, shares: Sequence[float]) -> list[int]:
    """Whole nanojoules in the proportion of the shares whose sum is exactly the total's.

    By largest remainder, in integers throughout. Where all shares are zero, the last has it all.
    """
    total = round(total_j * 1e9)
    whole = math.fsum(shares)
    weights = [round(share / whole * 2**60) if whole > 0 else 0 for share in shares]
    if not any(weights):
        weights[-1] = 1
    parts = [divmod(total * weight, sum(weights)) for weight in weights]
    given = [quotient for quotient, _ in parts]
    left = total - sum(given)
    by_remainder = sorted(range(len(parts)), key=lambda i: -parts[i][1])
    for i in by_remainder[:left]:
        given[i] += 1
    return given


def _fit(
    known: Sequence[Segment], phases: int, mean_w: float, prior_w: float
) -> tuple[list[float], list[list[float]], list[float]]:
    """Mean power of each phase, the covariance of these, and the scatter of power within each.

    A normal prior about the mean power with standard deviation `prior_w` stands for what the
    segments do not tell.
    """
    normal = [[0.0] * phases for _ in range(phases)]
    right = [0.0] * phases
    for s in known:
        excess_w = (s.energy_j or 0.0) / s.length_s - mean_w
        for p, seconds in s.seconds.items():
            right[p] += seconds * excess_w
            for q, others in s.seconds.items():
                normal[p][q] += seconds * others / s.length_s
    used = sum(1 for p in range(phases) if normal[p][p] > 0)
    if prior_w <= 0 or used == 0:
        return [mean_w] * phases, [[0.0] * phases for _ in range(phases)], [0.0] * phases

    # First with hardly any prior, to see the noise; then with the prior's weight against it.
    noise = 1e-9 * prior_w**2
    powers_w, inverse = _posterior(normal, right, noise / prior_w**2, mean_w)
    squares = sum(s.length_s * _residual(s, powers_w) ** 2 for s in known)
    if len(known) > used:
        noise = max(noise, squares / (len(known) - used))
    else:
        # Too few to see it: a tenth of the range, for the time of one of them.
        noise = (0.1 * prior_w) ** 2 * sum(s.length_s for s in known) / len(known)
    powers_w, inverse = _posterior(normal, right, noise / prior_w**2, mean_w)
    covariance = [[noise * cell for cell in row] for row in inverse]

    weight, scatter = [0.0] * phases, [0.0] * phases
    for s in known:
        residual = _residual(s, powers_w)
        for p, seconds in s.seconds.items():
            weight[p] += seconds
            scatter[p] += seconds * residual**2
    scatter_w = [math.sqrt(c / w) if w > 0 else 0.0 for c, w in zip(scatter, weight, strict=True)]
    return [max(0.0, w) for w in powers_w], covariance, scatter_w


def _residual(s: Segment, powers_w: Sequence[float]) -> float:
    if s.energy_j is None or s.length_s <= 0:
        return 0.0
    fitted_j = sum(powers_w[p] * seconds for p, seconds in s.seconds.items())
    return (s.energy_j - fitted_j) / s.length_s


def _posterior(
    normal: list[list[float]], right: list[float], ridge: float, mean_w: float
) -> tuple[list[float], list[list[float]]]:
    """Solve (normal + ridge) x = right; also the inverse."""
    n = len(right)
    rows = [
        [normal[i][j] + (ridge if i == j else 0.0) for j in range(n)]
        + [1.0 if i == j else 0.0 for j in range(n)]
        for i in range(n)
    ]
    # Gauss and Jordan; the matrix is positive definite, so the diagonal serves as pivots.
    for i in range(n):
        pivot = rows[i][i]
        rows[i] = [cell / pivot for cell in rows[i]]
        for j in range(n):
            if j != i and rows[j][i] != 0.0:
                factor = rows[j][i]
                rows[j] = [a - factor * b for a, b in zip(rows[j], rows[i], strict=True)]
    inverse = [row[n:] for row in rows]
    excess = [sum(a * b for a, b in zip(row, right, strict=True)) for row in inverse]
    return [mean_w + x for x in excess], inverse


def _give(
    s: Segment,
    powers_w: Sequence[float],
    most_w: float,
    shares: Shares,
    slopes: list[list[float]],
) -> None:
    """Add a segment's energy to its phases, with its slopes by the powers and its bounds."""
    parts = {p: powers_w[p] * seconds for p, seconds in s.seconds.items()}
    whole = sum(parts.values())
    length = sum(s.seconds.values())
    for p, seconds in s.seconds.items():
        rest = length - seconds
        if s.energy_j is None:
            shares.energy_j[p] += parts[p]
            slopes[p][p] += seconds
            shares.bound_j[p] += max(parts[p], most_w * seconds - parts[p])
            continue
        energy = s.energy_j
        part = energy * (parts[p] / whole if whole > 0 else seconds / length)
        shares.energy_j[p] += part
        if len(s.seconds) == 1:
            continue
        least = max(0.0, energy - most_w * rest)
        most = min(energy, most_w * seconds)
        shares.bound_j[p] += max(part - least, most - part)
        if whole > 0:
            for q, others in s.seconds.items():
                share = parts[p] / whole
                slopes[p][q] += energy * others / whole * ((1.0 if p == q else 0.0) - share)


def _in_step(segments: Sequence[Segment], phases: int) -> list[bool]:
    """Whether a phase begins or ends at one place of the segments, again and again.

    What happens at its edges then hides at the same place each time, and no fit sees it. So it is
    where the mean phase vector is longer than a half and no chance: exp(-n R^2) < 0.01 (Rayleigh).
    """
    places: dict[tuple[int, int], list[float]] = {}
    for s in segments:
        for t, former, later in s.edges:
            angle = 2 * math.pi * (t - s.begin_s) / s.length_s
            places.setdefault((former, later), []).append(angle)
    in_step = [False] * phases
    for kind, angles in places.items():
        n = len(angles)
        r = math.hypot(sum(map(math.cos, angles)), sum(map(math.sin, angles))) / n
        if r > 0.5 and math.exp(-n * r * r) < 0.01:
            for p in kind:
                in_step[p] = True
    return in_step


@dataclass
class _Doubt:
    """What the division of a phase is uncertain by beside the fitted powers, in joules.

    Signed parts are added up by kind of edge: from which phase to which.
    """

    beside: dict[tuple[int, ...], float] = field(default_factory=dict)
    within: dict[tuple[int, ...], float] = field(default_factory=dict)
    random2: float = 0.0  # Squares of what may go either way.
    unseen: float = 0.0  # Of time that nothing was published of.

    def add(self, kind: tuple[int, ...], beside: float, within: float, random: float) -> None:
        """One divided segment: how its neighbours and it differ from the fit, in joules."""
        self.beside[kind] = self.beside.get(kind, 0.0) + beside
        self.within[kind] = self.within.get(kind, 0.0) + within
        self.random2 += random**2

    def squared(self) -> float:
        """The square of all."""
        common = max(sum(map(abs, part.values())) for part in (self.beside, self.within))
        return (common + self.unseen) ** 2 + self.random2


def _doubts(
    segments: Sequence[Segment], powers_w: Sequence[float], scatter_w: Sequence[float]
) -> list[_Doubt]:
    doubts = [_Doubt() for _ in powers_w]
    misfit_w = [_residual(s, powers_w) for s in segments]
    for i, s in enumerate(segments):
        if s.energy_j is None:
            for p, seconds in s.seconds.items():
                doubts[p].unseen += seconds * scatter_w[p]
            continue
        if len(s.seconds) < 2:
            continue
        around = [j for j in (i - 1, i + 1) if 0 <= j < len(segments)]
        near_w = max(abs(misfit_w[j]) for j in (i, *around))
        length = sum(s.seconds.values())
        for p, seconds in s.seconds.items():
            divided_s = seconds * (1 - seconds / length)
            # Of a neighbour the sign counts by how much more of p it has than of others.
            beside_w = sum(
                misfit_w[j] * (segments[j].seconds.get(p, 0.0) / segments[j].length_s * 2 - 1)
                for j in around
            )
            step_w = max(abs(powers_w[p] - powers_w[q]) for q in s.seconds if q != p)
            random_j = math.hypot(divided_s * 2 * near_w, step_w * s.blur_s * math.sqrt(2 / 3))
            kind = tuple(s.seconds)
            doubts[p].add(kind, divided_s * beside_w, divided_s * 2 * misfit_w[i], random_j)
    return doubts
