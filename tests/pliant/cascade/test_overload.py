"""Under overload first answers run before gains; where there is time for all, small gains run too."""

from __future__ import annotations

import pytest

from pliant.cascade.simulated import capacity
from pliant.protocol import Answer, Arrived, Launch
from pliant.simulator import simulate
from tests.fixtures.cascade.fifo import FifoCascade
from tests.fixtures.cascade.loads import (
    FIRST,
    LEVEL,
    SECOND,
    WALKED,
    Load,
    World,
    ask,
    bursty,
    done,
    fared,
    known,
    scheduler,
    started,
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


def test_a_small_gain_is_served_before_its_deadline_where_there_is_time_for_all():
    """Otherwise a stream of first answers, each worth more a second, would keep it waiting for ever."""
    fresh = scheduler(LEVEL)
    launch = started(fresh, ask(0, within=0.5))
    now, number, ran = 0.0, 0, set()
    while now < 0.6:
        number += 1
        fresh.handle(Arrived(ask(number, at=now, within=0.5)), now)
        seconds = SECOND if launch.setting else FIRST
        now += seconds
        actions = fresh.handle(done(launch, now, 0.002 if 0 in launch.requests else None, seconds), now)
        assert Answer(0, 0, "late") not in actions
        (launch,) = [action for action in actions if isinstance(action, Launch)]
        ran |= {launch.setting} if 0 in launch.requests else set()
    assert ran == {1}
