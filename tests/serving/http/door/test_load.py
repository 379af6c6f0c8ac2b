"""Which requests a loop takes in, in virtual time."""

from __future__ import annotations

import random
from collections import deque

import pytest

from pliant.serving.http.door.load import LoopLoad

COST = 0.004  # seconds of the loop per request
DEADLINE = 0.5
LOOKS = 4  # between the start of a request and its answer
SHED = 0.0001  # seconds to turn a request away


def useful(rate: float, seconds: float = 20.0, shedding: bool = True, seed: int = 0, calm: float = 0.0) -> float:
    """Return the share of the loop's time that went into answers in time, when requests come at `rate`.

    The loop has idled for the most part of `calm` seconds before, which do not count.

    Each look at the sockets reads all that has come; then the loop starts whose turn it is, as the door does. An answer
    takes the loop as long as its request, after `LOOKS` further looks.
    """
    draw, load = random.Random(seed), LoopLoad()
    load.deadline = DEADLINE
    now, arrival, in_time = -calm, -calm, 0
    waiting: deque[float] = deque()
    begun: deque[list[float]] = deque([[] for _ in range(LOOKS)])
    while now < seconds:
        began = now
        now = max(now, arrival) if not waiting and not any(begun) else now
        load.looked(began, now)
        begun.append([])
        while arrival <= now:
            if shedding and load.is_full(len(waiting), now - arrival, sum(map(len, begun))):
                now += SHED
            elif shedding and load.saturated:
                waiting.append(arrival)
            else:
                begun[-1].append(arrival)
                load.started()
            arrival += draw.expovariate(rate if arrival >= 0 else 0.3 / COST)
        for _ in range(min(load.at_once, len(waiting))):
            begun[-1].append(waiting.popleft())
            load.started()
        now += len(begun[-1]) * COST / 2
        for arrived in begun.popleft():
            now += COST / 2
            in_time += arrived >= 0 and now - arrived <= DEADLINE
    return in_time * COST / now


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("times", [2, 4, 8])
def test_beyond_what_the_loop_bears_answers_stay_in_time(times, seed):
    best = max(useful(share / COST, seed=seed) for share in (0.7, 0.8, 0.9, 1.0))
    assert useful(times / COST, seed=seed) >= (0.9 - SHED / COST * times) * best
    assert useful(times / COST, seed=seed, shedding=False) < 0.2 * best


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("times", [2, 4, 8])
def test_a_sudden_flood_costs_an_idle_loop_no_more_than_a_steady_one(times, seed):
    assert useful(times / COST, seconds=2.0, seed=seed, calm=2.0) >= useful(times / COST, seed=seed) - 0.05


@pytest.mark.parametrize("seed", range(3))
def test_what_the_loop_bears_is_taken_in(seed):
    for share in (0.3, 0.6, 0.9):
        assert useful(share / COST, seed=seed) == pytest.approx(
            useful(share / COST, seed=seed, shedding=False), abs=0.01
        )


def costing(seconds: float) -> LoopLoad:
    """Return the load of a saturated loop whose requests cost this much."""
    load, now = LoopLoad(), 0.0
    load.looked(0.0, 0.0)
    while now < 1.0:
        load.started()
        now += seconds
        load.looked(now, now)
    assert load.saturated and load.cost == pytest.approx(seconds)
    return load


def test_what_is_under_way_is_bounded_once_a_loop_has_worked_without_a_pause_for_as_long_as_a_request_may_wait():
    load = costing(COST)
    load.deadline = DEADLINE
    for _ in range(20):  # 2 s of calm at this cost
        load.looked(load.earliest + 0.001, load.earliest + 0.1)
        load.started()
    now, most = load.earliest, int(0.4 * DEADLINE / COST)
    assert not load.pressed and not load.is_full(0, 0.0, 10 * most)
    for _ in range(20):
        now += COST
        load.looked(now, now)
        load.started()
    assert load.pressed and not load.saturated
    assert not load.is_full(0, 0.0, most) and load.is_full(0, 0.0, 2 * most)
    load.looked(now, now + 0.001)  # it idles
    assert not load.is_full(0, 0.0, 2 * most)
