"""No schedule earns more than the bounds, and the bounds are the optimum of the linear programme."""

from __future__ import annotations

from functools import cache
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from pliant.latency import LatencyTable
from pliant.protocol import Request
from pliant.tokens.bound import Devices, fluid
from pliant.workload import RequestKind

TASKS = ("easy", "hard")
ACCURACY = {"easy": {-5: 0.9, 0: 1.0}, "hard": {-5: 0.25, 0: 0.75}}


def clairvoyant(load, devices):
    """Return the bound with each request's own arrival and deadline."""
    return fluid(load, devices, 1e-9)


@st.composite
def devices(draw, workers=2):
    seconds = tuple(tuple(np.cumsum(draw(st.lists(eighths, min_size=3, max_size=3)))) for _ in range(2))
    accuracy = {task: {g: draw(st.integers(0, 8)) / 8 for g in (-5, 0)} for task in TASKS}
    return Devices(LatencyTable((-5, 0), (1, 2, 4), seconds), accuracy, draw(st.integers(1, workers)), max_batch=4)


eighths = st.integers(1, 8).map(lambda n: n / 8)
request = st.tuples(st.integers(0, 16), st.integers(1, 24), st.sampled_from(TASKS), st.sampled_from([0.25, 1.0]))


def loads(max_requests):
    return st.lists(request, min_size=1, max_size=max_requests).map(
        lambda drawn: [Request(i, a / 8, (a + span) / 8, *kind) for i, (a, span, *kind) in enumerate(drawn)]
    )


def best_schedule(load, devices):
    """Return what the best schedule of whole batches earns, over every order, grouping, gamma and device."""

    @cache
    def best(left, free):
        options = [0.0]
        for batch in (b for n in range(1, len(left) + 1) for b in combinations(left, n)):
            rest = tuple(r for r in left if r not in batch)
            for gamma in devices.latency.settings:
                for i, at in enumerate(free):
                    end = max(at, *(r.arrival for r in batch)) + devices.latency.at(gamma, len(batch))
                    gain = sum(r.utility * devices.accuracy[r.task][gamma] for r in batch if end <= r.deadline)
                    if gain > 0:
                        options.append(gain + best(rest, tuple(sorted((*free[:i], end, *free[i + 1 :])))))
        return max(options)

    return best(tuple(load), (0.0,) * devices.workers)


def by_solver(load, devices):
    """Return the optimum of `clairvoyant` as a linear programme over (request, gamma) and (request, piece of time)."""
    edges = np.unique([t for r in load for t in (r.arrival, r.deadline)])
    pieces = list(pairwise(edges))
    pairs, worth = [], []
    for i, r in enumerate(load):
        for gamma in devices.latency.settings:
            fits = [
                n for n in range(1, devices.max_batch + 1) if devices.latency.at(gamma, n) <= r.deadline - r.arrival
            ]
            if fits:
                pairs.append((i, min(devices.latency.at(gamma, n) / n for n in fits)))
                worth.append(r.utility * devices.accuracy[r.task][gamma])
    n, p, k = len(load), len(pairs), len(pieces)
    served, capacity, balance = np.zeros((n, p + n * k)), np.zeros((k, p + n * k)), np.zeros((n, p + n * k))
    for column, (i, cost) in enumerate(pairs):
        served[i, column], balance[i, column] = 1.0, cost
    upper = []
    for i, r in enumerate(load):
        for j, (start, end) in enumerate(pieces):
            column = p + i * k + j
            balance[i, column], capacity[j, column] = -1.0, 1.0
            upper.append((0, None if r.arrival <= start and end <= r.deadline else 0))
    limits = np.concatenate([np.ones(n), [devices.workers * (b - a) for a, b in pieces]])
    cost = np.concatenate([-np.array(worth), np.zeros(n * k)])
    bounds = [(0, None)] * p + upper
    return -linprog(cost, np.vstack([served, capacity]), limits, balance, np.zeros(n), bounds, method="highs").fun


@settings(max_examples=60, deadline=None)
@given(loads(4), devices(workers=1))
def test_no_schedule_on_one_device_earns_more(load, devices):
    assert best_schedule(load, devices) <= clairvoyant(load, devices).utility + 1e-9


@settings(max_examples=40, deadline=None)
@given(loads(3), devices())
def test_no_schedule_on_two_devices_earns_more(load, devices):
    assert best_schedule(load, devices) <= clairvoyant(load, devices).utility + 1e-9


