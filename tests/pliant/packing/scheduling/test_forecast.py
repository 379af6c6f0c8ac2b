"""The distribution of a forecast, against draws from it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.packing.scheduling.forecast import MAX_SHIFT, QUANTILES, Calibration, Grid, mean, ordered
from pliant.packing.scheduling.iteration_cost import LinearCost
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory, Prompt
from pliant.packing.scheduling.simulated import simulate

forecasts = st.lists(st.floats(1.0, 900.0), min_size=8, max_size=8).map(lambda x: tuple(sorted(x)))


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


@pytest.mark.parametrize("certain", [1.0, 2.0, 37.0, 900.0])
def test_equal_quantiles_put_all_in_one_place(certain):
    grid = Grid(1024)
    row = grid.row((certain,) * 8, 900)
    below = grid.below(row[None], np.array([[certain * 0.9, certain * 1.1]]))[0]
    assert np.isfinite(row).all() and below[0] <= 0.05 and below[1] >= 0.95


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


Z = np.array([-1.6449, -1.2816, -0.6745, 0.0, 0.6745, 1.2816, 1.6449, 2.3263])


def stream(fault, count: int, seed: int, limit: int = 10_000):
    """Yield forecasts whose log median is wrong by `fault(i)`, and outputs."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        middle = rng.normal(5.0, 1.0)
        tokens = max(1, round(float(np.exp(middle + 0.6 * rng.normal()))))
        yield tuple(np.exp(middle + 0.6 * Z - fault(i)).tolist()), min(tokens, limit)


def covered(fault, count: int, last: int, seed: int = 1) -> np.ndarray:
    calibration, within = Calibration(), []
    for forecast, tokens in stream(fault, count, seed):
        used = calibration.apply(forecast, 10_000)
        within.append([tokens <= quantile for quantile in used])
        calibration = calibration.after(used, tokens, 10_000)
    return np.mean(within[-last:], axis=0)


@pytest.mark.parametrize("fault", [0.0, 0.7, -0.7, 1.2], ids=lambda x: f"off by {x}")
def test_every_level_covers_what_it_says_under_a_constant_fault(fault):
    assert covered(lambda i: fault, 8000, 4000) == pytest.approx(QUANTILES, abs=0.03)


def test_outputs_cut_off_at_their_limit_do_not_spoil_the_forecasts_of_the_others():
    """Half of the requests ask for at most 16 tokens (the default of OpenAI's completions).

    Their quantiles are all cut to 16 and every output stays within: that pushed the median of everybody down until it
    covered 2% of the outputs of the others.
    """
    calibration, within = Calibration(), []
    for i, (forecast, tokens) in enumerate(stream(lambda i: 0.0, 8000, 3)):
        limit = 16 if i % 2 else 10_000
        used = calibration.apply(forecast, limit)
        calibration = calibration.after(used, min(tokens, limit), limit)
        if i % 2 == 0:
            within.append([tokens <= quantile for quantile in used])
    assert np.mean(within[-2000:], axis=0) == pytest.approx(QUANTILES, abs=0.04)


@given(st.lists(st.tuples(st.floats(0.0, 1e6), st.integers(1, 5000)), min_size=1, max_size=60), st.integers(1, 5000))
def test_shifts_and_coverage_stay_within_their_bounds(outputs, limit):
    calibration = Calibration()
    for middle, tokens in outputs:
        used = calibration.apply((middle,) * 8, limit)
        assert list(used) == sorted(used) and used[0] >= 1.0 and used[-1] <= limit
        calibration = calibration.after(used, min(tokens, limit), limit)
    assert all(abs(shift) <= MAX_SHIFT for shift in calibration.shifts)
    assert all(0 <= share <= 1 for share in calibration.coverage)


def test_a_long_wait_between_forecast_and_end_does_not_wind_the_shifts_up():
    """Once outputs were compared with the forecast of their arrival. With a backlog of thousands the shifts went on
    moving for minutes after they were right, up to their limit, and the cache of a 33B model held 49 sequences instead
    of 62.
    """
    rng = np.random.default_rng(0)
    lengths = np.maximum(np.rint(rng.lognormal(4.0, 0.6, 3000)), 1).astype(int).tolist()
    forecast = tuple(float(x) for x in np.quantile(lengths, QUANTILES))
    drifted = tuple(2 * x for x in forecast)
    prompts = [Prompt(i, 0.0, 10, 2000, drifted) for i in range(3000)]  # all of them wait from the start
    memory = Memory(pages=400, page_tokens=16, step_tokens=2048, sequences=512)
    seen: list[tuple[float, ...]] = []
    simulate(
        prompts,
        dict(enumerate(lengths)),
        Rules("paged", 2048),
        memory,
        LinearCost(0.01, 1e-5, 0.0, 0.0, 0.0),
        observe=lambda now, round, plan, scheduler: seen.append(scheduler.calibration.shifts),
    )
    median = [shifts[QUANTILES.index(0.5)] for shifts in seen]
    assert min(median) > np.log(0.5) - 0.25
    assert abs(np.mean(median[len(median) // 2 :]) - np.log(0.5)) < 0.15


def test_each_output_moves_each_quantile_by_its_share_of_a_fiftieth_and_the_coverage_by_its_share_of_what_was_seen():
    none = Calibration()
    assert (none.shifts, none.coverage, none.seen) == ((0.0,) * 8, QUANTILES, 0)
    used = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
    one = none.after(used, 4)  # within the median and those above it
    within = (0, 0, 0, 1, 1, 1, 1, 1)
    assert one.shifts == pytest.approx([0.02 * (level - x) for level, x in zip(QUANTILES, within, strict=True)])
    assert (one.coverage, one.seen) == (within, 1)
    two = one.after(used, 9, limit=8)  # beyond all; the last one is at the limit
    assert two.coverage == pytest.approx((0, 0, 0, 0.5, 0.5, 0.5, 0.5, 1)) and two.seen == 2
    moved = [before + 0.02 * level for before, level in zip(one.shifts, QUANTILES, strict=True)]
    assert two.shifts == pytest.approx([*moved[:-1], one.shifts[-1]])


def test_a_forecast_is_shifted_in_its_logs_and_needs_all_its_quantiles():
    calibration = Calibration(shifts=tuple(float(np.log(factor)) for factor in (4, 1, 1, 1, 2, 1, 1, 0.5)))
    assert calibration.apply((1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 40.0), 15) == pytest.approx(
        (4.0, 4.0, 4.0, 4.0, 10.0, 10.0, 10.0, 15.0)
    )
    with pytest.raises(ValueError, match="argument"):
        calibration.apply((1.0,) * 7, 15)
    with pytest.raises(ValueError, match="argument"):
        calibration.after((1.0,) * 9, 15)
