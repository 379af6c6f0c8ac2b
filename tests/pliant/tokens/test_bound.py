"""No schedule earns more than the bounds, and the bounds are the optimum of the linear programme."""

from __future__ import annotations

from itertools import pairwise

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


@settings(max_examples=100, deadline=None)
@given(loads(7), devices())
def test_greed_finds_the_optimum_of_the_linear_programme(load, devices):
    assert clairvoyant(load, devices).utility == pytest.approx(by_solver(load, devices), abs=1e-7)


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
