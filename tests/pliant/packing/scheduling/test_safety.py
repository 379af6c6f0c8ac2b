"""The safety of admission: what preemptions cost by the clock of iterations decides how many of them are worth it."""

from __future__ import annotations

import pytest

from pliant.packing.scheduling.iteration_cost import LinearCost
from pliant.packing.scheduling.policy import BOUNDS, Rules, Safety
from pliant.packing.scheduling.targets import Clock

COST = LinearCost(base=1.0, query=0.1, sequence=0.0, token=0.0, pair=0.0, swap=0.01)  # seconds


def after_ends(between: float, clock: Clock | None, **rules) -> Safety:
    """A safety that began at 1 and has seen three ends, so many seconds apart, of which none lowers it."""
    safety = Safety(Rules(safety=1.0, preemption_target=0.0, **rules), clock)
    for number in range(3):
        safety.end(2, (number + 1) * between)
    return safety


@pytest.mark.parametrize(("between", "to_host", "added"), [(3.0, False, 0.1), (30.0, False, 0.01), (3.0, True, 0.02)])
def test_a_preemption_counts_by_its_seconds_over_those_between_two_ends(between, to_host, added):
    safety = after_ends(between, Clock(COST))
    safety.preempt(10, to_host, 2, 40)  # read again in 1 s, copied in 0.1 s each way
    assert safety.value == pytest.approx(1.0 + added)


@pytest.mark.parametrize("clock", [None, Clock(COST)])
def test_it_counts_as_one_without_a_clock_or_where_the_number_is_of_a_turnover(clock):
    safety = after_ends(60.0, clock, turnover_preemptions=0.3 if clock else 0.0)
    before = safety.value
    safety.preempt(10, False, 2, 40)
    assert safety.value == pytest.approx(before + 0.1)


def test_the_first_ends_and_dear_preemptions_move_it_within_bounds():
    safety = Safety(Rules(safety=1.0), Clock(COST))
    safety.preempt(10, False, 2, 40)
    assert safety.value == pytest.approx(1.1), "no time between two ends is known"
    safety = after_ends(0.001, Clock(COST))
    for _ in range(30):
        safety.preempt(1000, False, 2, 40)
    assert safety.value == BOUNDS[1]
