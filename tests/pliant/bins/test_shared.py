"""Placement "shared": which request comes first, which goes last, and how many run together."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.bins.knowledge import Config, Knowledge
from pliant.bins.shared import SharedPool
from pliant.bins.work import Work
from pliant.devices import Devices
from pliant.fairness import Fairness, FairnessConfig
from pliant.protocol import Arrived, Failed, Launch, Request, Woke
from pliant.retries import Retries
from tests.fixtures.bins.loads import SLOS, ask, bursty, done, known, launches, run, scheduler

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


def order(patience: float, asks) -> list[int]:
    """Return the ids in the order in which one device runs them; all but the first wait for it."""
    fresh = scheduler(known("shared", runtimes="static"), patience=patience, drop_late=False)
    now, ran = 0.0, []
    (launch,) = fresh.handle(Arrived(ask(0, within=9.0)), now)
    for request in asks:
        now = max(now, request.arrival)
        assert fresh.handle(Arrived(request), now) == []
    while True:
        now += 0.001
        more = launches(fresh.handle(done(launch), now))
        if not more:
            return ran
        (launch,) = more
        ran += launch.requests


def test_without_patience_it_is_first_come_first_served_and_with_much_the_shortest_come_first():
    asks = [ask(1, 0.001, 500, within=9.0), ask(2, 0.002, 200, within=9.0), ask(3, 0.003, 20, within=9.0)]
    assert order(0.0, asks) == [1, 2, 3]
    assert order(1e6, asks) == [3, 2, 1]


def test_nobody_is_overtaken_by_who_came_later_than_its_patience_lasts():
    (stream,) = known("shared", runtimes="static").streams
    long, short = stream.cost(500)[1], stream.cost(20)[1]
    overtakes = 100 * (long - short)
    asks = [ask(1, 0.0, 500, within=9.0), ask(2, overtakes * 0.99, within=9.0), ask(3, overtakes * 1.01, within=9.0)]
    assert order(100.0, asks) == [2, 1, 3]


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


def sizes(rate: float, batches: tuple[int, ...], workers: int = 1) -> list[int]:
    _, books = run(bursty(3, 0.5, (rate,)), known("shared", batches=batches, runtimes="static"), workers=workers)
    return [len(launch.requests) for launch in books.launches.values() if launch.kind == "run"]


def test_what_waits_is_shared_among_the_devices():
    fresh = scheduler(known("shared", batches=(1, 2, 4, 8)), workers=4)
    (first, *_) = [launches(fresh.handle(Arrived(ask(i)), 0.0))[0] for i in range(4)]
    for number in range(4, 12):
        fresh.handle(Arrived(ask(number)), 0.0)
    _, more = fresh.handle(done(first), 0.001)
    assert len(more.requests) == 2


@pytest.mark.parametrize("batches", [(1, 2, 8), ()])
def test_texts_run_together_only_in_a_shape_that_takes_all_of_them(batches):
    """Long texts have smaller batches than short ones; the largest batch of any length was once tried, and failed."""
    load = [ask(i, 0.0, 20 if i % 2 else 400, within=9.0) for i in range(40)]
    _, books = run(load, known("shared", batches=batches, runtimes="static"))
    sizes = {400: 0, 20: 0}
    for launch in books.launches.values():
        length = max(load[number].length for number in launch.requests)
        sizes[length] = max(sizes[length], len(launch.requests))
    assert sizes[20] == 8
    assert sizes[400] == (1 if not batches else max(sizes[400], 1))


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


def pool(workers: int = 2, knowledge: Knowledge | None = None, **config) -> tuple[SharedPool, Devices[Request]]:
    settings = Config(**{"workers": workers, "margin": 0.0, "patience": 0.0, **config})
    devices: Devices[Request] = Devices(workers, 1.0)
    retries = Retries(settings.attempts)
    return SharedPool(knowledge or KNOWN, settings, devices, Fairness(settings.fairness), retries), devices


KNOWN = known("shared", runtimes="static")


def numbers(work: Work | None) -> list[int]:
    return [request.id for request in work.requests] if work else []


def put(books: SharedPool, *requests: Request) -> list[int | None]:
    """Let these requests arrive, and return for which free worker each is."""
    for request in requests:
        books._fairness.join(request.id, request.tenant, request.weight)
    workers = [books.add(request, request.arrival) for request in requests]
    books.check()
    return workers


def test_who_comes_goes_to_the_first_free_device_in_use():
    books, devices = pool(3)
    assert (list(books.lost(0, 0.0)), books.woken(0.0), books.ended(1, "run", 1, 0.0)) == ([], [], [1])
    devices.launch(0, (), 0.1, 0.0)
    assert books.retire([0, 1]) == 1
    assert put(books, ask(0)) == [2]
    assert next(iter(books.lost(0, 0.0))) == 2, "it may take what waits"
    devices.launch(2, (), 0.1, 0.0)
    assert put(books, ask(1)) == [None], "the only free one is not in use"
    assert books.take(1, 0.0) is None
    assert numbers(books.take(2, 0.0)) == [0]
    assert books.enlist(1) == [1]
    assert books.take(1, 0.0) == Work((ask(1),), *KNOWN.streams[0].cost(20))
    assert (books.take(0, 0.0), books.waiting) == (None, 0)


def test_where_late_ones_are_served_they_are_counted_until_they_run_or_leave():
    books, _ = pool(1, drop_late=False)
    seconds = KNOWN.streams[0].cost(20)[1]
    put(books, ask(0), ask(1), ask(2, 0.001), ask(3, within=9.0))
    at = SLOS["mail"] - seconds
    assert books.wake_at() == pytest.approx(at)
    assert books.expire(at - 1e-6) == [] and books.late == 0
    assert books.expire(books.wake_at()) == [] and (books.late, books.waiting) == (2, 4)
    books.check()
    assert books.wake_at() == pytest.approx(at + 0.001)
    books.expire(books.wake_at())
    assert (books.late, sorted(books.ids())) == (3, [0, 1, 2, 3])
    books.check()
    books.cancel(1)
    assert books.late == 2
    assert [numbers(books.take(0, 0.2)) for _ in range(4)] == [[3], [0], [2], []]
    assert (books.late, books.waiting) == (0, 0)
    assert books.wake_at() is None
    books.check()


def test_with_tenants_a_launch_holds_their_first_texts_of_one_length_and_leaves_late_ones_out():
    knowledge = known("shared", batches=(1, 2, 4), runtimes="static")
    books, _ = pool(1, knowledge, drop_late=False, fairness=FairnessConfig(burst=0.0, slack=9.0))
    texts = [ask(0, 0.0, 20, within=0.01), ask(1, 0.001, 20), ask(2, 0.002, 20), ask(3, 0.003, 500), ask(4, 0.004, 20)]
    put(books, *(replace(text, tenant="ab"[text.id % 2]) for text in texts))
    books.expire(0.02)
    assert books.late == 1
    books.check()
    ran = []
    while work := books.take(0, 0.02):
        for request in work.requests:
            books._fairness.leave(request.id)
        ran.append(numbers(work))
        books.check()
    assert ran == [[1, 2], [3], [4], [0]]
