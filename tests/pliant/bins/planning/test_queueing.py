"""The queueing-aware plan: the kernel agrees with plain Python, and the plan with an exhaustive search."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.bins.planning.queueing import allocate_by_delay, delay
from pliant.bins.planning.queueing_kernel import delays

STREAMS = {(0, 0, 0): 1, (0, 0, 2): 2, (0, 1, 1): 2, (0, 0): 1}  # first runtime of the stream of each -> streams
SECONDS = (0.01, 0.02, 0.05)
INTERVAL = 0.1


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=12),
    st.sampled_from(SECONDS),
    st.integers(0, 6),
)
def test_the_kernel_gives_what_the_plain_recursion_gives(counts, seconds, devices):
    cost = delays(np.array(counts, np.float64), seconds, INTERVAL, devices)
    assert cost == pytest.approx([delay(counts, seconds, INTERVAL, m) for m in range(devices + 1)], rel=1e-9)


@given(st.lists(st.integers(0, 60), min_size=1, max_size=12), st.sampled_from(SECONDS))
def test_more_devices_never_mean_more_delay(counts, seconds):
    cost = delays(np.array(counts, np.float64), seconds, INTERVAL, 8)
    assert (np.diff(cost[1:]) <= 1e-12).all()


def test_a_burst_costs_more_than_the_same_requests_spread_out():
    assert delay([20, 0, 0, 0], 0.01, INTERVAL, 1) > 2 * delay([5, 5, 5, 5], 0.01, INTERVAL, 1)


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
            cost, carried = cost + delay(carried, SECONDS[i], INTERVAL, devices), np.zeros(count_IT.shape[1])
    return cost


@given(cases())
def test_the_dynamic_programme_is_the_best_of_all_allocations(case):
    first, count_IT, devices = case
    best = allocate_by_delay(count_IT, SECONDS[: len(first)], first, devices, INTERVAL)
    tried = [counts for counts in product(range(devices + 1), repeat=len(first)) if sum(counts) == devices]
    assert sum(best) == devices
    assert total(first, count_IT, best) == pytest.approx(min(total(first, count_IT, counts) for counts in tried))


@given(cases())
def test_every_stream_keeps_its_longest_runtime_also_where_nobody_asked_for_it(case):
    first, count_IT, devices = case
    count_IT[-1] = 0
    best = allocate_by_delay(count_IT, SECONDS[: len(first)], first, devices, INTERVAL)
    ends = [i for i in range(len(first)) if i + 1 == len(first) or first[i + 1] != first[i]]
    assert all(best[end] for end in ends)
