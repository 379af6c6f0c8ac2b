"""The search for the highest rate, with a service that is made up."""

from __future__ import annotations

import pytest

from pliant.benchmarks.highest_rate import highest, next_rate


def search(bears: float, first: float, count: int) -> list[tuple[float, bool]]:
    """Return what is tried of a service that keeps its objective up to a rate."""
    trials: list[tuple[float, bool]] = []
    for _ in range(count):
        rate = next_rate(trials, first)
        trials.append((rate, rate <= bears))
    return trials


@pytest.mark.parametrize("bears", [3.0, 49.9, 50.0, 61.0, 700.0])
def test_the_highest_rate_is_found_from_below_and_from_above(bears: float):
    found = highest(search(bears, first=50.0, count=12))
    assert found <= bears < 1.1 * found


def test_the_first_rates_double_and_then_lie_between_two():
    rates = [rate for rate, _ in search(100.0, first=30.0, count=5)]
    assert rates == pytest.approx([30.0, 60.0, 120.0, 120 / 2**0.5, 120 / 2**0.25])


def test_no_rate_is_the_highest_where_none_kept_the_objective():
    assert highest(search(0.0, first=50.0, count=4)) == 0.0
