"""Placement "shared": which request comes first, which goes last, and how many run together."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.bins.knowledge import Knowledge
from pliant.fairness import FairnessConfig
from pliant.protocol import Arrived, Failed, Launch, Request, Woke
from tests.fixtures.bins.loads import ask, bursty, done, known, launches, run, scheduler

CLOSE = 1e-9


class Queue:
    """The waiting requests, from the journal alone; asserts that each launch takes the first one by a plain rule."""

    def __init__(self, knowledge: Knowledge, patience: float, workers: int) -> None:
        self._knowledge, self._patience, self._workers = knowledge, patience, workers
        self._requests: dict[int, Request] = {}
        self.waiting: dict[int, Request] = {}
        self.demoted: set[int] = set()

    def follow(self, journal) -> None:
        for entry in journal:
            if isinstance(entry.event, Arrived):
                request = entry.event.request
                self._requests[request.id] = self.waiting[request.id] = request
            for launch in launches(entry.actions):
                self._judge(launch, entry.now)
                for number in launch.requests:
                    del self.waiting[number]

    def _judge(self, launch: Launch, now: float) -> None:
        head, *others = [self._requests[number] for number in launch.requests]
        rest = [other for other in self.waiting.values() if other.id not in launch.requests]
        place = self._place(head, now)
        assert all(place <= self._place(other, now, CLOSE) for other in rest), "the first of all comes first"
        self.demoted |= {head.id} if place[0] else set()
        assert len(launch.requests) <= -(-len(self.waiting) // self._workers), "no more than the device's share"
        peers = [other for other in rest if self._class(other) == self._class(head)]
        for other in others:
            assert self._class(other) == self._class(head), "a launch holds texts of about one length"
            assert not self._place(other, now)[0], "who is late anyway joins nobody"
            assert all(self._place(other, now) <= self._place(peer, now, CLOSE) for peer in peers), "in their order"

    def _place(self, request: Request, now: float, slack: float = 0.0) -> tuple[bool, float]:
        """Return (whether it can no longer be in time, arrival + patience x seconds of its own work)."""
        seconds = self._knowledge.stream(request.task).cost(request.length)[1]
        late = now - CLOSE + slack >= request.deadline - seconds
        rough = 1e-3 if late and slack else slack  # places so far back in the queue are rounded
        return late, request.arrival + self._patience * seconds + rough

    def _class(self, request: Request) -> tuple[str, int]:
        classes = self._knowledge.stream(request.task).classes
        return request.task, next(length for length in classes if length >= request.length)


@settings(max_examples=30)
@given(
    st.integers(0, 1000),
    st.sampled_from([0.0, 10.0, 100.0, 1e4]),
    st.sampled_from([(1,), (1, 2, 8)]),
    st.integers(1, 2),
    st.integers(1, 3),
)
def test_each_launch_takes_who_comes_first_by_arrival_and_patience(seed, patience, batches, streams, workers):
    knowledge = known("shared", streams, batches)
    load = bursty(seed, 0.1, (300 * workers, 2000 * workers), streams)
    journal, _ = run(load, knowledge, workers=workers, patience=patience, drop_late=False)
    Queue(knowledge, patience, workers).follow(journal)


def test_a_failure_does_not_put_who_is_late_behind_the_others_that_are():
    """An entry of its first wait was once used at its second one, and it was put back twice."""
    fresh = scheduler(known("shared"), patience=0.0, drop_late=False, workers=2)
    first, second = (launches(fresh.handle(Arrived(ask(i, within=w)), 0.0))[0] for i, w in ((0, 0.05), (1, 1.0)))
    fresh.handle(Failed(first.id, "planted"), 0.01)
    fresh.handle(Arrived(ask(2, 0.011, within=0.039)), 0.011)
    while fresh.wake_at() is not None and fresh.wake_at() < 0.06:
        fresh.handle(Woke(), fresh.wake_at())
        fresh.check()
    (third,) = launches(fresh.handle(done(second), 0.06))
    assert third.requests == (0,)


# Batches


@pytest.mark.parametrize(("batches", "expected"), [((8,), (5, 1, 2)), ((1,), (5,))])
def test_others_fill_the_launch_of_a_tenant_whose_turn_it_is_only_where_it_takes_no_longer(batches, expected):
    config = FairnessConfig(burst=0.0, slack=0.0)
    fresh = scheduler(known("shared", batches=batches, runtimes="static"), patience=0.0, fairness=config)

    def comes(id: int, tenant: str, at: float, length: int = 20) -> list[Launch]:
        request = replace(ask(id, at, length, within=9.0), tenant=tenant)
        return launches(fresh.handle(Arrived(request), at))

    (first,) = comes(0, "b", 0.0)
    assert comes(3, "b", 0.01, 500) == comes(5, "a", 0.02) == []
    (long,) = launches(fresh.handle(done(first), 0.03))
    assert long.requests == (3,)  # now b has received more than a
    assert comes(1, "b", 0.015) == comes(2, "b", 0.016) == []
    (last,) = launches(fresh.handle(done(long), 0.05))
    assert last.requests == expected
    fresh.check()


# The pool by itself
