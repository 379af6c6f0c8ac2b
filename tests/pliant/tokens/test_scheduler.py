"""The scheduler around any policy: one fate a request, launches ahead, lack of memory, worlds off the profile."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.latency import LatencyTable
from pliant.protocol import (
    Answer,
    Arrived,
    Cancelled,
    Changed,
    Drop,
    Failed,
    Finished,
    Launch,
    Limited,
    Request,
    Woke,
    replay,
)
from pliant.simulator import simulate
from pliant.tokens.artifact import RateRule
from pliant.tokens.policies import POLICIES, make
from pliant.tokens.published import FIGURE_4B, SyntheticConfig, profile, synthetic
from pliant.tokens.scheduler import Knowledge, Options
from pliant.tokens.simulated import SimulatedDevice
from pliant.worlds import Course
from pliant.worlds import World as TrueWorld
from tests.fixtures.tokens import loads
from tests.fixtures.tokens.loads import KNOWN, TRIMMING, Books, World, ask, bursty, known, run, scheduler, text

every_policy = pytest.mark.parametrize("policy", POLICIES)


def drops(books) -> Counter:
    return Counter(fate.reason for fate in books.fates.values() if isinstance(fate, Drop))


# Whole loads


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("policy", TRIMMING)
def test_with_exact_durations_no_answer_is_late(policy, workers):
    _, books = run(bursty(workers, 0.5, [rate * workers for rate in (40, 400, 700)]), World(), workers, policy)
    assert books.late == []
    assert drops(books)["late"] > 0  # the load was too much for one gamma and one worker, or the test proves little


requests_ = st.lists(
    st.tuples(
        st.integers(0, 40).map(lambda n: n / 20),  # arrivals on a grid, so that many coincide
        st.sampled_from([0.0, 0.005, 0.01, 0.05, 0.2, 3.0]),
        st.sampled_from(["easy", "hard"]),
        st.sampled_from([0.0, 0.3, 1.0, 50.0]),
    ),
    max_size=40,
)


def hopeless(request, policy) -> bool:
    """Whether by the profile not even the fastest launch of it alone would have been in time."""
    table = known(policy).latency
    return request.deadline - request.arrival < min(table.at(setting, 1) for setting in table.settings)


@settings(max_examples=80)
@given(
    requests_,
    st.sampled_from(list(POLICIES)),
    st.integers(1, 3),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from([2, 2048]),
    st.lists(st.tuples(st.floats(0, 3), st.sampled_from([0.5, 0.9, 1.0, 3.0])), max_size=3),
)
def test_any_load_and_any_changes_end_with_one_fate_per_request(drawn, policy, workers, failing, max_waiting, changes):
    load = [ask(i, at, within, task, utility) for i, (at, within, task, utility) in enumerate(drawn)]
    world = World(3, failing=failing, failing_restarts=failing)
    profiles = [(at, slower(policy, factor)) for at, factor in changes]
    journal, books = run(load, world, workers, policy, profiles, max_waiting=max_waiting)
    if not failing and not changes and policy in TRIMMING:
        assert all(hopeless(books.arrived[id], policy) for id in books.late), "only what an idle device tries, to learn"
    assert replay(scheduler(policy, workers, max_waiting=max_waiting), journal) == journal


def slower(policy: str, factor: float):
    table = known(policy).latency
    rows = tuple(tuple(factor * s for s in row) for row in table.seconds)
    return replace(known(policy), latency=replace(table, seconds=rows))


# Deadlines, margin, waking


@every_policy
def test_a_request_without_a_deadline_waits_for_ever_and_one_past_it_is_dropped(policy):
    """The margin of an infinite deadline was once infinite too, and the time left was not a number."""
    fresh = scheduler(policy, margin=0.05)
    for i in range(3):
        fresh.handle(Arrived(ask(i, within=float("inf"))), 0.0)
    assert fresh.wake_at() == float("inf")
    assert fresh.handle(Arrived(ask(3, at=1.0, within=-1.0)), 1.0) == [Drop(3, "late")]
    fresh.check()


@every_policy
def test_an_unknown_task_is_refused_and_leaves_no_trace(policy):
    fresh = scheduler(policy)
    with pytest.raises(InputError, match="task is flowers, but must be one of easy, hard"):
        fresh.handle(Arrived(ask(0, task="flowers")), 0.0)
    fresh.check()
    assert (fresh.waiting, fresh.wake_at()) == (0, None)
    assert isinstance(fresh.handle(Arrived(ask(1)), 0.0)[0], Launch)


# What is measured


# Failures


# Exact sequences of events


def of(name: str, request):
    return replace(request, tenant=name)


def test_a_full_queue_gives_up_the_newest_request_of_whom_most_wait_for():
    fresh = scheduler(max_waiting=3)
    (launch,) = fresh.handle(Arrived(of("ann", ask(0, within=9.0))), 0.0)
    for i in (1, 2, 3):
        assert fresh.handle(Arrived(of("ann", ask(i, within=9.0))), 0.0) == []
    assert fresh.handle(Arrived(of("ann", ask(4, within=9.0))), 0.0) == [Drop(4, "full")]
    assert fresh.handle(Arrived(of("ben", ask(5, within=9.0))), 0.0) == [Drop(3, "full")]
    assert fresh.handle(Arrived(of("ben", ask(6, within=9.0))), 0.0) == [Drop(6, "full")]
    assert fresh.waiting == 3
    fresh.check()
    assert fresh.handle(Cancelled(1), 0.0) == [] and fresh.waiting == 2
    answer, following = fresh.handle(Finished(launch.id, 0.02), 0.02)
    assert (answer, following.requests) == (Answer(0, launch.id), (2, 5))
    fresh.check()


def played(load, world: TrueWorld, policy: str = "default", workers: int = 1) -> Books:
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
    world = TrueWorld("drawn", factor, noise, pause, 0.3, steps=steps, by_setting=0.3, by_size=0.3)
    played(bursty(seed, 0.3), world, policy, workers)


@pytest.mark.parametrize("within", [0.009, 0.05])
def test_a_profile_that_makes_every_request_late_is_tried_all_the_same_and_found_wrong(within):
    """The device is eight times faster than its profile, by which not one request could be in time."""
    load = [ask(i, 0.02 * i, within=within, task="hard") for i in range(100)]
    slow = loads.KNOWN.latency.at(-10, 1) / within
    books = played(load, TrueWorld("fast", 0.125 * min(slow, 1.0)))
    in_time = sum(isinstance(fate, Answer) for fate in books.fates.values()) - len(books.late)
    assert in_time >= 90


def test_after_long_pauses_a_request_is_tried_as_soon_as_the_device_has_been_idle_for_a_deadline():
    """Pauses of a second make all of 0.1 s hopeless by what was learnt; nothing but a try can tell that they are over."""
    load = [ask(i, 0.05 * i, within=0.1) for i in range(300)]
    world = TrueWorld("paused", pause=1.0, pause_seconds=1.0, pausing=(2.0, 8.0))
    fates = played(load, world).fates
    answered = [load[id].arrival for id, fate in fates.items() if isinstance(fate, Answer)]
    back = min(at for at in answered if at > 9.2)
    assert back < 9.2 + 10 * 0.1
    assert sum(at > back for at in answered) > 0.95 * sum(request.arrival > back for request in load)


PUBLISHED = profile(FIGURE_4B)
AHEAD = replace(PUBLISHED, lead=0.005)


def ahead(workers: int = 1):
    """A scheduler whose knowledge, a journal's first entry, lets it decide ahead."""
    scheduler = make("default", PUBLISHED, workers, options=Options(restart_pause=0.5))
    scheduler.handle(Changed(AHEAD.plain()), 0.0)
    return scheduler


