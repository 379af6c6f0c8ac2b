"""Plans and swaps: no stream loses its longest runtime, few swaps; the queueing-aware plan equals an exhaustive search."""

from __future__ import annotations

from itertools import product
from math import inf, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.bins.dispatch import DISPATCHES
from pliant.bins.knowledge import PLANS
from pliant.bins.planning.plan import WORTH, Window, plan, published, queueing, swaps
from pliant.bins.planning.queueing_kernel import best_counts, delays
from pliant.bins.replay import Pool, replay
from tests.fixtures.bins.loads import bursty, known

SECONDS = 0.4


def window(seed: int, streams: int = 1, rates=(200, 1500, 100, 2500), longest: int = 4) -> Window:
    """Return a window of `bursty` requests, all for runtimes up to number `longest`."""
    knowledge = known(streams=streams)
    load = bursty(seed, SECONDS / len(rates), rates, streams)
    firsts = []
    for request in load:
        stream = knowledge.stream(request.task)
        firsts.append(min(stream.first + [request.length <= r.length for r in stream.runtimes].index(True), longest))
    return Window(SECONDS, [request.arrival for request in load], firsts)


def mean(held_or_counts, some: Window, dispatch: str, streams: int = 1) -> float:
    pool = Pool.of(known(streams=streams), dispatch)
    return replay(pool, np.array(some.times), np.array(some.runtimes), held_or_counts)


# Windows


def delay(count_T, seconds: float, interval: float, devices: int) -> float:
    """Return the seconds that these requests spend in all on `devices` devices, as the kernel does, in plain Python."""
    if not sum(count_T):
        return 0.0
    if devices == 0:
        return inf
    backlog = total = 0.0
    for count in count_T:
        after = max(backlog + count * seconds - devices * interval, 0.0)
        busy = min(count * seconds / (devices * interval), 0.99)
        wait = 0.5 * seconds * busy ** (sqrt(2 * (devices + 1)) - 1) / (devices * (1 - busy))
        total += count * (0.5 * (backlog + after) / devices + wait + seconds)
        backlog = after
    return total


def allocate_by_delay(count_IT, seconds, first, devices: int, interval: float) -> list[int]:
    arrays = np.asarray(seconds, np.float64), np.asarray(first, np.int64)
    return best_counts(np.asarray(count_IT, np.float64), *arrays, interval, devices).tolist()


# Plans


@settings(max_examples=12)
@given(st.integers(0, 1000), st.integers(1, 2), st.integers(2, 9), st.sampled_from(PLANS), st.sampled_from(DISPATCHES))
def test_a_plan_uses_all_devices_and_leaves_each_stream_its_longest_runtime(seed, streams, devices, which, dispatch):
    """An allocation without one was once kept as long as the last window had not needed it."""
    knowledge, some = known(streams=streams), window(seed, streams, longest=1)
    held = np.random.default_rng(seed).integers(-1, len(knowledge.runtimes), devices)
    counts = plan(knowledge, some, devices, which, dispatch, [int(runtime) for runtime in held])
    assert sum(counts) == devices
    assert all(counts[stream.first + len(stream.runtimes) - 1] for stream in knowledge.streams)


@settings(max_examples=12)
@given(st.integers(0, 1000))
def test_what_is_in_place_stays_unless_another_plan_is_worth_the_swaps(seed):
    knowledge, some = known(), window(seed)
    held = sorted([3, *np.random.default_rng(seed).integers(0, 4, 5).tolist()])
    present = [held.count(runtime) for runtime in range(4)]
    chosen = plan(knowledge, some, 6, "better", "completion", held)
    least = min(mean(objective(knowledge, some, 6), some, "completion") for objective in (published, queueing))
    kept = mean(present, some, "completion")
    assert chosen == present or kept > least * (1 + WORTH)
    assert mean(chosen, some, "completion") <= min(kept, least) * (1 + WORTH)


# Swaps


@st.composite
def changes(draw):
    devices = draw(st.integers(1, 5))
    held = draw(st.lists(st.integers(-1, 2), min_size=devices, max_size=devices))
    up = sum(runtime >= 0 for runtime in held)
    counts = [0, 0, 0]
    for _ in range(up):
        counts[draw(st.integers(0, 2))] += 1
    return held, counts, draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=devices, max_size=devices))


@given(changes())
def test_swaps_are_the_fewest_that_lead_to_the_plan_and_of_these_on_the_least_loaded(case):
    held, counts, load = case
    swapped = swaps(held, counts, load)
    after = list(held)
    for device, runtime in swapped:
        assert held[device] >= 0, "those that are not to be touched are left alone"
        assert after[device] != runtime
        after[device] = runtime
    up = [device for device, runtime in enumerate(held) if runtime >= 0]
    assert [sum(after[d] == runtime for d in up) for runtime in range(3)] == counts
    allocations = [
        allocation
        for allocation in product(range(3), repeat=len(up))
        if [allocation.count(r) for r in range(3)] == counts
    ]
    changed = [
        [d for d, runtime in zip(up, allocation, strict=True) if held[d] != runtime] for allocation in allocations
    ]
    costs = [(len(some), sum(load[d] for d in some)) for some in changed]
    assert (len(swapped), sum(load[device] for device, _ in swapped)) == min(costs)


STREAMS = {(0, 0, 0): 1, (0, 0, 2): 2, (0, 1, 1): 2, (0, 0): 1}  # first runtime of the stream of each -> streams
TIMES = (0.01, 0.02, 0.05)
INTERVAL = 0.1


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=12),
    st.sampled_from(TIMES),
    st.integers(0, 6),
)
def test_the_kernel_gives_what_the_plain_recursion_gives(counts, seconds, devices):
    cost = delays(np.array(counts, np.float64), seconds, INTERVAL, devices)
    assert cost == pytest.approx([delay(counts, seconds, INTERVAL, m) for m in range(devices + 1)], rel=1e-9)


@st.composite
def cases(draw):
    first = draw(st.sampled_from(list(STREAMS)))
    count = st.lists(st.integers(0, 25), min_size=4, max_size=4)
    counts = draw(st.lists(count, min_size=len(first), max_size=len(first)))
    return first, np.array(counts, np.float64), draw(st.integers(STREAMS[first], 6))


def total(first, count_IT, devices_I) -> float:
    """Return what all requests wait, where a runtime without devices leaves its requests to the next one of its stream."""
    cost, carried = 0.0, np.zeros(count_IT.shape[1])
    for i, devices in enumerate(devices_I):
        carried = carried + count_IT[i]
        if devices == 0 and (i + 1 == len(first) or first[i + 1] != first[i]):
            return np.inf
        if devices:
            cost, carried = cost + delay(carried, TIMES[i], INTERVAL, devices), np.zeros(count_IT.shape[1])
    return cost


@given(cases())
def test_the_dynamic_programme_is_the_best_of_all_allocations(case):
    first, count_IT, devices = case
    best = allocate_by_delay(count_IT, TIMES[: len(first)], first, devices, INTERVAL)
    tried = [counts for counts in product(range(devices + 1), repeat=len(first)) if sum(counts) == devices]
    assert sum(best) == devices
    assert total(first, count_IT, best) == pytest.approx(min(total(first, count_IT, counts) for counts in tried))
