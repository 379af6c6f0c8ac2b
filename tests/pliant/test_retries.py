"""A bad request fails alone: requests of a launch that failed run again apart, and all but the bad ones are answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.protocol import Answer, Drop, Failed, Finished, Journal, Launch, Request, replay
from pliant.retries import Retries
from pliant.tokens.policies import POLICIES
from tests.fixtures.bins import loads as bins
from tests.fixtures.cascade import loads as cascade
from tests.fixtures.tokens import loads as tokens

Execute = Callable[[Launch], tuple[float, Finished | Failed]]
AMPLE = 1000.0  # seconds until the deadline
COUNT = 40
some = st.sets(st.integers(0, COUNT - 1), max_size=6)


class Poisoned:
    """A world of one of the systems in which every launch with a bad request fails."""

    def __init__(self, world, bad: set[int], lost: bool) -> None:
        self._world, self._bad, self._lost = world, bad, lost
        self.failures: list[int] = []  # sizes of the launches that failed

    def over(self, *known) -> Execute:
        execute = self._world.over(*known)

        def poisoned(launch: Launch) -> tuple[float, Finished | Failed]:
            seconds, end = execute(launch)
            if self._bad & set(launch.requests):
                self.failures.append(len(launch.requests))
                return seconds, Failed(launch.id, "poison", self._lost)
            return seconds, end

        return poisoned

    def __getattr__(self, name: str):
        return getattr(self._world, name)


def patient(requests: list[Request]) -> list[Request]:
    """As many requests as all systems get, all at once but for the first, with much time."""
    return [replace(r, arrival=r.id * 1e-6, deadline=AMPLE) for r in requests[:COUNT]]


def of_tokens(bad: set[int], lost: bool, policy: str = "default", workers: int = 1) -> tuple[Journal, Poisoned]:
    world = Poisoned(tokens.World(), bad, lost)
    load = patient(tokens.bursty(1, 0.2))
    journal, _ = tokens.run(load, world, workers, policy)
    assert replay(tokens.scheduler(policy, workers), journal) == journal
    return journal, world


def of_bins(bad: set[int], lost: bool, placement: str = "shared") -> tuple[Journal, Poisoned]:
    world = Poisoned(bins.World(), bad, lost)
    load = patient(bins.bursty(1, 0.05))
    journal, _ = bins.run(load, bins.known(placement, 1, (1, 4)), world, workers=2)
    return journal, world


def of_cascade(bad: set[int], lost: bool) -> tuple[Journal, Poisoned]:
    load = cascade.bursty(1, 0.2)
    load = replace(load, requests=patient(load.requests), rows=load.rows[:COUNT])
    world = Poisoned(cascade.World(), bad, lost)
    journal, _ = cascade.run(load, world, 2)
    return journal, world


def check_isolated(journal: Journal, bad: set[int]) -> None:
    actions = [action for entry in journal for action in entry.actions]
    assert {action.request for action in actions if isinstance(action, Answer)} == set(range(COUNT)) - bad
    assert {action.request: action.reason for action in actions if isinstance(action, Drop)} == dict.fromkeys(
        bad, "failed"
    )


@given(some, st.booleans(), st.sampled_from(sorted(POLICIES)), st.sampled_from([1, 3]))
def test_under_any_policy_of_tokens_only_the_bad_requests_fail(bad, lost, policy, workers):
    journal, _ = of_tokens(bad, lost, policy, workers)
    check_isolated(journal, bad)


@given(some, st.booleans(), st.sampled_from(["shared", "single"]))
def test_under_any_placement_of_bins_only_the_bad_requests_fail(bad, lost, placement):
    journal, _ = of_bins(bad, lost, placement)
    check_isolated(journal, bad)


@given(some, st.booleans())
def test_in_a_cascade_only_the_bad_requests_fail(bad, lost):
    journal, _ = of_cascade(bad, lost)
    check_isolated(journal, bad)


@pytest.mark.parametrize("run", [of_tokens, of_bins, of_cascade])
def test_a_bad_request_that_kills_its_device_costs_two_devices(run):
    _, world = run({17}, lost=True)
    assert len(world.failures) == 2
    assert world.failures[1] == 1


@pytest.mark.parametrize("run", [of_tokens, of_cascade])
def test_where_the_device_lives_the_others_keep_their_batches(run):
    journal, world = run({17}, lost=False)
    assert len(world.failures) > 2, "by halves"
    sizes = [len(a.requests) for e in journal for a in e.actions if isinstance(a, Launch) and a.kind == "run"]
    assert len(sizes) < COUNT, "not one by one"
    assert not [a for e in journal for a in e.actions if isinstance(a, Launch) and a.kind == "restart"]


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
