"""Rules: whole numbers divided exactly, coefficients found again, ranges that hold."""

import math
import random

import pytest

from zeus.serving import apportion
from zeus.serving.rule import Coefficients, Fit, share_range, token_weights, total_of


def test_parts_add_up_to_the_whole_for_any_weights() -> None:
    rng = random.Random(1)
    for _ in range(500):
        total = rng.choice([0, 1, 7, 10**9, rng.randrange(10**18)])
        weights = [rng.choice([0.0, 1e-30, rng.random(), 1e30]) for _ in range(rng.randint(1, 40))]
        weights[rng.randrange(len(weights))] = rng.random() + 0.1
        parts = apportion(total, weights)
        assert sum(parts) == total
        assert min(parts) >= 0


def test_each_part_is_within_one_of_its_quota() -> None:
    # Largest remainders keep the quota rule (Balinski and Young, Fair Representation, 1982).
    weights = [3.0, 5.0, 11.0, 2.0]
    for total in range(200):
        for part, weight in zip(apportion(total, weights), weights, strict=True):
            assert math.floor(total * weight / 21) <= part <= math.ceil(total * weight / 21)


# field failure 108
def test_nine_parts_of_the_work_bear_nine_parts_of_the_energy() -> None:
    assert apportion(1_000_000_000, [0.9, 0.1]) == [900_000_000, 100_000_000]


@pytest.mark.parametrize("weights", [[], [0.0], [-1.0, 2.0], [math.nan], [math.inf]])
def test_weights_that_cannot_divide_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="cannot apportion"):
        apportion(10, weights)


def test_a_fit_without_noise_finds_the_coefficients() -> None:
    truth = (80.0, 250.0, 0.02, 0.3, 1e-4)
    rng, fit = random.Random(2), Fit()
    for _ in range(40):
        gap = rng.random()
        row = (gap, 1 - gap, rng.randint(0, 500), rng.randint(1, 99), rng.randint(100, 9999))
        fit.add(row, sum(t * f for t, f in zip(truth, row, strict=True)), 0.5)
    found = fit.solve()
    assert found is not None
    assert found.values == pytest.approx(truth, rel=1e-6)
    assert found.blocks == 40


def test_the_stated_covariance_is_the_scatter_of_many_fits() -> None:
    # Each z = (found - true) / u has unit variance; its square over 300 fits has mean 1 +- 0.08.
    truth, squares = (80.0, 250.0, 0.05, 0.3, 0.0), [0.0] * 4
    for seed in range(300):
        rng, fit = random.Random(seed), Fit()
        for _ in range(60):
            gap = rng.random()
            row = (gap, 1 - gap, float(rng.randint(0, 800)), float(rng.randint(50, 300)), 0.0)
            energy = sum(t * f for t, f in zip(truth, row, strict=True))
            fit.add(row, energy + rng.gauss(0, 4), 4.0)
        found = fit.solve()
        assert found is not None
        for i in range(4):
            u = math.sqrt(found.covariance[i][i])
            squares[i] += ((found.values[i] - truth[i]) / u) ** 2 / 300
    # The Birge ratio never narrows an uncertainty, so that u is a little too wide on average.
    assert all(0.6 < square < 1.25 for square in squares), squares


def test_no_coefficient_is_below_zero() -> None:
    rng, fit = random.Random(3), Fit()
    for _ in range(60):
        row = (0.0, 1.0, float(rng.randint(0, 9)), float(rng.randint(0, 9)), 0.0)
        fit.add(row, 100 + row[3] - 2 * row[2], 0.1)  # prefill that gives energy back
    found = fit.solve()
    assert found is not None
    assert min(found.values) == 0


def test_features_in_step_cannot_be_told_apart() -> None:
    fit = Fit()
    for k in range(1, 60):
        fit.add((0.0, 1.0 * k, 0.0, 20.0 * k, 0.0), 300.0 * k, 1.0)
    assert fit.solve() is None


def test_too_few_blocks_are_no_fit() -> None:
    fit = Fit()
    for k in range(5):
        fit.add((k / 5, 1 - k / 5, 0.0, 0.0, 0.0), 100 + k, 1.0)
    assert fit.solve() is None


def test_a_share_lies_in_its_range_whatever_the_coefficients() -> None:
    rng = random.Random(4)
    for _ in range(300):
        vectors = [(0.0, *(rng.random() * rng.randint(0, 1) for _ in range(4))) for _ in range(5)]
        total = total_of(vectors)
        costs = [rng.random() ** 4 for _ in range(4)]
        cost = Coefficients((0.0, *costs)).cost
        if not cost(total):
            continue
        for vector in vectors:
            low, high = share_range(vector, total, 0.0)
            assert low - 1e-12 <= cost(vector) / cost(total) <= high + 1e-12


def test_plain_tokens_leave_gaps_their_time_and_requests_their_tokens() -> None:
    gap, a, b = (0.5, 0.0, 0.0, 0.0, 0.0), (0.0, 0.2, 30.0, 0.0, 0.0), (0.0, 0.3, 0.0, 10.0, 0.0)
    assert token_weights([gap, a, b], 0.5) == pytest.approx([0.5, 0.375, 0.125])
