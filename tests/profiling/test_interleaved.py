"""The ratio measured in turns, on a clock that bursts of other work move."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.profiling.interleaved import interleave

RUNS = 40


def measured(factor: float, seed: int, budget: float = 5.0):
    """Calls of 1 and 10 ms, a quarter of which other work holds up; the machine slows down meanwhile."""
    rng, now = np.random.default_rng(seed), [0.0]

    def call(seconds: float):
        def run() -> None:
            held = rng.exponential(0.004) if rng.random() < 0.25 else 0.0
            now[0] += seconds * rng.lognormal(0, 0.03) * (1 + now[0] / 2) + held

        return run

    sides = [[call(by * seconds) for seconds in (0.001, 0.01)] for by in (1.0, factor)]
    return interleave(sides, "cpu", budget=budget, clock=lambda: now[0])


@pytest.mark.parametrize(("factor", "most", "least"), [(1.0, RUNS // 20, 0), (1.2, RUNS, RUNS)])
def test_equals_are_hardly_ever_shown_to_differ_and_a_fifth_more_is_always(factor, most, least):
    ratios = [measured(factor, seed) for seed in range(RUNS)]
    assert least <= sum(ratio.low > 1.01 for ratio in ratios) <= most
    assert np.median([ratio.middle for ratio in ratios]) == pytest.approx(factor, rel=0.03)


def test_more_rounds_are_run_until_the_budget_is_spent():
    few, many = measured(1.0, 0, budget=0.0), measured(1.0, 0, budget=1e9)
    assert many.high - many.low < few.high - few.low
