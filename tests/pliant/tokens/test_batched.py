"""Algorithm 1's queue and the policies over it: the arrival rate, dropping late requests, one fixed gamma."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.latency import LatencyTable
from pliant.protocol import Request
from pliant.tokens.artifact import RateRule
from pliant.tokens.batched import ArrivalRate, BatchedPolicy, BatchingConfig, FixedChooser, Queue
from pliant.tokens.scheduler import Knowledge, PoolState
from tests.fixtures.tokens.loads import ACCURACY, KNOWN, TABLE, ask


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=40).map(sorted), st.integers(0, 30), st.sampled_from([4, 8, 16])
)
def test_the_rate_counts_the_arrivals_of_the_window(eighths, later, window):
    rate = ArrivalRate(window / 8)
    for at in eighths:
        rate.add(at / 8)
    now = eighths[-1] + later
    assert rate.at(now / 8) == sum(now - window <= at <= now for at in eighths) / (window / 8)


def policy(gamma: int = 0, table: LatencyTable = TABLE, **batching) -> BatchedPolicy:
    known = Knowledge(table, {t: {g: s.get(g, 0.5) for g in table.settings} for t, s in ACCURACY.items()}, RULE)
    return BatchedPolicy(known, FixedChooser(gamma), BatchingConfig(**batching))


RULE = RateRule((), (0,))
ONE = PoolState(0, (0.0,))


def test_a_task_is_not_forgotten_while_a_request_waits_for_it():
    batched = policy()
    batched.add(ask(0, task="hard"), 0.0)
    known = batched._knowledge
    fewer = replace(known, accuracy={"easy": known.accuracy["easy"]})
    with pytest.raises(InputError, match="hard"):
        batched.learn(fewer)
    assert batched.decide(ONE, 0.0).run[0].id == 0
    batched.learn(fewer)


@pytest.mark.parametrize("slowdown", [1.0, 2.0])
def test_a_request_is_dropped_once_not_even_the_fastest_launch_of_it_alone_is_in_time(slowdown):
    uneven = LatencyTable((-5, 0), (1, 2), ((0.010, 0.030), (0.020, 0.050)))
    batched = policy(0, uneven)
    batched.add(ask(0, within=1.0), 0.0)
    latest = 1.0 - 0.010 * slowdown
    assert batched.wake_at(slowdown) == pytest.approx(latest)
    assert batched.expire(latest - 1e-6, slowdown) == []
    assert batched.expire(latest + 1e-6, slowdown) == [0]


def test_who_has_left_is_not_in_the_batch_and_a_gamma_that_is_no_more_is_refused():
    batched = policy(0)
    for i in (0, 1):
        batched.add(ask(i), 0.0)
    batched.cancel(0)
    with pytest.raises(InputError, match="setting is 0, but must be one of"):
        batched.learn(KNOWN.only((-10, 4)))
    assert [request.id for request in batched.decide(ONE, 0.0).run] == [1]
    assert (batched.wake_at(1.0), len(batched)) == (None, 0)


def waiting(number: int, at: float = 0.0, deadline: float = 1.0, utility: float = 1.0, task: str = "a") -> Request:
    return Request(number, at, deadline, task, utility)


def batches(*arriving: Request, **config) -> list[list[int]]:
    queue = Queue(BatchingConfig(**config))
    for request in arriving:
        queue.add(request)
        queue.check()
    return [list(batch.requests) for batch in queue.batches]


@pytest.mark.parametrize(
    ("arriving", "config", "expected"),
    [
        ((waiting(0), waiting(1, at=0.5), waiting(2, task="b")), {}, [[0, 1, 2]]),
        ((waiting(0), waiting(1, at=0.5), waiting(2, at=0.51, deadline=1.4)), {}, [[0, 1], [2]]),
        (tuple(waiting(i) for i in range(5)), {"max_batch": 2}, [[0, 1], [2, 3], [4]]),
        ((waiting(0), waiting(1, deadline=1.5), waiting(2, deadline=1.51)), {}, [[0, 1], [2]]),
        ((waiting(0, utility=0.2), waiting(1, utility=1.0), waiting(2, utility=1.1, deadline=1.2)), {}, [[0, 1], [2]]),
        ((waiting(0), waiting(1, deadline=1.8), waiting(2, deadline=1.4)), {}, [[0], [1, 2]]),
        (
            (waiting(0), waiting(1, deadline=1.6), waiting(2, deadline=1.2), waiting(3, deadline=0.9)),
            {},
            [[0, 3], [1, 2]],
        ),
        (
            (waiting(0), waiting(1, deadline=0.5), waiting(2, deadline=0.49), waiting(3, deadline=1.5)),
            {},
            [[2], [0, 1, 3]],
        ),
        ((waiting(0, utility=1.0), waiting(1, utility=0.25), waiting(2, utility=0.125)), {}, [[0, 1], [2]]),
    ],
    ids=["alike", "window", "size", "deadline", "utility", "newest", "earliest first", "gap down", "utility down"],
)
def test_requests_share_the_newest_batch_that_fits_by_window_size_deadline_and_utility(arriving, config, expected):
    assert batches(*arriving, **config) == expected


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.floats(0, 3), st.floats(0, 2)),
        st.tuples(st.just("take"), st.integers(0, 3), st.none()),
        st.tuples(st.just("expire"), st.floats(0, 3), st.none()),
    ),
    max_size=40,
)


@given(steps)
def test_the_books_balance_after_any_sequence(steps):
    queue, alive = Queue(BatchingConfig(max_batch=3)), {}
    for i, (step, x, y) in enumerate(steps):
        match step:
            case "add":
                alive[i] = waiting(i, at=i / 50, deadline=x, utility=y)
                queue.add(alive[i])
            case "take" if len(queue.batches) > x:
                for request in queue.take(queue.batches[x]):
                    assert alive.pop(request.id) == request
            case "expire":
                expired = queue.expire(lambda deadline, x=x: deadline <= x)
                assert sorted(expired) == sorted(i for i in alive if alive[i].deadline <= x)
                for request in expired:
                    del alive[request]
        queue.check()
        assert set(queue.ids()) == set(alive)
        assert queue.first_deadline() == min((r.deadline for r in alive.values()), default=None)


def test_gaps_are_measured_from_the_opener_even_when_it_has_left():
    """The paper compares with the batch's first request; a batch must not drift away from it."""
    queue = Queue(BatchingConfig())
    queue.add(waiting(0, deadline=1.0))
    queue.add(waiting(1, deadline=1.4))
    queue.expire(lambda deadline: deadline <= 1.0)
    queue.add(waiting(2, deadline=1.6))
    assert [list(batch.requests) for batch in queue.batches] == [[1], [2]]
