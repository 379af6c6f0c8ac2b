"""Which requests a loop takes in, in virtual time."""

from __future__ import annotations

import random
from collections import deque

import pytest

from pliant.serving.http.door.load import MOMENT, LoopLoad, Turns

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


PIECE, PIECES = 0.0004, 5  # seconds of each turn of the loop that a request takes, and how many such turns
LOOK = 0.00005  # seconds of a look at the sockets


def answered(
    connections: dict[str, int], seconds: float = 5.0, sharing: bool = True, at_once: int = 3
) -> dict[str, float]:
    """Return the answers a second of tenants with so many clients each, who ask again after 0.5 to 1.5 ms.

    Without `sharing` all are one tenant's, started in the order in which they came.
    """
    draw, turns, now, count = random.Random(1), Turns(), 0.0, dict.fromkeys(connections, 0)
    asking = [(draw.random() / 100, name) for name, many in connections.items() for _ in range(many)]
    begun: deque[list[str]] = deque([] for _ in range(PIECES))
    idle = True
    while now < seconds:
        came = sorted(one for one in asking if one[0] <= now)
        asking = [one for one in asking if one[0] > now]
        for _, name in came:
            turns.wait(lambda name=name: begun[-1].append(name), name if sharing else "", 1.0)
        begun.append([])
        for begin in turns.take(at_once, PIECE * PIECES, idle and not came, now):
            begin()
        for name in begun.popleft():
            count[name] += 1
            asking.append((now + draw.uniform(0.0005, 0.0015), name))
        working = sum(map(len, begun))
        idle = not working
        now += LOOK + PIECE * working
        if idle and not turns:
            now = max(now, min(at for at, _ in asking))
    return {name: each / seconds for name, each in count.items()}


def test_who_asks_again_at_once_keeps_its_half_beside_many_connections_and_no_time_of_the_loop_is_lost():
    alone = answered({"ann": 1})["ann"]
    shared, first_come = answered({"ann": 1, "many": 30}), answered({"ann": 1, "many": 30}, sharing=False)
    assert first_come["ann"] < 0.3 * alone
    assert shared["ann"] >= 0.5 * alone
    assert sum(shared.values()) >= 0.9 * sum(first_come.values())


@pytest.mark.parametrize("seed", range(20))
def test_everybody_is_started_once_and_each_tenant_in_its_order(seed):
    draw, turns, begun = random.Random(seed), Turns(), {name: [] for name in "abc"}
    came, now = dict.fromkeys("abc", 0), 0.0
    for _ in range(500):
        now += draw.random() * MOMENT / 2
        name = draw.choice("abc")
        if draw.random() < 0.5:
            turns.wait(lambda name=name, number=came[name]: begun[name].append(number), name, draw.choice((1.0, 2.0)))
            came[name] += 1
        for begin in turns.take(draw.randrange(4), 0.002, draw.random() < 0.5, now):
            begin()
        assert len(turns) == sum(came.values()) - sum(map(len, begun.values()))
    for _ in range(2 * len(turns)):
        now += MOMENT
        for begin in turns.take(1, 0.002, False, now):
            begin()
    assert begun == {name: [*range(count)] for name, count in came.items()}


def test_what_delays_a_tenant_s_request_is_its_own_at_its_share_and_never_more_than_all():
    turns = Turns()
    assert turns.before("ann") == (0, 0)
    for _ in range(6):
        turns.wait(lambda: None, "many", 1.0)
        turns.begun("many")
    assert turns.before("ann") == turns.before("many") == (6, 6), "nobody else is there yet"
    turns.wait(lambda: None, "ann", 1.0)
    assert turns.before("ann") == (2, 0) and turns.before("many") == (7, 6) and turns.before("new") == (0, 0)
    turns.ended("many")
    assert turns.before("many") == (7, 5)
