"""The bins scheduler in virtual time: the fates of requests under any load, failures, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pliant
from pliant.bins.dispatch import DISPATCHES
from pliant.bins.knowledge import PLANS, Config, Scaling, knowledge_of, latest_end
from pliant.bins.policies import POLICIES, make
from pliant.bins.scheduler import BinsScheduler
from pliant.bins.simulated import SimulatedBins
from pliant.errors import InputError
from pliant.fairness import FairnessConfig
from pliant.protocol import Arrived, Drop, Event, Failed, Finished, Journal, Launch, replay
from pliant.report import observations, summarise
from pliant.simulator import simulate
from tests.fixtures.bins.loads import World, ask, bursty, done, known, launches, run, scheduler
from tests.fixtures.bins.scenarios import bins, requests

PLIANT = str(Path(pliant.__file__).parent)


def lines(work: Callable[[], Any]) -> int:
    """Return how many lines of pliant's code `work` runs. A loop, also one in a comprehension, counts each of its turns."""
    count = 0

    def on_line(_frame: FrameType, event: str, _value: Any) -> Any:
        nonlocal count
        count += event == "line"
        return on_line

    def on_call(frame: FrameType, _event: str, _value: Any) -> Any:
        return on_line if frame.f_code.co_filename.startswith(PLIANT) else None

    former = sys.gettrace()
    sys.settrace(on_call)
    try:
        work()
    finally:
        sys.settrace(former)
    return count


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


@settings(max_examples=60)
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


# One request


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


def lines_each(journal: Journal, scheduler: BinsScheduler, kinds: tuple[type[Event], ...]) -> float:
    """Return the mean lines of Python of handling an event of these kinds and of asking when to wake, once under way."""
    counted = []
    for number, entry in enumerate(journal):
        took = lines(lambda: (scheduler.handle(entry.event, entry.now), scheduler.wake_at()))  # noqa: B023  used at once
        counted += [took] * (2 * number >= len(journal) and isinstance(entry.event, kinds))
    return sum(counted) / len(counted)


@pytest.mark.parametrize("placement", ["shared", "single"])
def test_an_event_costs_no_more_of_five_hundred_devices_than_of_eight(placement):
    """The load per device is the same; with the most devices hardly any work waits, so an event may well cost less."""
    costs: dict[int, list[float]] = {}
    for workers in (8, 512):
        load = bursty(0, 40 / (100 * workers), (80 * workers, 120 * workers))
        leaving = [(request.arrival + 0.001, request.id) for request in load[::9]]
        world, knowledge = World(3, failing=0.1, failing_restarts=0.2), known(placement)
        journal, books = run(load, knowledge, world, leaving, workers=workers, period=1e3)
        costs[workers] = [
            lines_each(journal, BinsScheduler(knowledge, books.config), kinds)
            for kinds in ((object,), (Finished,), (Failed,))
        ]
    assert all(many <= 1.5 * few for few, many in zip(costs[8], costs[512], strict=True)), costs


RATE = 1500.0  # more than twice the capacity of one device


def journal_of(policy: str, seed: int = 0):
    streams = [bins(placement="shared")]
    load = requests(np.random.default_rng(seed), 1200, RATE)
    return simulate(make(policy, streams, Config()), load, SimulatedBins(knowledge_of(streams), load))


@pytest.mark.parametrize("seed", range(3))
def test_first_come_serves_in_order_of_arrival_on_the_dynamic_runtime_alone(seed):
    """Exactly, but for those who are not expected to be in time any more: they are tried when nobody else waits."""
    journal, streams = journal_of("first-come", seed), [bins(placement="shared")]
    stream, margin = knowledge_of(streams, runtimes="dynamic").streams[0], Config().margin
    by_id = {entry.event.request.id: entry.event.request for entry in journal if isinstance(entry.event, Arrived)}
    begun = [(entry.now, action) for entry in journal for action in entry.actions if isinstance(action, Launch)]
    assert {launch.setting for _, launch in begun} == {len(streams[0].shapes) - 1}
    # A batch includes later texts of the same class, so only the first requests of launches must be in order.
    first = [(now, by_id[launch.requests[0]]) for now, launch in begun]
    hopeful = [each.id for now, each in first if now + stream.cost(each.length)[1] <= latest_end(each, margin)]
    assert hopeful == sorted(hopeful)
    assert len(hopeful) > 250
    ran = [number for _, launch in begun for number in launch.requests]
    assert len(ran) == len(set(ran))


def test_under_overload_the_default_misses_fewer_deadlines_and_both_drop_alike():
    reports = {policy: summarise(observations(journal_of(policy))) for policy in POLICIES}
    missed = {policy: 1 - report.attainment for policy, report in reports.items()}
    assert missed["default"] < 0.75 * missed["first-come"]
    assert all(set(report.drops) == {"late"} for report in reports.values())


# The reference load
