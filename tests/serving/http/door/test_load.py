"""Which requests a loop takes in, in virtual time."""

from __future__ import annotations

import random
from collections import deque

import pytest

from serving.http.door.load import LoopLoad

COST = 0.004  # seconds of the loop per request
DEADLINE = 0.5
LOOKS = 4  # between the start of a request and its answer
SHED = 0.0001  # seconds to turn a request away


def useful(rate: float, seconds: float = 20.0, shedding: bool = True, seed: int = 0) -> float:
    """Return the share of the loop's time that went into answers in time, when requests come at `rate`.

    Each look at the sockets reads all that has come; then the loop starts whose turn it is, as the door does. An answer
    takes the loop as long as its request, after `LOOKS` further looks.
    """
    draw, load = random.Random(seed), LoopLoad()
    load.deadline = DEADLINE
    now, arrival, in_time = 0.0, draw.expovariate(rate), 0
    waiting: deque[float] = deque()
    begun: deque[list[float]] = deque([[] for _ in range(LOOKS)])
    while now < seconds:
        began = now
        now = max(now, arrival) if not waiting and not any(begun) else now
        load.looked(began, now)
        while arrival <= now:
            if not shedding or not load.is_full(len(waiting), now - arrival):
                waiting.append(arrival)
            else:
                now += SHED
            arrival += draw.expovariate(rate)
        at_once = load.at_once if shedding and load.saturated else len(waiting)
        begun.append([waiting.popleft() for _ in range(min(at_once, len(waiting)))])
        for _ in begun[-1]:
            load.started()
            now += COST / 2
        for arrived in begun.popleft():
            now += COST / 2
            in_time += now - arrived <= DEADLINE
    return in_time * COST / now


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("times", [2, 4, 8])
def test_beyond_what_the_loop_bears_answers_stay_in_time(times, seed):
    best = max(useful(share / COST, seed=seed) for share in (0.7, 0.8, 0.9, 1.0))
    assert useful(times / COST, seed=seed) >= (0.9 - SHED / COST * times) * best
    assert useful(times / COST, seed=seed, shedding=False) < 0.2 * best


@pytest.mark.parametrize("seed", range(3))
def test_what_the_loop_bears_is_taken_in(seed):
    for share in (0.3, 0.6, 0.9):
        assert useful(share / COST, seed=seed) == pytest.approx(
            useful(share / COST, seed=seed, shedding=False), abs=0.01
        )


def test_a_saturated_loop_takes_in_nothing_that_has_waited_for_longer_than_a_deadline():
    load = LoopLoad()
    load.deadline = DEADLINE
    load.looked(0.0, 1.0)
    assert not load.is_full(0, 2 * DEADLINE)  # it has time to spare
    load.looked(3.0, 3.0)
    assert load.saturated
    assert load.is_full(0, 2 * DEADLINE) and not load.is_full(0, DEADLINE / 2)


def test_a_loop_busy_with_other_work_lets_the_few_requests_wait_that_it_has_time_for():
    load, now = LoopLoad(), 0.0
    load.deadline = DEADLINE
    for look in range(20_000):  # 2 s of short looks; one in 200 starts a request, so one every 20 ms
        load.looked(now + 0.0001, now + 0.0001)
        now += 0.0001
        if look % 200 == 100:
            load.started()
    assert load.saturated
    assert load.cost == pytest.approx(0.02, rel=0.05)
    assert not load.is_full(1, 0.0)
    assert load.is_full(3, 0.0)  # the fourth would wait for 80 ms of work, and may for a tenth of the deadline


def test_the_cost_of_a_request_is_that_of_the_latest_ones():
    load, now = LoopLoad(), 0.0
    for cost in (0.002, 0.02, 0.002):
        for _ in range(round(5.0 / cost)):  # 5 s of such requests, one between two looks
            load.started()
            now += cost
            load.looked(now, now)
        assert load.cost == pytest.approx(cost, rel=0.01)


def test_a_burst_on_an_idle_loop_is_taken_in_whole():
    load = LoopLoad()
    load.looked(0.0, 1.0)
    assert not load.is_full(1000, 0.0)


def test_what_comes_while_the_loop_is_busy_has_come_after_its_last_look():
    load = LoopLoad()
    load.looked(0.0, 1.0)
    assert load.earliest == 1.0
    load.looked(1.4, 1.4)
    assert load.earliest == 1.0
    load.looked(1.5, 1.5)
    assert load.earliest == 1.4
