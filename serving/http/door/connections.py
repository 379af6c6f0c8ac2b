"""Keeps the connections of a service within their number and their times."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

STALLED = 1.0  # seconds without progress after which a request that has begun may make room for another connection


class Stage(IntEnum):
    """What a connection waits for."""

    HEAD = 0  # the rest of a head
    IDLE = 1  # a request: its first, or another one
    BODY = 2  # the rest of a body
    ANSWER = 3  # the app


@dataclass(frozen=True, slots=True)
class DoorLimits:
    """Sizes in bytes, times in seconds."""

    head_bytes: int = 64 * 1024  # request line and headers together; also what a body may add besides its content
    headers: int = 100
    head_seconds: float = 10.0  # from a head's first byte until it is complete
    # That a connection may be idle: longer than clients and proxies keep theirs, usually 60 s.
    idle_seconds: float = 75.0
    body_seconds: float = 60.0  # from a complete head to a complete body, and that an answer may wait for its reader
    pipelined: int = 16  # requests on a connection that wait for the answer of the first
    connections: int = 1024


class Connection(Protocol):
    def expire(self, stage: Stage) -> None:
        """Close the connection, which has been in this stage for too long, or is one too many."""

    def unread(self) -> int:
        """Return the bytes that the client has not taken yet."""

    def abort(self) -> None:
        """Close the connection without sending what is left."""


class Connections:
    """The open connections by their stage. Only `sweep`, called about once a second, takes longer the more there are.

    One too many takes the place of the one that has been idle longest. A request that has begun and comes to a stand counts
    as idle from then on; one that makes progress, or waits for its answer, is never closed for that. The tenant with the
    most connections gives up its own first, where all are busy at the end of an answer; those of which nobody has said whose
    they are count as one tenant's.
    """

    def __init__(self, limits: DoorLimits) -> None:
        self.most, self._reading = limits.connections, limits.body_seconds
        head, idle, body = limits.head_seconds, limits.idle_seconds, limits.body_seconds
        self._seconds = {Stage.HEAD: head, Stage.IDLE: idle, Stage.BODY: body}
        self._since: dict[Stage, dict[Connection, float]] = {stage: {} for stage in Stage}  # in order of time
        self._stage: dict[Connection, Stage] = {}
        self._owner: dict[Connection, str] = {}  # tenants of the open connections; "" until they are known
        self._owned: Counter[str] = Counter()
        self._short = False  # whether somebody found no place since the last one was given up
        self._progress: dict[Connection, float] = {}  # of those in a head or a body, in order of time
        self._unread: dict[Connection, tuple[int, float]] = {}  # bytes, and since when they have not become fewer

    def __len__(self) -> int:
        return len(self._stage)

    def enter(self, connection: Connection, now: float) -> bool:
        """Take in a new connection; if there are too many, in the place of another. Return False if there is none."""
        if len(self._stage) >= self.most:
            victim = self._longest_idle(now)
            if victim is None:
                self._short = True
                return False
            self._give_up(victim)
        self.move(connection, Stage.IDLE, now)
        self._owner[connection] = ""
        self._owned[""] += 1
        return True

    def own(self, connection: Connection, tenant: str) -> None:
        """Note whose an open connection is."""
        if self._owner.get(connection, tenant) != tenant:
            self._disown(connection)
            self._owner[connection] = tenant
            self._owned[tenant] += 1

    def answered(self, connection: Connection) -> None:
        """Give up an idle connection, whose answer is written, if somebody found no place and its owner has the most."""
        if self._short and self._owner.get(connection) == self._largest():
            self._short = False
            self._give_up(connection)

    def _largest(self) -> str:
        return max(self._owned, key=lambda name: self._owned[name], default="")

    def _disown(self, connection: Connection) -> None:
        tenant = self._owner.pop(connection, None)
        if tenant is not None:
            self._owned[tenant] -= 1
            if not self._owned[tenant]:
                del self._owned[tenant]

    def _give_up(self, connection: Connection) -> None:
        stage = self._stage[connection]
        self.leave(connection)
        connection.expire(stage)

    def move(self, connection: Connection, stage: Stage, now: float) -> None:
        """Note that the connection is in this stage from now on."""
        self._leave_stage(connection)
        self._stage[connection] = stage
        self._since[stage][connection] = now
        if stage in (Stage.HEAD, Stage.BODY):
            self._progress[connection] = now

    def progressed(self, connection: Connection, now: float) -> None:
        """Note that more of a connection's request has come."""
        if self._progress.pop(connection, None) is not None:
            self._progress[connection] = now  # as the last in order

    def stage(self, connection: Connection) -> Stage | None:
        """Return a connection's stage; None for one that has left."""
        return self._stage.get(connection)

    def leave(self, connection: Connection) -> None:
        """Forget a connection."""
        self._leave_stage(connection)
        self._disown(connection)

    def _leave_stage(self, connection: Connection) -> None:
        stage = self._stage.pop(connection, None)
        if stage is not None:
            del self._since[stage][connection]
            self._progress.pop(connection, None)

    def sweep(self, now: float) -> None:
        """Close the connections that have been in their stage for too long, or whose client does not read."""
        for stage, seconds in self._seconds.items():
            for connection, since in list(self._since[stage].items()):
                if since > now - seconds:
                    break
                self._give_up(connection)
        former, self._unread = self._unread, {}
        for connection in list(self._stage):
            count = connection.unread()
            before, since = former.get(connection, (0, now))
            if count and before <= count and now - since > self._reading:
                self.leave(connection)
                connection.abort()
            elif count:
                self._unread[connection] = count, now if count < before else since

    def _longest_idle(self, now: float) -> Connection | None:
        """Return the connection on which nothing has come for longest; None if all make progress or wait for answers.

        Among those without a request, the ones of the tenant with the most connections come first.
        """
        waiting, largest = self._since[Stage.IDLE], self._largest()
        theirs = ((each, since) for each, since in waiting.items() if self._owner.get(each, "") == largest)
        idle = next(theirs, None) or next(iter(waiting.items()), None)
        begun = next(iter(self._progress.items()), None)
        if begun is None or now - begun[1] < STALLED:
            return None if idle is None else idle[0]
        return begun[0] if idle is None or begun[1] < idle[1] else idle[0]
