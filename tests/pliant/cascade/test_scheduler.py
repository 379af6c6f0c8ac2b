"""The cascade's scheduler in virtual time: results, deadlines, failures, placements, and the order under overload."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.cascade.batching import BatchTimes
from pliant.cascade.knowledge import Knowledge, Model, Path
from pliant.cascade.scheduler import CascadeScheduler
from pliant.errors import InputError
from pliant.protocol import Answer, Arrived, Cancelled, Drop, Failed, Finished, Launch, Result, Woke, replay
from tests.fixtures.cascade.loads import (
    FIRST,
    LEVEL,
    SECOND,
    World,
    ask,
    bursty,
    done,
    known,
    run,
    scheduler,
    started,
    table,
)

ROUGH = World(9, failing=0.2, failing_restarts=0.3, jitter=0.3)
PLACES = pytest.mark.parametrize(("workers", "own"), [(1, False), (2, False), (2, True), (3, True)])


# A whole load


@PLACES
def test_every_request_has_one_fate_and_none_is_answered_late_where_durations_are_as_profiled(workers, own):
    _, books = run(bursty(1, 0.2, (100 * workers, 3000 * workers)), workers=workers, own=own)
    assert not books.late
    reasons = {fate.reason for fate in books.fates.values()}
    assert reasons == {"", "late"}
    assert {len(ran) for ran in books.ran.values()} == {0, 1, 2, 3}


@PLACES
def test_every_request_has_one_fate_where_workers_fail_and_durations_scatter(workers, own):
    journal, books = run(bursty(2, 0.3), ROUGH, workers, own, restart_pause=0.05, max_waiting=40)
    assert {type(fate) for fate in books.fates.values() if fate.reason == "failed"} == {Answer, Drop}
    assert any(isinstance(entry.event, Failed) for entry in journal)


@settings(max_examples=25)
@given(
    st.integers(0, 10_000),
    st.sampled_from([(1, False), (2, False), (3, True)]),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from([0.5, 1.0, 2.0]),
    st.sampled_from([0.0, 0.15]),
)
def test_any_load_and_world_keep_the_books_and_wake_ups_in_order(seed, where, failing, slow, margin):
    """`simulate` itself raises for a wake-up that is not later."""
    world = World(seed, slow, failing, failing, 0.2)
    run(bursty(seed, 0.08), world, *where, margin=margin, restart_pause=0.03, max_waiting=25)


def test_while_pauses_cost_more_than_a_first_model_saves_the_last_one_is_asked_alone():
    at = (0,)
    paths = (Path((0, 1), 0.8, (1.0, 0.5), 1), Path((1,), 0.9, (1.0,)))
    cascade = CascadeScheduler(Knowledge((Model(table(0.3), at), Model(table(1.0), at)), {"news": paths}))
    assert [cascade.candidate("news", asked, 64) for asked in (0, 1)] == [0, 1]
    for i in range(20):  # every fourth launch is paused
        (launch,) = (a for a in cascade.handle(Arrived(ask(i, 10.0 * i)), 10.0 * i) if isinstance(a, Launch))
        seconds = cascade._devices.running[0].expected + (i % 4 == 1)
        cascade.handle(Finished(launch.id, seconds, (Result(i, True),)), 10.0 * i + seconds)
    assert [cascade.candidate("news", asked, 64) for asked in (0, 1)] == [1, 1]
    with pytest.raises(InputError, match="task and candidate"):
        cascade.candidate("news", 2, 64)


@PLACES
def test_a_load_gives_the_same_journal_again_and_a_replay_the_same_decisions(workers, own):
    journal, _ = run(bursty(3, 0.2), ROUGH, workers, own)
    assert run(bursty(3, 0.2), ROUGH, workers, own)[0] == journal
    assert replay(scheduler(known(workers, own), workers), journal) == journal


# One request


def test_an_answer_that_suffices_goes_out_at_once():
    fresh = scheduler(LEVEL)
    launch = started(fresh, ask(7))
    assert launch == Launch(0, 0, (7,), 0, expected=FIRST)
    assert fresh.handle(done(launch, FIRST), FIRST) == [Answer(7, 0)]
    assert fresh.waiting == 0


def test_a_gain_sends_a_request_on_and_the_last_level_ends_it():
    fresh = scheduler(LEVEL)
    launch = started(fresh, ask(7))
    (second,) = fresh.handle(done(launch, FIRST, 0.2), FIRST)
    assert second == Launch(1, 0, (7,), 1, expected=second.expected)
    assert second.expected == pytest.approx(SECOND, rel=0.1)
    assert fresh.handle(done(second, SECOND, 0.2), FIRST + SECOND) == [Answer(7, 1)]


@pytest.mark.parametrize(("spare", "goes_on"), [(-0.001, False), (0.001, True)])
def test_a_deadline_that_cannot_bear_the_next_level_gets_the_former_answer(spare, goes_on):
    fresh = scheduler(LEVEL)
    launch = started(fresh, ask(7, within=FIRST + SECOND + spare))
    (action,) = fresh.handle(done(launch, FIRST, 0.5), FIRST)
    assert isinstance(action, Launch) if goes_on else action == Answer(7, 0, "late")


def test_a_request_that_waits_for_the_next_level_gets_the_former_answer_at_the_last_moment():
    fresh = scheduler(LEVEL)
    launch = started(fresh, ask(1, within=1.0))
    fresh.handle(Arrived(ask(2, within=5.0, length=256, utility=50.0)), 0.0)
    (other,) = fresh.handle(done(launch, FIRST, 0.01), FIRST)
    assert other.requests == (2,)
    assert fresh.wake_at() == pytest.approx(1.0 - SECOND)
    assert fresh.handle(Woke(), fresh.wake_at()) == [Answer(1, 0, "late")]
    fresh.check()


def test_a_request_that_no_level_can_serve_is_dropped_where_the_device_has_other_work():
    fresh = scheduler(LEVEL)
    started(fresh, ask(0))
    assert fresh.handle(Arrived(ask(7, within=FIRST - 0.001)), 0.0) == [Drop(7, "late")]


def test_an_idle_device_refuses_nothing_as_only_a_launch_can_show_that_the_profile_is_wrong():
    fresh = scheduler(LEVEL)
    for number in range(20):
        now = float(number)
        launch = started(fresh, ask(number, at=now, within=FIRST / 2), now)
        assert fresh.handle(done(launch, now, seconds=FIRST / 4), now + FIRST / 4) == [Answer(number, launch.id)]
        fresh.check()


def test_the_margin_is_kept_for_the_way_back_as_long_as_others_wait():
    fresh = scheduler(LEVEL, margin=0.5)
    launch = started(fresh, ask(0))
    fresh.handle(Arrived(ask(1, within=2.9 * FIRST)), 0.0)
    fresh.handle(Arrived(ask(2)), 0.0)
    _, second = fresh.handle(done(launch, FIRST), FIRST)
    assert second.requests == (2,)
    assert fresh.wake_at() == pytest.approx(1.9 * FIRST)


@pytest.mark.parametrize("wrong", [{"task": "mail"}, {"setting": 2}, {"setting": -1}])
def test_a_request_for_what_is_not_served_is_refused(wrong):
    with pytest.raises(InputError, match="task and candidate"):
        scheduler(known()).handle(Arrived(ask(1, **wrong)), 0.0)


# Failures


def failed(fresh, launch: Launch, now: float) -> list:
    """Fail a launch and restart its worker. Returns what the scheduler does."""
    *actions, restart = fresh.handle(Failed(launch.id, "planted"), now)
    assert (restart.kind, restart.worker) == ("restart", launch.worker)
    return actions + fresh.handle(Finished(restart.id, 0.0), now)


def test_a_worker_that_fails_runs_its_requests_again_and_then_gives_them_up():
    fresh = scheduler(LEVEL)
    launch = started(fresh, ask(7))
    (again,) = failed(fresh, launch, 0.1)
    assert again.requests == (7,)
    assert failed(fresh, again, 0.2) == [Drop(7, "failed")]


@pytest.mark.parametrize(("gain", "fate"), [(None, Drop(7, "failed")), (0.5, Answer(7, 0, "failed"))])
def test_without_time_for_another_attempt_the_reason_is_the_failure(gain, fate):
    fresh = scheduler(LEVEL)
    launch = started(fresh, ask(7, within=FIRST + SECOND + 0.001))
    if gain:
        (launch,) = fresh.handle(done(launch, FIRST, gain), FIRST)
    actions = fresh.handle(Failed(launch.id, "planted"), FIRST + SECOND)
    assert actions[0] == fate


# Placement


def test_with_workers_of_their_own_levels_run_beside_each_other():
    fresh = scheduler(known(2, own=True), 2)
    launch = started(fresh, ask(1))
    assert (launch.worker, launch.setting) == (0, 0)
    (second,) = fresh.handle(done(launch, 0.01, 0.5), 0.01)
    assert (second.worker, second.setting) == (1, 1)
    assert started(fresh, ask(2), 0.01).worker == 0
    assert fresh.handle(Arrived(ask(3)), 0.01) == []


# Limits


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(("more", "first"), [(0.001, 2), (-0.001, 1)])
def test_the_urgent_go_first_while_the_work_of_a_worker_is_a_quarter_of_the_time_left(workers, more, first):
    at = tuple(range(workers))
    knowledge = Knowledge((Model(table(1.0), at), Model(table(4.0), at)), {"news": (Path((0, 1), 1.0),)})
    fresh, times = scheduler(knowledge, workers), BatchTimes(table(1.0))
    launch, *_ = [started(fresh, ask(-number)) for number in range(workers)]
    work, urgent = (times.least(20) + times.least(256)) / workers, FIRST + times.alone(256) + 0.0005
    patient = 2 * work / 0.25 - (urgent - FIRST) + more  # the time left is the mean of both
    fresh.handle(Arrived(ask(1, within=FIRST + patient)), 0.0)
    fresh.handle(Arrived(ask(2, within=urgent, length=256, utility=0.01)), 0.0)
    _, then = fresh.handle(done(launch, FIRST), FIRST)
    assert then.requests == (first,)


def test_of_a_failed_launch_each_half_is_expected_to_take_its_own_seconds():
    fresh = scheduler(LEVEL)
    launch = started(fresh, ask(0))
    lengths = {1: 20, 2: 30, 3: 40, 4: 50}
    for number, length in lengths.items():
        fresh.handle(Arrived(ask(number, within=number, length=length)), 0.0)
    _, four = fresh.handle(done(launch, FIRST), FIRST)
    assert sorted(four.requests) == [1, 2, 3, 4]
    (half,) = fresh.handle(Failed(four.id, "planted", lost=False), 0.1)
    assert half.requests == (1, 2)
    assert half.expected == pytest.approx(table(1.0).between(30, 2))
    *_, other = fresh.handle(done(half, 0.2, seconds=half.expected), 0.1 + half.expected)
    assert other.requests == (3, 4)
    assert other.expected == pytest.approx(table(1.0).between(50, 2))
    fresh.check()


def test_of_many_that_wait_those_of_the_most_value_for_their_seconds_are_considered():
    fresh = scheduler(LEVEL)
    launch = started(fresh, ask(0, within=60.0))
    for number in range(1, 65):
        fresh.handle(Arrived(ask(number, within=50.0, length=256)), 0.0)
    for number in range(65, 81):
        fresh.handle(Arrived(ask(number, within=60.0, length=16, utility=0.3)), 0.0)
    _, then = fresh.handle(done(launch, FIRST), FIRST)
    assert sorted(then.requests) == list(range(65, 81))


def test_a_request_whose_client_has_left_neither_runs_nor_is_answered():
    fresh = scheduler(LEVEL)
    launch = started(fresh, ask(0))
    for number in (1, 2):
        fresh.handle(Arrived(ask(number)), 0.0)
    assert [fresh.handle(Cancelled(number), 0.0) for number in (1, 0)] == [[], []]
    assert fresh.waiting == 1
    fresh.check()
    (then,) = fresh.handle(done(launch, FIRST, 0.5), FIRST)
    assert (then.requests, then.setting) == ((2,), 0)
    (again,) = fresh.handle(Failed(then.id, "planted", lost=False), 0.1)
    assert fresh.handle(Cancelled(2), 0.1) == []
    fresh.check()
    assert fresh.handle(done(again, 0.2), 0.2) == []
    assert (fresh.waiting, fresh.wake_at()) == (0, None)
    (alone,) = fresh.handle(Arrived(ask(3)), 0.3)
    assert alone.requests == (3,)
