"""A connection may be in each of its stages for so long; beyond their number the oldest of the fullest stage goes."""

from __future__ import annotations

import gc
import weakref

import pytest

from serving.http.door.connections import YOUNG, Connections, Stage
from serving.http.door.limits import DoorLimits

LIMITS = DoorLimits(head_seconds=10.0, body_seconds=60.0, connections=3)


class Connection:
    """Remembers how it was closed."""

    def __init__(self) -> None:
        self.closed: list[Stage | str] = []
        self.bytes = 0

    def expire(self, stage: Stage) -> None:
        self.closed.append(stage)

    def unread(self) -> int:
        return self.bytes

    def abort(self) -> None:
        self.closed.append("aborted")


@pytest.fixture
def connections() -> Connections:
    return Connections(LIMITS)


def entered(connections: Connections, now: float = 0.0) -> Connection:
    connection = Connection()
    assert connections.enter(connection, now)
    return connection


@pytest.mark.parametrize(("stage", "seconds"), [(Stage.HEAD, 10.0), (Stage.IDLE, 10.0), (Stage.BODY, 60.0)])
def test_a_connection_that_stays_in_a_stage_for_too_long_is_closed(connections, stage, seconds):
    connection = entered(connections)
    connections.move(connection, stage, 5.0)
    connections.sweep(5.0 + seconds - 0.01)
    assert connection.closed == [] and connections.stage(connection) is stage
    connections.sweep(5.0 + seconds)
    assert connection.closed == [stage] and connections.stage(connection) is None
    assert len(connections) == 0


def test_a_connection_that_waits_for_its_answer_is_left_alone(connections):
    connection = entered(connections)
    connections.move(connection, Stage.ANSWER, 0.0)
    connections.sweep(1e6)
    assert connection.closed == [] and len(connections) == 1


def test_one_too_many_takes_the_place_of_the_oldest_in_the_fullest_stage(connections):
    reading, oldest, other = (entered(connections, now) for now in (0.0, 1.0, 2.0))
    connections.move(reading, Stage.BODY, 0.0)
    latest = entered(connections, 5.0)
    assert (reading.closed, oldest.closed, other.closed) == ([], [Stage.HEAD], [])
    assert len(connections) == 3 and connections.stage(latest) is Stage.HEAD


def test_where_all_are_young_one_too_many_is_turned_away(connections):
    for _ in range(3):
        entered(connections, 1.0)
    assert not connections.enter(Connection(), 1.0 + YOUNG - 0.01)
    assert connections.enter(Connection(), 1.0 + YOUNG)


def test_a_client_that_takes_nothing_of_its_answer_is_cut_off_and_one_that_takes_some_is_not(connections):
    stuck, slow = entered(connections), entered(connections)
    for connection in (stuck, slow):
        connections.move(connection, Stage.ANSWER, 0.0)
        connection.bytes = 1000
    for second in range(0, 181, 30):
        slow.bytes -= 1
        connections.sweep(float(second))
        assert bool(stuck.closed) is (second > 60)
    assert (stuck.closed, slow.closed) == (["aborted"], [])


def test_a_client_that_has_read_all_may_wait_anew(connections):
    connection = entered(connections)
    connections.move(connection, Stage.ANSWER, 0.0)
    for now, unread in ((0.0, 10), (50.0, 0), (51.0, 10), (110.0, 10)):
        connection.bytes = unread
        connections.sweep(now)
    assert connection.closed == []


@pytest.mark.parametrize("fullest", [Stage.IDLE, Stage.BODY])
def test_the_place_is_taken_from_whichever_stage_has_most_connections(fullest):
    connections = Connections(DoorLimits(connections=5))
    answering = [entered(connections) for _ in range(2)]
    for connection in answering:
        connections.move(connection, Stage.ANSWER, 0.0)
    waiting, first, second = (entered(connections) for _ in range(3))
    for connection in (first, second):
        connections.move(connection, fullest, 0.0)
    entered(connections, 10.0)
    assert [connection.closed for connection in (*answering, waiting, first, second)] == [[], [], [], [fullest], []]
    assert len(connections) == 5


def test_where_all_wait_for_their_answers_one_too_many_is_turned_away(connections):
    for _ in range(3):
        connections.move(entered(connections), Stage.ANSWER, 0.0)
    assert not connections.enter(Connection(), 100.0)


def test_nothing_is_kept_of_a_connection_that_left_with_an_answer_unread(connections):
    connection = entered(connections)
    connections.move(connection, Stage.ANSWER, 0.0)
    connection.bytes = 10
    connections.sweep(0.0)
    connections.leave(connection)
    connections.leave(connection)  # once more changes nothing
    connections.sweep(1.0)
    kept = weakref.ref(connection)
    del connection
    gc.collect()
    assert kept() is None and len(connections) == 0
