"""The simulated rollouts: their pairs are what they are called, and short ones end as they must."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.benchmarks.watch.rollout import Setting, draw, repeat


@pytest.mark.parametrize(("challenger", "worse"), [("worse", 0.03), ("equal", 0.0), ("better", -0.03)])
def test_a_challenger_is_as_good_as_it_is_called(challenger, worse):
    setting = Setting(0.05, challenger=challenger)
    rng = np.random.default_rng(0)
    assert -np.mean([np.diff(draw(setting, rng).mean(1)) for _ in range(40)]) == pytest.approx(worse, abs=0.0025)


def test_a_worse_one_is_taken_back_in_time_and_a_better_one_promoted():
    worse, _ = repeat(Setting(0.03), runs=8)
    assert worse["in_time"] >= 7 / 8
    better, _ = repeat(Setting(0.05, challenger="better"), runs=4)
    assert better["promoted"] == 1.0
    assert better["taken_back"] == 0.0
