"""Any load in every system: several tenants, clients that leave, launches that fail, and requests that make them fail.

The books of each system's loads (tests/fixtures) check every decision, and call `check()` after every event: each request
has one fate, and no action names one whose client has left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.bins.scheduler import BinsScheduler
from pliant.devices import Retries
from pliant.protocol import Answer, Arrived, Drop, Failed, Journal, Launch, Request, replay
from pliant.tokens.policies import POLICIES
from tests.fixtures.bins import loads as bins
from tests.fixtures.cascade import loads as cascade
from tests.fixtures.tokens import loads as tokens

COUNT = 40  # requests of a load with bad ones
NAMES, WEIGHTS = ("", "ann", "ben", "cleo"), {"": 1.0, "ann": 1.0, "ben": 2.0, "cleo": 4.0}
seeds, failing = st.integers(0, 10_000), st.sampled_from([0.0, 0.3])


class Poisoned:
    """A world of one of the systems in which every launch with a bad request fails."""

    def __init__(self, world, bad: set[int], lost: bool) -> None:
        self._world, self._bad, self._lost = world, bad, lost
        self.failures: list[int] = []  # sizes of the launches that failed

    def over(self, *known):
        execute = self._world.over(*known)

        def poisoned(launch: Launch):
            seconds, end = execute(launch)
            if self._bad & set(launch.requests):
                self.failures.append(len(launch.requests))
                end = Failed(launch.id, "poison", self._lost)
            return seconds, end

        return poisoned

    def __getattr__(self, name: str):
        return getattr(self._world, name)


@dataclass(frozen=True)
class Case:
    """A load, its world (from its fields), and what runs it, or some of its requests, and replays the journal."""

    load: list[Request]
    world: Callable[..., object]
    run: Callable[..., Journal]


def of_tokens(seed: int, policy: str = "default", workers: int = 1) -> Case:
    def run(load, world, leaving=(), **options):
        journal, _ = tokens.run(load, world, workers, policy, leaving=leaving, **options)
        assert replay(tokens.scheduler(policy, workers, **options), journal) == journal
        return journal

    return Case(tokens.bursty(seed, 0.15), tokens.World, run)


def of_bins(seed: int, placement: str = "shared", drop_late: bool = True) -> Case:
    knowledge = bins.known(placement, 2, (1, 4))

    def run(load, world, leaving=(), **config):
        journal, books = bins.run(load, knowledge, world, leaving, workers=3, drop_late=drop_late, **config)
        assert replay(BinsScheduler(knowledge, books.config), journal) == journal
        return journal

    return Case(bins.bursty(seed, 0.04, streams=2), bins.World, run)


def of_cascade(seed: int, own: bool = False) -> Case:
    whole = cascade.bursty(seed, 0.08)

    def run(load, world, leaving=(), **options):
        rows = replace(whole, requests=load, rows=whole.rows[: len(load)])
        journal, _ = cascade.run(rows, world, 3, own, leaving=leaving, **options)
        assert replay(cascade.scheduler(cascade.known(3, own), 3, **options), journal) == journal
        return journal

    return Case(whole.requests, cascade.World, run)


CASES = {
    "tokens": st.builds(of_tokens, seeds, st.sampled_from(sorted(POLICIES)), st.sampled_from([1, 3])),
    "bins": st.builds(of_bins, seeds, st.sampled_from(["shared", "single"]), st.booleans()),
    "cascade": st.builds(of_cascade, seeds, st.booleans()),
}
every_system = pytest.mark.parametrize("system", CASES)


def shared_out(load: list[Request], rng: np.random.Generator) -> list[Request]:
    """The same requests, each of a tenant, one of whom says that its requests are worth a million times as much."""
    drawn = [str(rng.choice(NAMES)) for _ in load]
    return [
        replace(r, tenant=name, weight=WEIGHTS[name], utility=r.utility * (1e6 if name == "ann" else 1.0))
        for r, name in zip(load, drawn, strict=True)
    ]


def leaving(load: list[Request], rng: np.random.Generator) -> list[tuple[float, int]]:
    """A third of the clients leave within twice the time that they have, many of them soon, some after their answer."""
    chosen = [request for request in load if rng.random() < 1 / 3]
    return [(r.arrival + 2 * rng.random() ** 4 * (r.deadline - r.arrival), r.id) for r in chosen]


@every_system
@settings(max_examples=30)
@given(data=st.data(), seed=seeds, share=failing, several=st.booleans())
def test_tenants_may_ask_and_clients_leave_at_any_time_and_the_journal_replays(system, data, seed, share, several):
    """Not both at once: a device may idle for a tenant that left and is expected back, which the books call a fault."""
    case, rng = data.draw(CASES[system]), np.random.default_rng(seed)
    world = case.world(seed=seed, failing=share, failing_restarts=share, jitter=0.3)
    if several:
        case.run(shared_out(case.load, rng), world, max_waiting=12)
    else:
        case.run(case.load, world, leaving(case.load, rng))


@every_system
@settings(max_examples=10)
@given(data=st.data(), share=failing)
def test_one_tenant_is_as_none(system, data, share):
    case = data.draw(CASES[system])

    def decided(**names) -> list:
        world = case.world(seed=1, failing=share, failing_restarts=share, jitter=0.3)
        journal = case.run([replace(request, **names) for request in case.load], world)
        return [
            (entry.now, None if isinstance(entry.event, Arrived) else entry.event, entry.actions) for entry in journal
        ]

    assert decided(tenant="ann", weight=3.0) == decided()


def poisoned(case: Case, bad: set[int], lost: bool) -> tuple[Journal, Poisoned]:
    """Run requests with much time, all at once but for the first. All but the bad ones are answered."""
    world = Poisoned(case.world(), bad, lost)
    journal = case.run([replace(r, arrival=r.id * 1e-6, deadline=1000.0) for r in case.load[:COUNT]], world)
    actions = [action for entry in journal for action in entry.actions]
    assert {action.request for action in actions if isinstance(action, Answer)} == set(range(COUNT)) - bad
    drops = {action.request: action.reason for action in actions if isinstance(action, Drop)}
    assert drops == dict.fromkeys(bad, "failed")
    return journal, world


@every_system
@settings(max_examples=20)
@given(data=st.data(), bad=st.sets(st.integers(0, COUNT - 1), max_size=6), lost=st.booleans())
def test_only_bad_requests_fail(system, data, bad, lost):
    poisoned(data.draw(CASES[system]), bad, lost)


@pytest.mark.parametrize("make", [of_tokens, of_bins, of_cascade])
def test_a_bad_request_that_kills_its_device_costs_two_devices(make):
    _, world = poisoned(make(1), {17}, lost=True)
    assert len(world.failures) == 2 and world.failures[1] == 1


@pytest.mark.parametrize("make", [of_tokens, of_cascade])
def test_where_the_device_lives_the_others_keep_their_batches(make):
    journal, world = poisoned(make(1), {17}, lost=False)
    assert len(world.failures) > 2, "by halves"
    launches = [action for entry in journal for action in entry.actions if isinstance(action, Launch)]
    assert {launch.kind for launch in launches} == {"run"} and len(launches) < COUNT, "not one by one"


def test_a_request_of_a_batch_whose_other_client_left_is_not_taken_for_the_bad_one():
    retries = Retries(attempts=1)
    assert retries.failed([4], alone=False, lost=False) == []
    assert 4 in retries
    assert retries.failed([4], alone=True, lost=False) == [4]
    assert 4 not in retries


def test_halves_are_halved_again_until_each_runs_alone_and_those_given_up_are_forgotten():
    retries = Retries(attempts=2)
    assert not retries
    assert retries.failed([1, 2, 3, 4, 5], alone=False, lost=False) == []
    assert retries and [retries.together([n, *range(1, 6)])[-1] for n in (1, 3, 5)] == [2, 4, 5]
    assert retries.failed([1, 2], alone=False, lost=False) == []
    assert (retries.together([1, 2]), retries.together([2, 1])) == ([1], [2])
    assert retries.failed([2], alone=True, lost=False) == [2]
    assert 2 not in retries and 1 in retries
    retries.check({1, 3, 4, 5})
    for request in (1, 3, 4, 5, 99):
        retries.forget(request)
    assert not retries and retries.together([7, 1]) == [7, 1]
    retries.check(set())


def test_who_has_attempts_left_runs_again_alone():
    retries = Retries(attempts=3)
    assert [retries.failed([1], alone=True, lost=True) for _ in range(3)] == [[], [], [1]]
    assert not retries
