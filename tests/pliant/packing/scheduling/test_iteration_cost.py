"""The fit of an iteration's seconds finds the true coefficients."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.packing.scheduling.iteration_cost import LinearCost, Point, fit

coefficient = st.floats(0.0, 1.0)


def points(steps: LinearCost, seed: int, noise: float = 0.0, count: int = 80) -> list[Point]:
    rng = np.random.default_rng(seed)
    measured = []
    for _ in range(count):
        sequences = int(rng.integers(1, 64))
        queries, cached = sequences + int(rng.integers(0, 400)), sequences * int(rng.integers(1, 900))
        seconds = float(steps.seconds(queries, sequences, cached)) * float(np.exp(noise * rng.normal()))
        measured.append(Point(queries, sequences, cached, seconds))
    return measured


@given(st.floats(0.01, 1.0), coefficient, coefficient, coefficient, coefficient, st.integers(0, 2**32 - 1))
def test_known_coefficients_are_found_again(base, query, sequence, token, pair, seed):
    truth = LinearCost(base, 1e-3 * query, 1e-3 * sequence, 1e-5 * token, 1e-7 * pair)
    fitted = fit(points(truth, seed), swap=0.25)
    for name in ("base", "query", "sequence", "token", "pair"):
        assert getattr(fitted, name) == pytest.approx(getattr(truth, name), rel=1e-3, abs=1e-9)
    assert fitted.error < 1e-6 and fitted.swap == 0.25


def test_a_noisy_profile_gives_nearly_the_same_and_says_how_far_off_it_is():
    truth = LinearCost(0.02, 2e-4, 1e-4, 1e-6, 1e-9)
    fitted = fit(points(truth, 1, noise=0.1, count=400))
    for point in points(truth, 2):
        assert float(fitted.seconds(point.queries, point.sequences, point.cached)) == pytest.approx(
            point.seconds, rel=0.15
        )
    assert 0.04 < fitted.error < 0.1


def test_an_error_is_relative_so_that_a_short_iteration_counts_as_much_as_a_long_one():
    """The sum of the squares of a/s - 1 is least where a is the sum of 1/s over that of 1/s^2."""
    measured = [Point(1, 1, 1, seconds) for seconds in (0.01, 0.01, 0.01, 0.04)]
    assert float(fit(measured).seconds(1, 1, 1)) == pytest.approx(325 / 30625, rel=1e-6)
    assert fit(measured).error == pytest.approx(325 / 306.25 - 1, rel=1e-6)
