"""The distribution of a forecast, against draws from it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.packing.scheduling.forecast import QUANTILES, Grid, mean, ordered

KNOTS = np.array([0.0, *QUANTILES, 1.0])
forecasts = st.lists(st.floats(1.0, 900.0), min_size=8, max_size=8).map(lambda x: tuple(sorted(x)))


def draw(forecast, limit: int, count: int, rng, beyond: float = 0.0) -> np.ndarray:
    """Draw outputs of more than `beyond` tokens: linear in the log between quantiles, from 1 token to the limit."""
    logs = np.log([1.0, *forecast, limit])
    return np.exp(np.interp(rng.uniform(np.interp(np.log(max(beyond, 1.0)), logs, KNOTS), 1.0, count), KNOTS, logs))


@given(st.lists(st.floats(-5.0, 1e300), min_size=8, max_size=8), st.integers(1, 4096))
def test_ordered_quantiles_ascend_from_one_token_to_the_limit(raw, limit):
    quantiles = ordered(raw, limit)
    assert list(quantiles) == sorted(quantiles) and quantiles[0] >= 1.0 and quantiles[-1] <= limit
    assert ordered(quantiles, limit) == quantiles
    ascending = sorted(min(max(x, 1.0), float(limit)) for x in raw)
    assert ordered(sorted(raw), limit) == tuple(ascending)


@given(forecasts)
def test_the_mean_is_that_of_the_quantile_function(forecast):
    levels = (np.arange(200_000) + 0.5) / 200_000
    quantile = np.interp(levels, QUANTILES, forecast)  # flat beyond the first and the last
    assert mean(forecast) == pytest.approx(quantile.mean(), rel=1e-4)


def test_the_mean_of_one_certain_length_is_that_length():
    assert mean((7.0,) * 8) == pytest.approx(7.0)


@given(forecasts, st.integers(900, 2047))
def test_a_row_rises_from_nothing_to_everything_at_the_limit(forecast, limit):
    grid = Grid(2048)
    row = grid.row(forecast, limit)
    assert row[0] == 0.0 and (np.diff(row) >= 0).all()
    assert (row[grid.tokens > limit] == 1.0).all()


@given(st.floats(20, 300), st.floats(0.3, 1.2), st.integers(0, 200), st.integers(0, 2**32 - 1))
def test_who_is_alive_later_is_as_drawn(middle, width, generated, seed):
    """Up to the resolution of the grid, whose points lie 8% apart."""
    rng, limit, grid = np.random.default_rng(seed), 1500, Grid(2048)
    z = np.array([-1.645, -1.282, -0.674, 0, 0.674, 1.282, 1.645, 2.326])
    forecast = ordered(middle * np.exp(width * z), limit)
    if np.interp(np.log(max(generated, 1)), np.log([1.0, *forecast, limit]), KNOTS) > 0.95:
        return  # nearly all have ended
    horizons_T = np.array([1.0, 5, 20, 60, 150, 400, 1000])
    alive = grid.alive(grid.row(forecast, limit)[None], np.array([float(generated)]), horizons_T)[0]
    drawn = draw(forecast, limit, 20_000, rng, generated)
    expected = (drawn[:, None] > generated + horizons_T).mean(axis=0)
    assert np.abs(alive - expected).max() < 0.12 and np.abs(alive - expected).mean() < 0.03


@given(forecasts, st.integers(0, 899))
def test_nobody_comes_to_life_again(forecast, generated):
    grid, horizons_T = Grid(1024), np.arange(1.0, 1024.0)
    alive = grid.alive(grid.row(forecast, 900)[None], np.array([float(generated)]), horizons_T)[0]
    assert (alive >= 0).all() and (alive <= 1 + 1e-12).all() and (np.diff(alive) <= 1e-12).all()
    assert (alive[generated + horizons_T > 980] < 1e-6).all()  # the limit, and a step of the grid


@pytest.mark.parametrize("certain", [1.0, 2.0, 37.0, 900.0])
def test_equal_quantiles_put_all_in_one_place(certain):
    grid = Grid(1024)
    row = grid.row((certain,) * 8, 900)
    below = grid.below(row[None], np.array([[certain * 0.9, certain * 1.1]]))[0]
    assert np.isfinite(row).all() and below[0] <= 0.05 and below[1] >= 0.95


def test_the_shortest_context_has_a_grid():
    grid = Grid(1)
    assert np.isfinite(grid.row((1.0,) * 8, 1)).all() and np.isfinite(grid.tokens).all() and grid.step > 0
