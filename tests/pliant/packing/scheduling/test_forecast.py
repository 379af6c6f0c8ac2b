"""The distribution of a forecast, against draws from it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.packing.scheduling.forecast import QUANTILES, Grid, mean, ordered
from tests.fixtures.packing.values import is_frozen

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


def test_lengths_that_are_uniform_in_their_logs_are_known_by_heart():
    """With quantiles at 1024^level an output has at most n tokens with probability log n / log 1024."""
    grid = Grid(1024)
    row = grid.row(tuple(1024.0**level for level in QUANTILES), 1024)
    assert row == pytest.approx(np.linspace(0, 1, len(grid.tokens)))
    tokens_1T = np.array([[0.5, 1.0, 2.0, 32.0, 512.0, 1024.0, 5000.0]])
    assert grid.below(row[None], tokens_1T)[0] == pytest.approx([0, 0, 0.1, 0.5, 0.9, 1, 1])
    horizons_T = np.array([32.0, 480.0, 992.0, 2000.0])
    assert grid.alive(row[None], np.array([32.0]), horizons_T)[0] == pytest.approx([0.8, 0.2, 0, 0], abs=1e-6)
    assert grid.alive(row[None], np.array([0.0]), np.array([1.0, 32.0]))[0] == pytest.approx([1, 0.5])
    assert grid.alive(row[None], np.array([1024.0]), horizons_T)[0].tolist() == [0, 0, 0, 0]


def test_a_grid_reaches_from_one_token_to_the_longest_and_ahead_by_few_whole_numbers():
    grid = Grid(2048)
    assert grid.tokens.shape == grid.logs.shape == (96,)
    assert (grid.tokens[0], grid.logs[0]) == (1.0, 0.0)
    assert grid.tokens[-1] == pytest.approx(2048) and np.diff(grid.logs) == pytest.approx(grid.step)
    assert grid.horizons.tolist() == [
        1, 2, 3, 5, 7, 11, 17, 25, 37, 55, 83, 123, 184, 275, 411, 614, 918, 1371, 2048
    ]  # fmt: skip
    assert Grid(8).horizons.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert Grid(2).horizons.tolist() == Grid(1).horizons.tolist() == [1, 2] and Grid(1).tokens[-1] == 2.0
    assert is_frozen(grid)


def test_a_limit_below_the_grid_bounds_the_row_however_long_the_forecast():
    grid = Grid(1024)
    row = grid.row((500.0,) * 8, 32)
    assert (row[grid.tokens > 32.01] == 1.0).all() and (row[grid.tokens < 31.9] < 0.051).all()
