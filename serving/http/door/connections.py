"""Keeps the connections of a service within their number and their times."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Protocol

from serving.http.door.limits import DoorLimits

YOUNG = 1.0  # seconds that a connection is left alone, however many there are


class Stage(IntEnum):
    """What a connection waits for."""

    HEAD = 0  # a complete head: of its first request, or of a later one that has begun
    IDLE = 1  # another request, after at least one was answered
    BODY = 2  # the rest of a body
    ANSWER = 3  # the app


class Connection(Protocol):
    def expire(self, stage: Stage) -> None:
        """Close the connection, which has been in this stage for too long, or is one too many."""

    def unread(self) -> int:
        """Return the bytes that the client has not taken yet."""

    def abort(self) -> None:
        """Close the connection without sending what is left."""


class Connections:
    """The open connections by their stage. `sweep` is called about once a second."""

    def __init__(self, limits: DoorLimits) -> None:
        self.most = limits.connections
        self._seconds = {
            Stage.HEAD: limits.head_seconds,
            Stage.IDLE: limits.head_seconds,
            Stage.BODY: limits.body_seconds,
        }
        self._reading = limits.body_seconds
        self._since: dict[Stage, dict[Connection, float]] = {stage: {} for stage in Stage}  # in order of time
        self._stage: dict[Connection, Stage] = {}
        self._unread: dict[Connection, tuple[int, float]] = {}  # bytes, and since when they have not become fewer

    def __len__(self) -> int:
        return len(self._stage)

    def enter(self, connection: Connection, now: float) -> bool:
        """Take in a new connection; if there are too many, in the place of another. Return False if there is none."""
        if len(self._stage) >= self.most:
            victim = self._victim(now)
            if victim is None:
                return False
            stage = self._stage[victim]
            self.leave(victim)
            victim.expire(stage)
        self.move(connection, Stage.HEAD, now)
        return True

    def move(self, connection: Connection, stage: Stage, now: float) -> None:
        """Note that the connection is in this stage from now on."""
        self.leave(connection)
        self._stage[connection] = stage
        self._since[stage][connection] = now

    def stage(self, connection: Connection) -> Stage | None:
        """Return a connection's stage; None for one that has left."""
        return self._stage.get(connection)

    def leave(self, connection: Connection) -> None:
        """Forget a connection."""
        stage = self._stage.pop(connection, None)
        if stage is not None:
            del self._since[stage][connection]

    def sweep(self, now: float) -> None:
        """Close the connections that have been in their stage for too long, or whose client does not read."""
        for stage, seconds in self._seconds.items():
            for connection in list(self._older(stage, now - seconds)):
                self.leave(connection)
                connection.expire(stage)
        for connection in list(self._stage):
            self._check_reading(connection, now)
        self._unread = {connection: seen for connection, seen in self._unread.items() if connection in self._stage}

    def _older(self, stage: Stage, limit: float) -> Iterator[Connection]:
        for connection, since in self._since[stage].items():
            if since > limit:
                return
            yield connection

    def _check_reading(self, connection: Connection, now: float) -> None:
        count = connection.unread()
        before, since = self._unread.get(connection, (0, now))
        if not count:
            self._unread.pop(connection, None)
        elif count < before:
            self._unread[connection] = count, now
        elif now - since > self._reading:
            self.leave(connection)
            connection.abort()
        else:
            self._unread[connection] = count, since

    def _victim(self, now: float) -> Connection | None:
        """Return the oldest connection of the stage that has most of them: who opens too many fills one stage.

        None if it is so young that its request may just be coming.
        """
        stage = max((Stage.HEAD, Stage.IDLE, Stage.BODY), key=lambda stage: len(self._since[stage]))
        return next(self._older(stage, now - YOUNG), None)
