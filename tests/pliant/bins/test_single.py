"""Placement "single": swaps at a plan, devices that fail while they swap, and capacity after one is lost for good."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.bins.knowledge import PLANS, Config, Knowledge
from pliant.bins.single import SinglePool
from pliant.devices import Devices, Retries
from pliant.fairness import Fairness, FairnessConfig
from pliant.protocol import Answer, Arrived, Failed, Finished, Launch, Request, Woke
from tests.fixtures.bins.loads import LOAD, World, ask, bursty, done, known, launches, reasons, run, scheduler

PERIOD = 0.1
LONGEST = 3  # runtime of `mail`


# Swaps


def test_a_device_serves_what_it_has_before_it_loads_and_gets_nothing_meanwhile():
    fresh = scheduler(known(), workers=2, deployed=(3, 3), plan="published", period=PERIOD)
    first, second = (launches(fresh.handle(Arrived(ask(i, 0.09)), 0.09))[0] for i in range(2))
    for number in range(2, 4):  # one more for each
        assert fresh.handle(Arrived(ask(number, 0.09)), 0.09) == []
    assert fresh.handle(Woke(), PERIOD) == []  # worker 0 is to hold a shorter one, but has work
    _, rest = fresh.handle(done(first), PERIOD)
    assert rest == Launch(2, 0, (2,), LONGEST, expected=rest.expected)
    assert fresh.handle(Arrived(ask(4, PERIOD)), PERIOD) == []
    _, load = fresh.handle(done(rest), PERIOD)
    assert (load.worker, load.kind, load.requests) == (0, "load", ())
    assert load.setting < LONGEST
    _, more = fresh.handle(done(second), PERIOD)
    assert more.requests == (3,)
    assert [fresh.handle(done(more), PERIOD)[1].requests] == [(4,)]
    assert fresh.handle(Finished(load.id, LOAD), PERIOD + LOAD) == []
    (short,) = fresh.handle(Arrived(ask(5, 0.2)), 0.2)
    assert (short.worker, short.setting) == (0, load.setting)
    fresh.check()


# Devices that are lost


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("lost", range(4))
def test_capacity_is_planned_again_within_one_period_after_a_device_is_lost_for_good(lost, plan):
    """The last device holds the only longest runtime."""
    load = bursty(4, 0.9, (600,))
    world = World(lost={lost: (0.01, 1.0)})
    _, books = run(load, known(), world, workers=4, deployed=(0, 1, 2, 3), plan=plan, period=0.3, swaps=0.5)
    planned = 0.01 + 0.3 + 2 * LOAD
    ends = [counts for when, counts in books.counts if planned < when < 1.0]
    assert all(counts[LONGEST] and sum(counts) in (2, 3) for counts in ends)
    assert all(isinstance(books.fates[request.id], Answer) for request in load if request.arrival > planned)
    assert lost < LONGEST or reasons(books) > {""}


@pytest.mark.parametrize("plan", PLANS)
def test_who_has_no_device_is_planned_for_although_nobody_else_comes(plan):
    """Clients that all waited for a lost device's runtime once waited in vain: no arrivals, no plan."""
    fresh = scheduler(known(), workers=3, deployed=(0, 0, 3), plan=plan, period=PERIOD)
    for number in range(1, 200):
        for launch in fresh.handle(Arrived(ask(number, 0.05)), 0.05):
            running = [launch]
            while running:
                running = launches(fresh.handle(done(running[0]), 0.05))
    (long,) = fresh.handle(Arrived(ask(0, 0.099, length=500)), 0.099)
    assert fresh.handle(Woke(), PERIOD) == []  # planned: the devices hold the right ones
    fresh.handle(Failed(long.id, "planted"), PERIOD + 0.01)  # it is not up again
    assert fresh.wake_at() == pytest.approx(2 * PERIOD)
    (load,) = launches(fresh.handle(Woke(), 2 * PERIOD))
    assert (load.kind, load.setting) == ("load", LONGEST)
    after = launches(fresh.handle(Finished(load.id, LOAD), 2 * PERIOD + LOAD))
    assert [launch.requests for launch in after if launch.kind == "run"] == [(0,)]
    assert fresh.wake_at() == pytest.approx(3 * PERIOD)
    fresh.handle(Woke(), fresh.wake_at())
    assert fresh.wake_at() is None, "nobody wants another plan"
    fresh.check()


@settings(max_examples=20)
@given(
    st.integers(0, 1000),
    st.dictionaries(st.integers(0, 3), st.tuples(st.floats(0, 0.2), st.floats(0.2, 0.4)), max_size=4),
    st.sampled_from(PLANS),
    st.sampled_from([1, 2]),
)
def test_any_devices_may_be_lost_for_any_while(seed, lost, plan, streams):
    """With no device left, a plan was once made all the same, and the scheduler failed."""
    load = bursty(seed, 0.1, streams=streams)
    run(load, known(streams=streams), World(seed, lost=lost), workers=4, plan=plan, period=0.05, swaps=0.5)


