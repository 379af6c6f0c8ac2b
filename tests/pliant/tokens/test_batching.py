"""Algorithm 1: which waiting requests share a batch, and that the queue stays consistent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.protocol import Request
from pliant.tokens.batching import BatchingConfig, Queue


def ask(number: int, at: float = 0.0, deadline: float = 1.0, utility: float = 1.0, task: str = "a") -> Request:
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
        ((ask(0), ask(1, at=0.5), ask(2, task="b")), {}, [[0, 1, 2]]),
        ((ask(0), ask(1, at=0.5), ask(2, at=0.51, deadline=1.4)), {}, [[0, 1], [2]]),
        (tuple(ask(i) for i in range(5)), {"max_batch": 2}, [[0, 1], [2, 3], [4]]),
        ((ask(0), ask(1, deadline=1.5), ask(2, deadline=1.51)), {}, [[0, 1], [2]]),
        ((ask(0, utility=0.2), ask(1, utility=1.0), ask(2, utility=1.1, deadline=1.2)), {}, [[0, 1], [2]]),
        ((ask(0), ask(1, deadline=1.8), ask(2, deadline=1.4)), {}, [[0], [1, 2]]),
        ((ask(0), ask(1, deadline=1.6), ask(2, deadline=1.2), ask(3, deadline=0.9)), {}, [[0, 3], [1, 2]]),
        ((ask(0), ask(1, deadline=0.5), ask(2, deadline=0.49), ask(3, deadline=1.5)), {}, [[2], [0, 1, 3]]),
        ((ask(0, utility=1.0), ask(1, utility=0.25), ask(2, utility=0.125)), {}, [[0, 1], [2]]),
    ],
    ids=["alike", "window", "size", "deadline", "utility", "newest", "earliest first", "gap down", "utility down"],
)
def test_requests_share_the_newest_batch_that_fits_by_window_size_deadline_and_utility(arriving, config, expected):
    assert batches(*arriving, **config) == expected


def test_expiry_removes_the_hopeless_by_deadline_and_leaves_the_rest():
    queue = Queue(BatchingConfig(deadline_gap=9))
    for i, deadline in enumerate([3.0, 1.0, 2.0, 4.0]):
        queue.add(ask(i, deadline=deadline))
    assert queue.expire(lambda deadline: deadline <= 2.0) == [1, 2]
    assert queue.first_deadline() == 3.0
    assert [batch.earliest for batch in queue.batches] == [3.0]
    queue.check()


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
                alive[i] = ask(i, at=i / 50, deadline=x, utility=y)
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
    queue.add(ask(0, deadline=1.0))
    queue.add(ask(1, deadline=1.4))
    queue.expire(lambda deadline: deadline <= 1.0)
    queue.add(ask(2, deadline=1.6))
    assert [list(batch.requests) for batch in queue.batches] == [[1], [2]]
