"""Which requests a loop takes in, in virtual time."""

from __future__ import annotations

import asyncio
import random
import socket
from collections import deque

import pytest

from pliant.serving.http.door.load import ACCEPTED, HANDSHAKE_SECONDS, LoopLoad, MeasuredLoop, MeasuredSelector

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


def test_what_comes_while_the_loop_is_busy_has_come_after_its_last_look():
    load = LoopLoad()
    load.looked(0.0, 1.0)
    assert load.earliest == 1.0
    load.looked(1.4, 1.4)
    assert load.earliest == 1.0
    load.looked(1.5, 1.5)
    assert load.earliest == 1.4


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


def test_a_loop_that_has_seen_nothing_takes_in_everything():
    load = LoopLoad()
    assert (load.earliest, load.cost, load.saturated, load.at_once) == (0.0, 0.0, False, 1)
    assert load.retry_after == pytest.approx(0.1)
    assert not load.is_full(10**6, 1e6)


@pytest.mark.parametrize(
    ("deadline", "at_once", "retry_after", "waiting"),
    [(0.01, 4, 0.04, 15), (0.5, 8, 0.1, 40), (2.0, 33, 0.4, 165), (60.0, 41, 2.0, 832)],
)
def test_what_is_started_at_once_and_what_may_wait_follow_the_deadline_within_bounds(
    deadline, at_once, retry_after, waiting
):
    load = costing(0.0012)
    load.deadline = deadline
    assert (load.at_once, load.retry_after) == (at_once, pytest.approx(retry_after))
    assert not load.is_full(waiting, 0.0) and load.is_full(waiting + 1, 0.0)
    assert not load.is_full(0, deadline) and load.is_full(0, deadline * 1.001)


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


def test_a_loop_that_is_kept_from_its_core_has_no_costlier_requests_for_that():
    load, now = LoopLoad(), 0.0
    load.deadline = DEADLINE
    for number in range(500):
        load.started()
        now += 4 * COST
        load.looked(now, now, 1, number * COST)
    most = int(0.4 * DEADLINE / COST)
    assert load.saturated and load.cost == pytest.approx(4 * COST)
    assert not load.is_full(0, 0.0, most) and load.is_full(0, 0.0, 2 * most)


@pytest.mark.parametrize("deadline", [0.5, 5.0])
def test_a_stall_among_few_requests_turns_none_of_a_burst_away(deadline):
    """As where a model is loaded while the loop takes its first requests, or another process has the core."""
    load = LoopLoad()
    load.deadline = deadline
    load.looked(0.0, 0.0)
    load.started()
    load.looked(2.0, 2.0)
    assert load.pressed and load.cost == pytest.approx(2.0)
    now = 2.0
    for under_way in range(30):
        assert not load.is_full(0, 0.0, under_way)
        load.started()
        now += COST
        load.looked(now, now)


def test_the_selector_reports_when_each_look_began_and_ended_and_returns_what_is_ready():
    looks, times = [], iter([1.0, 1.5, 2.0, 2.0, 3.0, 3.5])
    load = LoopLoad()
    load.looked = lambda began, ended, events, _used: looks.append((began, ended, events))
    ours, theirs = socket.socketpair()
    with ours, theirs, MeasuredSelector(load, lambda: next(times)) as selector:
        key = selector.register(ours, 1)
        assert selector.select(0) == []
        theirs.sendall(b"a")
        assert selector.select() == [(key, 1)]
        assert selector.select(1.0) == [(key, 1)]
    assert looks == [(1.5, 1.5, 0), (2.0, 2.0, 1), (3.0, 3.5, 1)], (
        "the first may not wait: another process took its time"
    )


def test_a_server_accepts_few_connections_at_a_time_and_its_queue_is_as_long_as_asked_for(monkeypatch):
    made = []

    async def create_server(_self, *args, **options):
        made.append((args, options))
        return "server"

    class Socket:
        backlog = 0

        def listen(self, backlog: int) -> None:
            self.backlog = backlog

    monkeypatch.setattr(asyncio.SelectorEventLoop, "create_server", create_server)
    first, second = Socket(), Socket()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert await loop.create_server("protocol", sock=first, backlog=2048) == "server"
        await loop.create_server("protocol", sock=second, ssl="context")
        await loop.create_server("protocol", ssl="context", ssl_handshake_timeout=3.0, backlog=ACCEPTED - 1)

    with asyncio.Runner(loop_factory=lambda: MeasuredLoop(LoopLoad())) as runner:
        runner.run(main())
    secured = {"ssl": "context", "ssl_handshake_timeout": HANDSHAKE_SECONDS}
    assert made == [
        (("protocol",), {"sock": first, "backlog": ACCEPTED}),
        (("protocol",), {"sock": second, "backlog": ACCEPTED, **secured}),
        (("protocol",), {"backlog": ACCEPTED - 1, **secured, "ssl_handshake_timeout": 3.0}),
    ]
    assert (first.backlog, second.backlog) == (2048, 100)