PAUSE = 0.02  # seconds before the restart after a failed load


def about_to_swap():
    """Return a scheduler whose three devices hold the longest runtime and two are to swap, and the first load."""
    config = {"plan": "published", "period": PERIOD, "swaps": 0.1, "restart_pause": PAUSE}
    fresh = scheduler(known(), workers=3, deployed=(LONGEST,) * 3, **config)
    for number in range(40):
        at = number / 400
        for launch in launches(fresh.handle(Arrived(ask(number, at)), at)):
            fresh.handle(done(launch), at + 0.001)
    (load,) = fresh.handle(Woke(), PERIOD)
    assert load.kind == "load"
    return fresh, load


def test_a_device_that_fails_before_its_turn_runs_only_what_it_has_loaded():
    """Its swap came while it reloaded its runtime; it was then taken to hold the other one, which was not loaded."""
    fresh, first = about_to_swap()
    running = [launches(fresh.handle(Arrived(ask(100 + i, PERIOD)), PERIOD))[0] for i in range(2)]
    restarted: dict[int, Launch] = {}
    for launch in running:  # both others fail; it is the turn of one of these
        (restart, *_) = launches(fresh.handle(Failed(launch.id, "planted"), PERIOD))
        (reload,) = launches(fresh.handle(Finished(restart.id, 0.0), PERIOD))
        restarted[reload.worker] = reload
    held = {first.worker: first.setting, **{worker: load.setting for worker, load in restarted.items()}}
    for load in (first, *restarted.values()):
        for launch in launches(fresh.handle(Finished(load.id, LOAD), PERIOD + LOAD)):
            assert launch.kind == "run"
            assert held[launch.worker] == launch.setting
        fresh.check()
    ran = [launches(fresh.handle(Arrived(ask(i, 0.2, 400)), 0.2)) for i in range(200, 204)]
    assert all(held[launch.worker] == launch.setting for launches_at in ran for launch in launches_at)
    assert list(held.values()).count(LONGEST) == 1


# The pool by itself


def pool(held: tuple[int, ...], knowledge: Knowledge | None = None, **config) -> SinglePool:
    """Return a pool of devices that hold these runtimes."""
    settings = Config(**{"workers": len(held), "deployed": held, "margin": 0.0, "period": PERIOD, **config})
    devices: Devices[Request] = Devices(len(held), 1.0)
    return SinglePool(knowledge or known(), settings, devices, Fairness(settings.fairness), Retries(settings.attempts))


@pytest.mark.parametrize("runtimes", ["static", "dynamic"])
def test_a_launch_takes_those_that_came_first_and_their_longest_text_says_what_it_takes(runtimes):
    knowledge = known("single", batches=(1, 4), runtimes=runtimes)
    last = len(knowledge.runtimes) - 1
    books = pool((last,), knowledge, period=1e6)
    lengths = (300, 400, 300, 350, 300)
    for number, length in enumerate(lengths):
        books.add(ask(number, 0.0, length, within=9.0), 0.0)
    works = [books.take(0, 0.0), books.take(0, 0.0)]
    if runtimes == "dynamic":
        works.append(books.take(0, 0.0))
    sizes = {"static": [4, 1], "dynamic": [1, 2, 2]}[runtimes]
    assert [request.id for work in works for request in work.requests] == list(range(5))
    assert [len(work.requests) for work in works] == sizes
    for work in works:
        longest = max(request.length for request in work.requests)
        assert work[1:] == (*knowledge.runtimes[last].cost(longest, len(work.requests)), "run")
    assert books.waiting == 0
    books.check()


def test_in_a_queue_the_tenant_that_has_received_less_comes_first_and_each_keeps_its_order():
    config = FairnessConfig(burst=0.0, slack=0.0)
    fresh = scheduler(known(runtimes="longest"), fairness=config, deployed=(0,))

    def comes(number: int, tenant: str) -> list[Launch]:
        return launches(fresh.handle(Arrived(replace(ask(number, within=9.0), tenant=tenant)), 0.0))

    (launch,) = comes(0, "busy")
    assert [comes(number, tenant) for number, tenant in ((1, "busy"), (2, "busy"), (3, "calm"), (4, "calm"))] == [
        []
    ] * 4
    ran = []
    while launch:
        (launch,) = launches(fresh.handle(done(launch, launch.expected), 0.0)) or (None,)
        ran += launch.requests if launch else []
        fresh.check()
    assert ran == [1, 3, 2, 4]
