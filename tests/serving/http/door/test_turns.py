"""Whose request a full loop starts next, in virtual time."""

from __future__ import annotations

import random
from collections import deque

import pytest

from pliant.serving.http.door.load import MOMENT, Turns

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