def request(number: int, arrival: float) -> Request:
    return Request(number, arrival, arrival + 5.0, "cifar10")


def test_two_batches_are_in_flight_and_the_journal_replays():
    load = synthetic(2.0, 0, SyntheticConfig(seconds=2.0))
    scheduler = ahead(2)
    device = SimulatedDevice(PUBLISHED.latency, PUBLISHED.accuracy, load, np.random.default_rng(0), jitter=0.1)
    in_flight: list[int] = []

    def observe(_entry) -> None:
        scheduler.check()
        in_flight.append(len(scheduler.running))

    journal = simulate(scheduler, load, device, observe)
    assert max(in_flight) == 4, "two a device"
    assert replay(ahead(2), journal) == journal
    ended = {entry.event.launch for entry in journal if isinstance(entry.event, Finished)}
    launched = [action.id for entry in journal for action in entry.actions if isinstance(action, Launch)]
    assert sorted(ended) == launched


def test_the_requests_behind_a_batch_whose_device_died_wait_again_without_blame():
    scheduler = ahead()
    scheduler.handle(Arrived(request(0, 0.0)), 0.0)
    scheduler.handle(Arrived(request(1, 0.0)), 0.0001)
    scheduler.handle(Woke(), wake := scheduler.wake_at())
    assert scheduler.handle(Failed(0, "it died"), wake) == [], "the restart waits for the second to fail"
    (restart,) = scheduler.handle(Failed(1, "it died"), wake)
    assert restart.kind == "restart"
    scheduler.check()
    actions = scheduler.handle(Finished(restart.id, 0.1), wake + 0.1)
    assert [launch.requests for launch in actions] in ([(0,)], [(1,)]), "the first, which may be to blame, runs alone"
    again = scheduler.handle(Failed(actions[0].id, "again"), wake + 0.2)
    assert Drop(1, "failed") not in again, "it was never to blame before"
    scheduler.check()


