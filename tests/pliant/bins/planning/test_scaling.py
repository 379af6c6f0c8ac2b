"""Arlo's autoscaling: the rule by itself, and devices that come and go under load."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.bins.knowledge import Scaling
from pliant.bins.planning.scaling import Scaler
from pliant.protocol import Answer, Arrived, Finished, Woke
from tests.fixtures.bins.loads import LOAD, World, ask, bursty, done, known, launches, run, scheduler

RULE = Scaling()
PLACEMENTS = pytest.mark.parametrize("placement", ["shared", "single"])


def decisions(shares, seconds: float, every: float = 0.1, rule: Scaling = RULE) -> list[tuple[float, int]]:
    """Return when the rule wanted another number of devices, for answers after `shares(now)` of their SLO."""
    scaler, changes = Scaler(rule), []
    for step in range(int(seconds / every)):
        now = step * every
        scaler.answered(now, shares(now))
        if scaler.wake_at() <= now and (more := scaler.decide(now)):
            changes.append((now, more))
    return changes


def test_a_tail_at_95_percent_of_the_slo_asks_for_one_device_more_at_every_look():
    changes = decisions(lambda now: 0.95, 12)
    assert [more for _, more in changes] == [1, 1, 1]
    assert [when for when, _ in changes] == pytest.approx([0.0, 5.0, 10.0], abs=0.11)
    assert decisions(lambda now: 0.949, 200) == []


def test_a_tail_below_half_over_a_minute_gives_one_device_back_and_another_one_a_minute_later():
    changes = decisions(lambda now: 0.49, 130)
    assert [more for _, more in changes] == [-1, -1]
    assert [when for when, _ in changes] == pytest.approx([60.0, 120.0], abs=0.11)
    assert decisions(lambda now: 0.5, 200) == []


def test_a_loud_moment_counts_for_a_minute():
    """It once counted for two: until it had left the window, and for as long again."""
    ((when, more),) = decisions(lambda now: 0.8 if 30 <= now < 35 else 0.3, 130)
    assert more == -1
    assert 35 + RULE.window - RULE.pause < when <= 35 + RULE.window + RULE.pause


def test_a_device_that_has_come_stays_for_a_minute():
    changes = decisions(lambda now: 1.0 if now < 0.1 else 0.3, 100, 0.1, Scaling(window=20.0))
    assert changes[0] == (0.0, 1)
    assert changes[1][0] >= 20.0


def test_what_was_answered_exactly_a_pause_or_a_window_ago_still_counts():
    for ago, more in ((1.0, 1), (1.001, 0)):
        scaler = Scaler(Scaling(pause=1.0, window=8.0))
        scaler.answered(10.0 - ago, 2.0)
        scaler.answered(10.0, 0.6)
        assert scaler.decide(10.0) == more
    for ago, more in ((8.0, 0), (8.001, -1)):
        scaler = Scaler(Scaling(pause=1.0, window=8.0))
        scaler.answered(0.5, 0.1)
        assert scaler.decide(0.5) == 0, "the rule waits for a whole window first"
        scaler.answered(10.0 - ago, 0.7)
        scaler.answered(10.0, 0.1)
        assert scaler.decide(10.0) == more


# Devices that come and go


@PLACEMENTS
@settings(max_examples=10)
@given(seed=st.integers(0, 1000), failing=st.sampled_from([0.0, 0.2]), least=st.integers(1, 3))
def test_devices_go_in_quiet_times_and_come_back_in_loud_ones_and_are_never_fewer_than_the_least(
    placement, seed, failing, least
):
    rule = Scaling(least, 0.6, 0.4, window=0.1, pause=0.02)
    load = bursty(seed, 0.2, (100, 100, 2500, 100))
    world = World(seed, failing=failing, failing_restarts=failing, failing_loads=failing)
    _, books = run(load, known(placement, runtimes="static"), world, workers=5, scaling=rule, drop_late=False)
    assert min(books.active) >= least
    assert books.active[0] == 5
    assert min(books.active) < 5 or failing
    assert any(after > before for before, after in zip(books.active, books.active[1:], strict=False)) or failing


def grown_quiet(placement: str, **config):
    """Return a scheduler of two busy devices, one of which has just been given back, and their launches."""
    rule = Scaling(min_devices=1, window=2.0, pause=1.0)
    fresh = scheduler(known(placement), workers=2, deployed=(3, 3), scaling=rule, drop_late=False, period=1e6, **config)
    for second in range(2):
        at = second + 0.5
        (launch,) = fresh.handle(Arrived(ask(second, at)), at)
        fresh.handle(done(launch), at + 0.001)
        fresh.handle(Woke(), at + 0.001)
    running = [launches(fresh.handle(Arrived(ask(i, 2.5)), 2.5))[0] for i in (10, 11)]
    fresh.handle(Arrived(ask(12, 2.5)), 2.5)
    assert fresh.active == 2
    assert fresh.handle(Woke(), 2.55) == []
    assert fresh.active == 1
    return fresh, running


@PLACEMENTS
def test_what_a_device_has_when_it_is_given_back_is_answered(placement):
    fresh, running = grown_quiet(placement)
    answered = []
    while running:
        actions = fresh.handle(done(running.pop(0)), 3.7)
        answered += [action.request for action in actions if isinstance(action, Answer)]
        running += launches(actions)
        fresh.check()
    assert sorted(answered) == [10, 11, 12]


def test_a_device_that_comes_back_loads_the_longest_runtime_first():
    fresh, running = grown_quiet("single")
    for launch in running:
        for more in launches(fresh.handle(done(launch), 3.7)):
            fresh.handle(done(more), 3.7)
    (late,) = fresh.handle(Arrived(ask(20, 3.8)), 3.8)
    fresh.handle(done(late), 4.5)  # far beyond its SLO
    (load,) = fresh.handle(Woke(), max(fresh.wake_at(), 4.6))
    assert (load.kind, load.setting) == ("load", 3)
    assert load.worker != late.worker
    assert fresh.active == 2
    assert fresh.handle(Finished(load.id, LOAD), 4.7) == []
    assert {launches(fresh.handle(Arrived(ask(i, 4.8)), 4.8))[0].worker for i in (30, 31)} == {0, 1}


def test_the_only_device_for_long_texts_is_not_given_back():
    rule = Scaling(min_devices=1, window=0.05, pause=0.01)
    knowledge = known("single", streams=2)
    load = bursty(2, 0.2, (60, 60), streams=2)
    held = (0, 0, 3, 4, 5)
    _, books = run(load, knowledge, workers=5, deployed=held, scaling=rule, period=1e6)
    assert min(books.active) == 2
    assert all(isinstance(fate, Answer) for fate in books.fates.values())
