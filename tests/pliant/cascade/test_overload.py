"""Under overload first answers run before gains; where there is time for all, small gains run too."""

from __future__ import annotations

import pytest

from pliant.cascade.simulated import capacity
from pliant.simulator import simulate
from tests.fixtures.cascade.fifo import FifoCascade
from tests.fixtures.cascade.loads import (
    WALKED,
    Load,
    World,
    bursty,
    fared,
    known,
    scheduler,
)


def overload(times: float) -> Load:
    """Return a load of `times` the capacity of one device."""
    return bursty(6, 1.0, (times * capacity(known(), WALKED),), candidates=1)


@pytest.mark.parametrize(("times", "attained"), [(1.2, 0.99), (2.0, 0.9)])
def test_under_overload_gains_wait_behind_first_answers_and_more_is_earned_than_first_come_first_served(
    times, attained
):
    load, knowledge = overload(times), known()
    ours = simulate(scheduler(knowledge), load.requests, World().over(load, knowledge))
    plain = simulate(FifoCascade(knowledge), load.requests, World().over(load, knowledge))
    assert fared(ours).attained >= attained
    assert fared(ours).attained > fared(plain).attained + 0.3
    assert fared(ours).utility > fared(plain).utility + 0.3
