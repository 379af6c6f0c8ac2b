"""Worlds that differ from the profile, and the simulator that runs launches, the front door and clients in them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pliant.protocol import Answer, Arrived, Drop, Finished, Launch, Request
from pliant.simulator import simulate
from pliant.worlds import Course, FrontDoor, World


class OneByOne:
    """Serves in order of arrival, one at a time; refuses what comes while `limit` wait."""

    def __init__(self, limit: int = 1000) -> None:
        self.waiting: list[int] = []
        self.busy: dict[int, int] = {}
        self.launches = 0
        self.seen: dict[int, Request] = {}
        self.seconds: list[float] = []
        self.limit = limit

    def handle(self, event, now):
        actions: list = []
        match event:
            case Arrived(request):
                self.seen[request.id] = request
                if len(self.waiting) >= self.limit:
                    return [Drop(request.id, "full")]
                self.waiting.append(request.id)
            case Finished(launch, seconds):
                self.seconds.append(seconds)
                actions.append(Answer(self.busy.pop(launch), launch))
        if self.waiting and not self.busy:
            launch = Launch(self.launches, 0, (self.waiting.pop(0),))
            self.launches += 1
            self.busy[launch.id] = launch.requests[0]
            actions.append(launch)
        return actions

    def wake_at(self):
        return None


def second(launch: Launch):
    return 1.0, Finished(launch.id, 1.0)


def asks(count: int, every: float) -> list[Request]:
    return [Request(i, i * every, i * every + 5.0, "task", length=2**i) for i in range(count)]


def mean_seconds(world: World, at: float = 0.0, count: int = 4000, **key) -> float:
    course = Course(world, 3)
    return float(np.mean([course.seconds(1.0, at, **key) for _ in range(count)]))


def test_a_world_stretches_every_launch_and_its_measured_seconds() -> None:
    scheduler = OneByOne()
    journal = simulate(scheduler, asks(3, 10.0), second, course=Course(World("slow", 4.0), 0))
    assert scheduler.seconds == [pytest.approx(4.0)] * 3
    assert [entry.now for entry in journal if isinstance(entry.event, Finished)] == pytest.approx([4.0, 14.0, 24.0])


@pytest.mark.parametrize(
    ("world", "at", "mean"),
    [
        (World("noise", noise=0.5), 0.0, math.exp(0.125)),
        (World("pauses", pause=0.1, pause_seconds=2.0), 0.0, 1.2),
        (World("pauses over", pause=0.1, pause_seconds=2.0, pausing=(5.0, 6.0)), 4.0, 1.0),
        (World("step before", steps=((3.0, 2.0), (6.0, 1.0))), 2.9, 1.0),
        (World("step", steps=((3.0, 2.0), (6.0, 1.0))), 3.0, 2.0),
        (World("step over", steps=((3.0, 2.0), (6.0, 1.0))), 6.0, 1.0),
        (World("drift", drift=0.1), 10.0, math.e),
        (World("drift ended", drift=0.1, drifting=5.0), 10.0, math.exp(0.5)),
    ],
)
def test_seconds_are_on_average_what_the_world_says(world: World, at: float, mean: float) -> None:
    assert mean_seconds(world, at) == pytest.approx(mean, rel=0.05)


def test_errors_stay_the_same_for_an_operating_point_a_size_and_a_length_and_differ_between_them() -> None:
    for field, key in (("by_setting", "setting"), ("by_size", "size"), ("by_length", "length")):
        course = Course(World("errors", **{field: 0.3}), 5)
        seconds = [[course.seconds(1.0, at, **{key: of}) for at in (0.0, 1.0)] for of in (1, 4, 16, 64)]
        assert all(first == again for first, again in seconds)
        assert len({first for first, _ in seconds}) == 4


def test_the_same_seed_gives_the_same_world() -> None:
    def run(seed: int) -> list[float]:
        scheduler = OneByOne()
        simulate(scheduler, asks(8, 0.5), second, course=Course(World("noise", noise=0.4, by_length=0.3), seed))
        return scheduler.seconds

    assert run(1) == run(1) != run(2)


def test_all_that_passes_the_front_door_takes_its_time_in_turn() -> None:
    door, scheduler = FrontDoor(0.25), OneByOne()
    journal = simulate(scheduler, [Request(i, 0.0, 9.0, "task") for i in range(2)], second, door=door)
    arrived = [entry.now for entry in journal if isinstance(entry.event, Arrived)]
    assert arrived == pytest.approx([0.25, 0.5])
    assert door.delivered == pytest.approx({0: 1.5, 1: 2.5})


def test_clients_send_again_what_was_refused_or_came_too_late() -> None:
    sent: list[tuple[int, float]] = []

    def retry(request: Request, now: float) -> Request | None:
        sent.append((request.id, now))
        again = request.id + 100
        return Request(again, now, now + 5.0, "task") if again < 200 else None

    load = [Request(i, 0.0, 1.5, "task") for i in range(3)]
    journal = simulate(OneByOne(limit=1), load, second, retry=retry)
    assert sent[0] == (2, 0.0), "refused at once"
    assert (1, 2.0) in sent, "answered after its deadline"
    assert {e.event.request.id for e in journal if isinstance(e.event, Arrived)} >= {101, 102}
