"""How far launches are off the profile: learnt soon after a change, and not from a pause."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.slowness import LEARN, NEAR, RARE, SEEN, Slowness


def after(*ratios: float, expected: float = 1.0) -> Slowness:
    slowness = Slowness()
    for ratio in ratios:
        slowness.learn(ratio * expected, expected)
    return slowness


def test_the_profile_is_right_until_launches_tell_otherwise() -> None:
    assert (after().mean, after().least, after().excess) == (1.0, 1.0, 0.0)
    assert after(1.2).mean == pytest.approx(1 + LEARN * 0.2)


@pytest.mark.parametrize("factor", [1 / 100, 1 / 8, 8.0, 100.0])
def test_a_device_that_is_far_off_its_profile_is_known_after_three_launches(factor: float) -> None:
    assert after(factor).mean == pytest.approx(1.0, abs=0.11), "one launch alone may be a pause"
    assert after(*[factor] * 3).mean == pytest.approx(factor)


@pytest.mark.parametrize("factor", [1 / 8, 8.0])
def test_a_step_is_known_once_most_of_the_latest_launches_show_it(factor: float) -> None:
    assert after(*[1.0] * 50, *[factor] * (SEEN // 2 + 1)).mean == pytest.approx(factor)


def test_pauses_move_the_ratio_by_little_and_are_counted_apart() -> None:
    paused = [0.25, *[0.25] * 9, 50.0, *[0.25] * 9] * 20
    slowness = after(*paused, expected=0.01)
    assert slowness.mean == pytest.approx(0.25, rel=0.1)
    assert slowness.least == 0.25
    assert slowness.excess == pytest.approx(0.05 * 0.01 * (50.0 - 0.25 * NEAR), rel=0.5)


def test_one_long_pause_is_no_reason_to_think_a_launch_slow_and_is_forgotten() -> None:
    slowness = after(*[1.0] * 20, 1e9)
    assert slowness.mean <= 1 + LEARN
    assert slowness.excess == pytest.approx(RARE * (1e9 - NEAR))
    for _ in range(2000):
        slowness.learn(1.0, 1.0)
    assert slowness.excess < 1e-6


def test_noise_is_smoothed_and_its_mean_is_what_launches_take() -> None:
    rng = np.random.default_rng(0)
    slowness = after(*np.exp(0.3 * rng.standard_normal(500)))
    assert slowness.mean == pytest.approx(np.exp(0.3**2 / 2), rel=0.15)
    assert slowness.least < 1.0, "what a launch may hope for"
