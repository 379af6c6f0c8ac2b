"""The bins scheduler in virtual time: the fates of requests under any load, failures, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.bins.dispatch import DISPATCHES
from pliant.bins.knowledge import PLANS, Scaling
from pliant.bins.scheduler import BinsScheduler
from pliant.errors import InputError
from pliant.fairness import FairnessConfig
from pliant.protocol import Answer, Arrived, Cancelled, Drop, Failed, Launch, Woke, replay
from tests.fixtures.bins.loads import SLOS, World, ask, bursty, done, known, launches, run, scheduler

ROUGH = World(9, failing=0.2, failing_restarts=0.3, failing_loads=0.3, jitter=0.3)
SCALING = Scaling(pause=0.03, window=0.06, high=0.6, low=0.4)
PLACEMENTS = pytest.mark.parametrize("placement", ["shared", "single"])

# A whole load

worlds = st.builds(
    World,
    seed=st.integers(0, 10_000),
    slow=st.sampled_from([0.5, 1.0, 3.0]),
    failing=st.sampled_from([0.0, 0.05, 0.3]),
    failing_restarts=st.sampled_from([0.0, 0.4]),
    failing_loads=st.sampled_from([0.0, 0.4]),
    jitter=st.sampled_from([0.0, 0.4]),
)
configs = st.fixed_dictionaries(
    {
        "workers": st.sampled_from([2, 3, 7]),
        "dispatch": st.sampled_from(DISPATCHES),
        "plan": st.sampled_from(PLANS),
        "swaps": st.sampled_from([0.1, 0.5]),
        "margin": st.sampled_from([0.0, 0.15]),
        "max_waiting": st.sampled_from([5, 2048]),
        "drop_late": st.booleans(),
        "patience": st.sampled_from([None, 0.0, 1e3]),
        "attempts": st.sampled_from([1, 2, 3]),
        "period": st.sampled_from([0.05, 0.2]),
        "scaling": st.sampled_from([None, SCALING]),
    }
)


@settings(max_examples=120)
@given(
    worlds, configs, st.sampled_from(["shared", "single"]), st.sampled_from([1, 2]),
    st.sampled_from([(1,), (1, 2, 8), (4,), ()]), st.sampled_from(["all", "static", "longest", "dynamic"]),
)  # fmt: skip
def test_any_load_and_world_keep_the_books_and_come_to_an_end(world, config, placement, streams, batches, runtimes):
    """See `Books`. `simulate` refuses a scheduler that asks for a wake-up that is not later.

    A replay does not call `wake_at`, which once changed decisions: it removed entries that later events needed.
    """
    load, knowledge = bursty(world.seed, 0.05, streams=streams), known(placement, streams, batches, runtimes)
    journal, books = run(load, knowledge, world, **config)
    assert config["scaling"] or books.most_loading <= max(1, int(config["swaps"] * config["workers"]))
    assert replay(BinsScheduler(knowledge, books.config), journal) == journal


@PLACEMENTS
def test_a_load_gives_the_same_journal_again(placement):
    knowledge, load = known(placement, 2, (1, 4)), bursty(3, streams=2)
    journal, books = run(load, knowledge, ROUGH, workers=4)
    assert run(load, knowledge, ROUGH, workers=4)[0] == journal
    kinds = {launch.kind for launch in books.launches.values()}
    assert kinds == {"run", "restart", *(["load"] if placement == "single" else [])}


# One request

DYNAMIC = 4  # the setting: faster than a static runtime of 64 tokens for very short texts


@pytest.mark.parametrize(("length", "setting"), [(0, DYNAMIC), (16, DYNAMIC), (64, 0), (65, 1), (512, 3)])
def test_a_request_runs_at_once_in_the_fastest_runtime_that_takes_it(length, setting):
    fresh = scheduler(known("shared"))
    (launch,) = fresh.handle(Arrived(ask(7, length=length)), 0.0)
    assert launch == Launch(0, 0, (7,), setting, expected=launch.expected)
    assert launch.expected > 0
    assert fresh.handle(done(launch), 0.001) == [Answer(7, 0)]


def test_the_margin_is_kept_for_the_way_back():
    fresh = scheduler(known("shared"), margin=0.5)
    fresh.handle(Arrived(ask(0)), 0.0)
    fresh.handle(Arrived(ask(1, length=512)), 0.0)
    assert fresh.wake_at() == pytest.approx(SLOS["mail"] / 2 - known("shared").streams[0].cost(512)[1])


@PLACEMENTS
def test_who_cannot_be_in_time_by_the_profile_is_dropped_as_it_comes_where_the_device_has_other_work(placement):
    late = ask(7, length=512, within=0.001)
    fresh = scheduler(known(placement))
    fresh.handle(Arrived(ask(0, length=512)), 0.0)
    assert fresh.handle(Arrived(late), 0.0) == [Drop(7, "late")]
    served = scheduler(known(placement), drop_late=False)
    served.handle(Arrived(ask(0, length=512)), 0.0)
    assert served.handle(Arrived(late), 0.0) == []


@PLACEMENTS
def test_an_idle_device_refuses_nothing_as_only_a_launch_can_show_that_the_profile_is_wrong(placement):
    fresh, answered = scheduler(known(placement)), 0
    for number in range(20):
        now = float(number)
        (launch,) = fresh.handle(Arrived(ask(number, now, length=512, within=0.001)), now)
        answered += fresh.handle(done(launch, 0.0005), now + 0.0005) == [Answer(number, launch.id)]
        fresh.check()
    assert answered == 20


def test_who_waits_hopelessly_is_tried_where_nothing_else_is_left_to_do():
    fresh = scheduler(known("shared"))
    (launch,) = fresh.handle(Arrived(ask(0)), 0.0)
    seconds = known("shared").streams[0].cost(512)[1]
    fresh.handle(Arrived(ask(1, length=512, within=1.5 * seconds)), 0.0)
    now = 0.9 * seconds
    answer, tried = fresh.handle(done(launch, now), now)
    assert (answer, tried.requests) == (Answer(0, 0), (1,))
    fresh.check()


@PLACEMENTS
def test_a_device_that_was_slow_for_a_while_is_not_taken_for_slow_for_ever(placement):
    """Every request was once dropped by the slowdown that had been learnt, and as nothing ran, nothing else was learnt."""
    fresh = scheduler(known(placement, 2, runtimes="static"), deployed=(3, 5), workers=2)
    for number in range(60):
        (launch,) = fresh.handle(Arrived(ask(number, number, 128, "chat")), number)
        fresh.handle(done(launch, 0.02), number + 0.3)
    assert launches(fresh.handle(Arrived(ask(100, 100, 128, "chat")), 100.0))


@pytest.mark.parametrize("wrong", [{"task": "chat"}, {"length": 513}, {"length": -1}])
@PLACEMENTS
def test_a_request_for_what_is_not_served_is_refused_and_changes_nothing(placement, wrong):
    fresh = scheduler(known(placement))
    with pytest.raises(InputError, match="task and length"):
        fresh.handle(Arrived(ask(1, **wrong)), 0.0)
    assert fresh.waiting == 0


# Failures


@PLACEMENTS
def test_what_a_failed_device_ran_runs_on_another_and_is_then_given_up(placement):
    fresh = scheduler(known(placement), workers=2, deployed=(3, 3))
    (launch,) = fresh.handle(Arrived(ask(7)), 0.0)
    restart, again = fresh.handle(Failed(launch.id, "planted"), 0.01)
    assert (restart.kind, restart.worker, again.requests) == ("restart", launch.worker, (7,))
    assert again.worker != launch.worker
    assert Drop(7, "failed") in fresh.handle(Failed(again.id, "planted"), 0.02)


def test_without_time_for_another_attempt_the_reason_is_the_failure():
    fresh = scheduler(known("shared"), workers=2)
    (launch,) = fresh.handle(Arrived(ask(7)), 0.0)
    drop, _ = fresh.handle(Failed(launch.id, "planted"), SLOS["mail"])
    assert drop == Drop(7, "failed")
    assert fresh.waiting == 0


def test_what_a_failed_launch_held_goes_to_every_device_that_idles():
    """All its requests once went to the first idle device, and what that did not take waited although others idled."""
    fresh = scheduler(known("shared", batches=(1, 2)), workers=3)
    held = [launches(fresh.handle(Arrived(ask(i)), 0.0))[0] for i in range(3)]
    for number in range(3, 9):
        fresh.handle(Arrived(ask(number)), 0.0)
    (pair,) = launches(fresh.handle(done(held[0]), 0.001))
    assert len(pair.requests) == 2
    running = [pair, held[1], held[2]]
    while len(running) > 1:  # the others serve all the rest
        running += launches(fresh.handle(done(running.pop()), 0.002))
    assert fresh.waiting == 0
    _, *more = fresh.handle(Failed(pair.id, "planted"), 0.003)
    assert sorted(launch.requests for launch in more) == [(request,) for request in sorted(pair.requests)]


# What is counted


@PLACEMENTS
def test_as_many_wait_as_each_worker_may_have_waiting_and_no_more(placement):
    fresh = scheduler(known(placement), workers=2, deployed=(3, 3), max_waiting=2, drop_late=False)
    actions = [fresh.handle(Arrived(ask(number)), 0.0) for number in range(8)]
    assert [len(launches(each)) for each in actions] == [1, 1, 0, 0, 0, 0, 0, 0]
    assert actions[2:] == [[], [], [], [], [Drop(6, "full")], [Drop(7, "full")]]
    assert (fresh.waiting, fresh.active) == (4, 2)


@PLACEMENTS
def test_a_client_that_leaves_waits_no_more_and_one_whose_launch_runs_gets_nothing(placement):
    fresh = scheduler(known(placement), deployed=(3,))
    (first,) = fresh.handle(Arrived(ask(0)), 0.0)
    for number in (1, 2):
        assert fresh.handle(Arrived(ask(number)), 0.0) == []
    assert fresh.handle(Cancelled(1), 0.001) == fresh.handle(Cancelled(0), 0.001) == []
    assert fresh.waiting == 1
    fresh.check()
    (second,) = fresh.handle(done(first), 0.002)
    assert second.requests == (2,)
    fresh.check()


def test_a_full_house_makes_room_for_a_tenant_with_less_by_dropping_the_newest_of_the_one_with_most():
    fresh = scheduler(known("shared"), max_waiting=3, drop_late=False, fairness=FairnessConfig(burst=0.0, slack=0.0))

    def comes(number: int, tenant: str, **asked) -> list:
        return fresh.handle(Arrived(replace(ask(number, within=9.0, **asked), tenant=tenant)), 0.0)

    (first,) = comes(0, "many")
    assert [comes(number, "many") for number in (1, 2, 3, 4)] == [[], [], [], [Drop(4, "full")]]
    assert comes(5, "few") == [Drop(3, "full")]
    fresh.check()
    assert comes(6, "few") == [Drop(6, "full")], "it would have as many"
    assert fresh.waiting == 3
    (second,) = launches(fresh.handle(done(first), 0.01))
    (third,) = launches(fresh.handle(done(second), 0.02))
    assert (second.requests, third.requests) == ((1, 2), (5,))


def test_who_is_dropped_counts_for_the_scaling_and_brings_a_spare_device_back():
    rule = Scaling(min_devices=1, window=1.0, pause=0.5)
    fresh = scheduler(known("shared"), workers=2, scaling=rule)
    for at in (0.0, 0.6, 1.2):
        (launch,) = fresh.handle(Arrived(ask(int(10 * at), at)), at)
        fresh.handle(done(launch), at + 0.001)
        fresh.handle(Woke(), at + 0.001)
    assert fresh.active == 1
    (launch,) = fresh.handle(Arrived(ask(19, 1.3)), 1.3)
    assert fresh.handle(Arrived(ask(20, 1.3, within=1e-6)), 1.3) == [Drop(20, "late")]
    fresh.handle(done(launch), 1.301)
    assert fresh.handle(Woke(), fresh.wake_at()) == []
    assert fresh.active == 2
    assert {launches(fresh.handle(Arrived(ask(i, 2.0)), 2.0))[0].worker for i in (30, 31)} == {0, 1}
