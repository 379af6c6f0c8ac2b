"""The default policy in worlds that its profile knows nothing of: what it keeps account of, and that it learns."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.devices import SEEN
from pliant.protocol import Answer, Arrived, Drop, Finished, Launch
from pliant.simulator import simulate
from pliant.worlds import Course, World
from tests.fixtures.tokens import loads
from tests.fixtures.tokens.loads import Books, ask, bursty, scheduler


def played(load, world: World, policy: str = "default", workers: int = 1) -> Books:
    """A simulation in this world, whose books are checked after every event."""
    fresh = scheduler(policy, workers)
    books = Books(fresh, policy=policy)
    simulate(fresh, load, loads.World().over(load), books, course=Course(world, 3))
    assert set(books.fates) == {request.id for request in load}
    return books


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 9),
    st.sampled_from([0.125, 1.0, 8.0]),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([0.0, 0.1]),
    st.sampled_from([(), ((0.5, 4.0),), ((0.5, 0.2), (0.8, 1.0))]),
    st.sampled_from(["default", "pets", "otas"]),
    st.integers(1, 2),
)
def test_in_any_world_every_request_has_one_fate(seed, factor, noise, pause, steps, policy, workers):
    world = World("drawn", factor, noise, pause, 0.3, steps=steps, by_setting=0.3, by_size=0.3)
    played(bursty(seed, 0.3), world, policy, workers)


@pytest.mark.parametrize("within", [0.009, 0.05])
def test_a_profile_that_makes_every_request_late_is_tried_all_the_same_and_found_wrong(within):
    """The device is eight times faster than its profile, by which not one request could be in time."""
    load = [ask(i, 0.02 * i, within=within, task="hard") for i in range(100)]
    slow = loads.KNOWN.latency.at(-10, 1) / within
    books = played(load, World("fast", 0.125 * min(slow, 1.0)))
    in_time = sum(isinstance(fate, Answer) for fate in books.fates.values()) - len(books.late)
    assert in_time >= 90


def test_after_long_pauses_a_request_is_tried_as_soon_as_the_device_has_been_idle_for_a_deadline():
    """Pauses of a second make all of 0.1 s hopeless by what was learnt; nothing but a try can tell that they are over."""
    load = [ask(i, 0.05 * i, within=0.1) for i in range(300)]
    world = World("paused", pause=1.0, pause_seconds=1.0, pausing=(2.0, 8.0))
    fates = played(load, world).fates
    answered = [load[id].arrival for id, fate in fates.items() if isinstance(fate, Answer)]
    back = min(at for at in answered if at > 9.2)
    assert back < 9.2 + 10 * 0.1
    assert sum(at > back for at in answered) > 0.95 * sum(request.arrival > back for request in load)


def test_an_idle_device_is_tried_no_more_often_than_once_in_the_time_that_requests_have():
    load = [ask(i, 0.02 * i, within=0.1) for i in range(1000)]
    fresh = scheduler()
    journal = simulate(fresh, load, loads.World().over(load), course=Course(World("far too slow", 50.0), 0))
    launches = [entry.now for entry in journal for action in entry.actions if isinstance(action, Launch)]
    ends = [entry.now for entry in journal if isinstance(entry.event, Finished)]
    assert len(launches) > SEEN + 3
    for before, after in zip(ends[SEEN:], launches[SEEN + 1 :], strict=False):
        assert after - before >= 0.1 - 1e-9


def test_what_may_be_in_time_at_the_least_of_the_latest_launches_waits_and_is_dropped_as_late_then():
    fresh = scheduler()
    for i in range(12):  # by turns as the profile says and three times as long
        (launch,) = fresh.handle(Arrived(ask(i, float(i))), float(i))
        seconds = fresh.running[0].expected * (1, 3)[i % 2]
        fresh.handle(Finished(launch.id, seconds), i + seconds)
    assert fresh.slowdown > 1.4
    (running,) = fresh.handle(Arrived(ask(12, 20.0)), 20.0)
    assert isinstance(running, Launch)
    assert fresh.handle(Arrived(ask(13, 20.0, within=0.1)), 20.0) == []
    assert fresh.wake_at() == pytest.approx(20.1 - loads.TABLE.at(-10, 1))
    assert fresh.handle(Arrived(ask(14, 20.2, within=5.0)), 20.095) == [Drop(13, "late")]
