"""What is offered in a world: the true device's capacity, bursts, clients that send again, and when all is as before."""

from __future__ import annotations

import math

import pytest

from pliant.benchmarks.robust.clients import ATTEMPTS, back, capacity, crowd, lasting, segments
from pliant.protocol import Request
from pliant.worlds import World


@pytest.mark.parametrize(
    ("world", "times"),
    [
        (World("slow", 4.0), 1 / 4),
        (World("paused", pause=0.5, pause_seconds=0.2), 1 / 2),
        (World("then half", steps=((5.0, 2.0),)), (1 + 1 / 2) / 2),
        (World("for a while", steps=((2.0, 4.0), (4.0, 1.0))), 0.8 + 0.2 / 4),
        (World("paused at the end", pause=0.5, pause_seconds=0.2, pausing=(5.0, math.inf)), (1 + 1 / 2) / 2),
    ],
)
def test_the_true_devices_capacity_is_its_mean_rate(world: World, times: float) -> None:
    assert capacity(world, 10.0, 0.1) == pytest.approx(times)


def test_a_slow_device_has_as_many_requests_as_the_true_one_but_a_change_keeps_its_time() -> None:
    assert lasting(World("slow", 2.0), 10.0, 0.5) == 20.0
    assert lasting(World("then slow", steps=((5.0, 2.0),)), 10.0, 0.75) == 10.0


def test_a_burst_is_of_ten_times_the_capacity_and_lasts_three_deadlines_at_least() -> None:
    before, burst, calm = segments(40.0, 8.0, "burst", 50.0, 2.0)
    assert (before.rate, burst.rate, burst.seconds, calm.rate) == (40.0, 500.0, 6.0, 40.0)
    even = segments(40.0, 8.0, "patient", 50.0, 2.0)
    assert sum(part.rate * part.seconds for part in even) == pytest.approx(8 * 40.0)


def test_a_question_is_sent_so_often_at_most_and_counts_once() -> None:
    load = [Request(i, 0.0, 1.0, "task") for i in range(2)]
    clients = crowd(load, "retry", 10.0)
    assert clients.retry is not None
    request: Request | None = load[0]
    sent = []
    while request is not None:
        sent.append(request)
        clients.door.delivered[request.id] = request.deadline
        request = clients.retry(request, request.deadline)
    assert len(sent) == ATTEMPTS
    assert [r.arrival for r in sent] == [0.0, 1.0, 2.0, 3.0]
    clients.door.delivered[1] = 1.5
    assert len(clients.answered([1, *(r.id for r in sent)])) == 1, "the other one was late"


def test_all_is_back_when_what_comes_earns_as_much_as_before() -> None:
    def earned(got):
        return [(at / 10, got(at / 10), 1.0) for at in range(400)]

    assert back(earned(lambda at: 0.8), 10.0, 20.0, 1.0) == pytest.approx(0.0)
    assert back(earned(lambda at: 0.8 * (at < 10 or at > 27)), 10.0, 20.0, 1.0) == pytest.approx(7.0, abs=0.5)
    assert back(earned(lambda at: 0.8 * (at < 10) + 0.7), 10.0, 20.0, 1.0) == math.inf