TABLE = LatencyTable((-5, 0), (1, 8), ((0.01, 0.03), (0.02, 0.09)))


def test_more_than_the_limit_takes_the_seconds_of_its_parts():
    limited = Knowledge(TABLE, {}, RateRule((), (0,)), limits={0: 3})
    assert limited.at(0, 3) == TABLE.at(0, 3)
    assert limited.at(0, 7) == pytest.approx(2 * TABLE.at(0, 3) + TABLE.at(0, 1))
    assert limited.at(0, 6) == pytest.approx(2 * TABLE.at(0, 3))
    assert limited.at(-5, 7) == TABLE.at(-5, 7)
    seconds_GN = limited.seconds(8)
    assert (seconds_GN[0] == TABLE.dense(8)[0]).all() and (seconds_GN[1, :4] == TABLE.dense(8)[1, :4]).all()
    assert [seconds_GN[1, n] for n in (6, 7)] == [limited.at(0, n) for n in (6, 7)]
    assert limited.only([0]).limits == {0: 3}
    assert (Knowledge(TABLE, {}, RateRule((), (0,))).seconds(8) == TABLE.dense(8)).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_journal_with_limits_replays_and_every_request_has_its_fate(policy):
    limits = [(0.1 * at, Limited(setting, 4)) for at, setting in enumerate(known(policy).latency.settings, 1)]
    journal, _ = run(bursty(3, 0.3), policy=policy, workers=2, changes=limits)
    assert any(isinstance(entry.event, Limited) for entry in journal)
    assert text(replay(scheduler(policy, 2), journal)) == text(journal)


def launches(journal) -> list[Launch]:
    """The batches that were launched behind the last limit."""
    last = max(at for at, entry in enumerate(journal) if isinstance(entry.event, Limited))
    return [action for entry in journal[last + 1 :] for action in entry.actions if isinstance(action, Launch)]


@pytest.mark.parametrize("most", [1, 5, 12])
def test_the_default_policy_launches_no_batch_beyond_the_limit(most):
    limits = [(0.2, Limited(setting, most)) for setting in KNOWN.latency.settings]
    journal, _ = run(bursty(1, 0.4), changes=limits)
    before, _ = run(bursty(1, 0.4))
    sizes = [len(launch.requests) for launch in launches(journal)]
    assert max(sizes) == most
    assert max(len(action.requests) for entry in before for action in entry.actions if isinstance(action, Launch)) == 16
