"""Each policy decides as its plain reference, which looks at every instance; and the heaps follow every change."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.bins.dispatch import DISPATCHES, NO_RUNTIME, Instances, policy

SECONDS = (0.25, 0.5, 1.0, 0.75, 2.0)  # of the runtimes of two streams; the fourth is the first of the second stream
CAPACITY = (4.0, 2.0, 1.0, 3.0, 1.0)
ENDS = (3, 3, 3, 5, 5)
WORKERS = 6


@dataclass
class Plain:
    """Every worker's runtime, when it becomes free, and how many requests it has."""

    runtime: list[int] = field(default_factory=lambda: [NO_RUNTIME] * WORKERS)
    free_at: list[float] = field(default_factory=lambda: [0.0] * WORKERS)
    outstanding: list[int] = field(default_factory=lambda: [0] * WORKERS)

    def of(self, runtime: int) -> list[int]:
        return [worker for worker in range(WORKERS) if self.runtime[worker] == runtime]

    def least(self, runtime: int) -> int | None:
        """Return the runtime's worker with the fewest requests."""
        return min(self.of(runtime), key=lambda worker: (self.outstanding[worker], worker), default=None)

    def congestion(self, worker: int) -> float:
        return self.outstanding[worker] / CAPACITY[self.runtime[worker]]

    def completion(self, first: int, now: float) -> int:
        """Return the best of all instances; among equals that of the shorter runtime, then the one free for longest."""
        able = [worker for runtime in range(first, ENDS[first]) for worker in self.of(runtime)]
        return min(
            able,
            key=lambda worker: (self.ends(worker, now), self.runtime[worker], self.free_at[worker], worker),
            default=-1,
        )

    def ends(self, worker: int, now: float) -> float:
        return max(self.free_at[worker], now) + SECONDS[self.runtime[worker]]

    def published(self, first: int, now: float) -> int:
        """Return what Algorithm 1 chooses, line by line."""
        threshold = 0.85
        heads = [head for runtime in range(first, ENDS[first]) if (head := self.least(runtime)) is not None]
        for head in heads[:6]:
            if self.congestion(head) < threshold:
                return head
            threshold *= 0.9
        return heads[0] if heads else -1


times = st.integers(0, 12).map(lambda quarter: quarter / 4)
workers = st.integers(0, WORKERS - 1)
changes = st.lists(
    st.one_of(
        st.tuples(st.just("join"), workers, st.integers(0, 4)),
        st.tuples(st.just("leave"), workers),
        st.tuples(st.just("change"), workers, times, st.integers(-2, 3)),
    ),
    max_size=60,
)


def apply(change: tuple, instances: Instances, plain: Plain) -> None:
    match change:
        case ("join", worker, runtime):
            instances.join(worker, runtime)
            plain.runtime[worker] = runtime
        case ("leave", worker):
            instances.leave(worker)
            plain.runtime[worker] = NO_RUNTIME
        case ("change", worker, free_at, more):
            more = max(more, -plain.outstanding[worker])
            instances.change(worker, free_at, more)
            plain.free_at[worker] = free_at
            plain.outstanding[worker] += more


@pytest.mark.parametrize("name", DISPATCHES)
@given(changes, times)
def test_a_policy_decides_as_its_plain_reference_after_any_changes(name, some, now):
    instances, plain = Instances(WORKERS, len(SECONDS), name == "completion"), Plain()
    choose = policy(name, instances, SECONDS, CAPACITY, ENDS)
    for change in [("join", 0, 2), ("join", 1, 0), ("join", 2, 4), *some]:
        apply(change, instances, plain)
        instances.check()
        for first, end in enumerate(ENDS):
            assert choose(first, end, now) == getattr(plain, name)(first, now)


def alone(name: str, capacity: tuple[float, ...], held: list[int], outstanding: list[int]):
    """Return the decision for a request that all runtimes take."""
    runtimes = len(capacity)
    instances = Instances(len(held), runtimes, name == "completion")
    for worker, (runtime, count) in enumerate(zip(held, outstanding, strict=True)):
        instances.join(worker, runtime)
        instances.change(worker, 0.0, count)
    return policy(name, instances, [1.0] * runtimes, capacity, [runtimes] * runtimes)(0, runtimes, 0.0)


def test_the_published_algorithm_looks_at_six_candidates_and_passes_over_runtimes_without_instances():
    held = [0, 1, 2, 3, 4, 5, 7]
    assert alone("published", (100.0,) * 8, held, [99] * 5 + [0, 0]) == 5
    assert alone("published", (100.0,) * 8, held, [99] * 6 + [0]) == 0