@settings(max_examples=100, deadline=None)
@given(loads(7), devices())
def test_greed_finds_the_optimum_of_the_linear_programme(load, devices):
    assert clairvoyant(load, devices).utility == pytest.approx(by_solver(load, devices), abs=1e-7)


@settings(deadline=None)
@given(loads(40), devices())
def test_the_bound_narrows_with_the_bins_down_to_the_clairvoyant_one(load, devices):
    bounds = [fluid(load, devices, width).utility for width in (4.0, 2.0, 1.0, 0.5, 0.25)]
    bounds.append(clairvoyant(load, devices).utility)
    assert all(wide >= narrow - 1e-9 for wide, narrow in pairwise(bounds))
    assert fluid(load, devices, 1e-4).utility == pytest.approx(bounds[-1])


@settings(deadline=None)
@given(loads(40), devices(), st.sampled_from([0.25, 2.0]))
def test_what_is_served_adds_up_to_the_bound(load, devices, width):
    bound = fluid(load, devices, width)
    worth = sum(k.utility * devices.accuracy[k.task][g] * n for k, how in bound.served.items() for g, n in how.items())
    assert bound.utility == pytest.approx(worth, abs=1e-9)
    assert bound.utility <= sum(r.utility for r in load) + 1e-9
    for kind, how in bound.served.items():
        offered = sum((r.task, r.utility) == (kind.task, kind.utility) for r in load)
        assert sum(how.values()) <= offered + 1e-9


SLOW = Devices(LatencyTable((-5, 0), (4,), ((1.0,), (2.5,))), ACCURACY, max_batch=4)  # 0.25 and 0.625 s a request


def test_time_that_is_left_raises_requests_to_a_better_gamma():
    """8 requests take 2 of the 2.5 s at gamma -5; the last 0.5 s bring 0.5 / 0.375 of them to gamma 0."""
    bound = clairvoyant([Request(i, 0.0, 2.5, "easy", 1.0) for i in range(8)], SLOW)
    assert bound.utility == pytest.approx(8 * 0.9 + 0.5 / 0.375 * 0.1)
    ((_, how),) = bound.served.items()
    assert how == {-5: pytest.approx(8 - 4 / 3), 0: pytest.approx(4 / 3)}


def test_the_bound_says_what_time_is_spent_and_who_is_served_at_which_gamma():
    """Two devices have 3 s until the deadline: enough for everybody at gamma -5, or at gamma 0 if twice as fast."""
    easy = [Request(i, 0.0, 1.5, "easy", 0.5) for i in range(4)]
    hard = [Request(i, 0.0, 1.5, "hard", 2.0) for i in range(4, 8)]
    kinds = RequestKind("easy", 1.5, 0.5), RequestKind("hard", 1.5, 2.0)
    slow = Devices(LatencyTable((-5, 0), (4,), ((1.0,), (2.5,))), ACCURACY, workers=2, max_batch=4)
    fast = Devices(LatencyTable((-5, 0), (4,), ((0.5,), (1.25,))), ACCURACY, workers=2, max_batch=4)
    bound = clairvoyant(easy + hard, slow)
    assert bound.served == {kinds[0]: {-5: 4.0}, kinds[1]: {-5: 4.0}}
    assert (bound.utility, bound.seconds) == (pytest.approx(4 * 0.9 * 0.5 + 4 * 0.25 * 2), pytest.approx(8 * 0.25))
    bound = clairvoyant(easy + hard, fast)
    assert bound.served == {
        kinds[0]: {-5: pytest.approx(0), 0: pytest.approx(4)},
        kinds[1]: {0: pytest.approx(4)},
    }
    assert (bound.utility, bound.seconds) == (pytest.approx(4 * 0.5 + 4 * 0.75 * 2), pytest.approx(8 * 0.3125))


@pytest.mark.parametrize(("last", "served"), [(0.049, 3.0), (0.051, 2.0)])
def test_requests_of_a_twentieth_of_a_second_share_a_window_on_one_device(last, served):
    """The first two come together and have time for one of them."""
    table = LatencyTable((0,), (1,), ((0.01,),))
    load = [Request(i, at, at + 0.01, "easy", 1.0) for i, at in enumerate((0.0, 0.0, last))]
    assert fluid(load, Devices(table, {"easy": {0: 1.0}})).utility == pytest.approx(served)
