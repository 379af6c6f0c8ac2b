"""A connection may be in each of its stages for so long; beyond their number the one that has been idle longest goes."""

from __future__ import annotations

import pytest

from pliant.serving.http.door.connections import STALLED, Connections, DoorLimits, Stage

LIMITS = DoorLimits(head_seconds=10.0, idle_seconds=75.0, body_seconds=60.0, connections=3)


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


@pytest.mark.parametrize(("stage", "seconds"), [(Stage.HEAD, 10.0), (Stage.IDLE, 75.0), (Stage.BODY, 60.0)])
def test_a_connection_that_stays_in_a_stage_for_too_long_is_closed(connections, stage, seconds):
    connection = entered(connections)
    connections.move(connection, stage, 5.0)
    connections.sweep(5.0 + seconds - 0.01)
    assert connection.closed == [] and connections.stage(connection) is stage
    connections.sweep(5.0 + seconds)
    assert connection.closed == [stage] and connections.stage(connection) is None
    assert len(connections) == 0


@pytest.mark.parametrize("stage", [Stage.HEAD, Stage.BODY])
def test_a_request_that_makes_progress_is_never_closed_for_another_and_one_at_a_stand_is(connections, stage):
    coming, stuck, answering = (entered(connections) for _ in range(3))
    connections.move(answering, Stage.ANSWER, 0.0)
    for connection in (stuck, coming):
        connections.move(connection, stage, 0.0)
    for tenth in range(1, 100):
        connections.progressed(coming, tenth * 0.1)
        if tenth * 0.1 < STALLED:
            connections.progressed(stuck, tenth * 0.1)
            assert not connections.enter(Connection(), tenth * 0.1)
    assert connections.enter(Connection(), 9.9)
    assert (coming.closed, stuck.closed, answering.closed) == ([], [stage], [])


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


def test_the_tenant_with_the_most_connections_gives_up_its_own_first(connections):
    ann, many, more = (entered(connections) for _ in range(3))
    for each, tenant in ((ann, "ann"), (many, "many"), (more, "many")):
        connections.own(each, tenant)
    connections.move(many, Stage.ANSWER, 1.0)
    entered(connections, 2.0)
    assert (ann.closed, more.closed) == ([], [Stage.IDLE]), "though that of ann has been idle for longer"
    entered(connections, 3.0)
    assert ann.closed == [Stage.IDLE], "as the one of many is busy, and nobody has more"


def test_where_all_are_busy_the_tenant_with_the_most_gives_one_up_at_the_end_of_an_answer(connections):
    ann, many, more = (entered(connections) for _ in range(3))
    for each, tenant in ((ann, "ann"), (many, "many"), (more, "many")):
        connections.own(each, tenant)
        connections.move(each, Stage.ANSWER, 0.0)
    assert not connections.enter(Connection(), 1.0)
    for each in (ann, many, more):
        connections.move(each, Stage.IDLE, 2.0)
        connections.answered(each)
    assert (ann.closed, many.closed, more.closed) == ([], [Stage.IDLE], []), "one place for one who found none"
    connections.leave(more)
    assert len(connections) == 1
