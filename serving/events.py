"""Events that a service or a command sends to Prefect, without Prefect: kept on disk until its server has them.

Each event is written to `PLIANT_HOME/events.jsonl`, the latest of which `pliant watch` shows. Where PREFECT_API_URL names a
server, events also wait in an outbox of their own until the server has taken them: at least once each, always with the
same identifier, by which Prefect knows an event that it has already. A server that is gone is tried again ever more
rarely; the outbox survives a restart of its process. With a full disk it stays in memory, which is logged once.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from pliant.errors import InputError
from pliant.jsonl import append_whole, complete_lines, write_whole
from pliant.serving.state_file import Writing

logger = logging.getLogger("pliant")

ALARM, PROMISE_BROKEN, CHAMPION = "pliant.alarm", "pliant.promise-broken", "pliant.champion"
ROLLBACK, TRIAL, REFUSED = "pliant.rollback", "pliant.trial", "pliant.refused"
FLOW_FAILED = "pliant.flow-failed"

MOST_WAITING = 1000  # events in an outbox; the oldest goes first
MOST_BYTES = 2**20  # of events.jsonl, of which then the newer half stays
MOST_EVENT_BYTES = 64 * 2**10  # Prefect's limit is 1.5 MB
BATCH = 50
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0  # seconds between two attempts; doubled after each that failed
POST_SECONDS = 5.0
KEPT_STATUS = (401, 403, 404, 408, 409, 425, 429)
"""Statuses below 500 that say nothing against the events: a wrong key or address, or a server that is busy."""


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to a system. `payload`: plain values, `reason` among them, a sentence; `occurred`: ISO 8601, UTC."""

    name: str
    system: str
    payload: Mapping[str, Any]
    occurred: str = field(default_factory=lambda: datetime.now(UTC).isoformat())
    identity: str = field(default_factory=lambda: str(uuid4()))

    def to_prefect(self) -> dict[str, Any]:
        """Return the event as Prefect's REST interface takes it."""
        resource = {"prefect.resource.id": f"pliant.{self.system}", "prefect.resource.name": self.system}
        return {
            "id": self.identity,
            "event": self.name,
            "occurred": self.occurred,
            "resource": resource,
            "payload": dict(self.payload),
        }


def from_line(line: str) -> Event:
    """Return the event of a line of a file. Raises `InputError` for anything else."""
    try:
        event = Event(**json.loads(line))
        UUID(event.identity)
        datetime.fromisoformat(event.occurred)
        if not all(isinstance(text, str) for text in (event.name, event.system)) or not isinstance(event.payload, dict):
            raise TypeError("a field has another type")
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError("event", line[:100], f"one of Pliant's events ({error})") from None
    return event


def latest_events(home: Path, most: int = 100) -> list[Event]:
    """Return the last events that any process of this PLIANT_HOME wrote, the oldest first."""
    path = home / "events.jsonl"
    return _events(path)[-most:] if path.is_file() else []


@dataclass(frozen=True, slots=True)
class EventServer:
    """Prefect's server: the address of its API, and what it wants of its clients."""

    api: str
    key: str = ""
    auth: str = ""

    def post(self, events: Iterable[Event]) -> None:
        """Give the server these events. Raises `OSError`, of which `HTTPError` is one, where it does not take them."""
        headers = {"content-type": "application/json"}
        if self.auth:
            headers["authorization"] = f"Basic {base64.b64encode(self.auth.encode()).decode()}"
        elif self.key:
            headers["authorization"] = f"Bearer {self.key}"
        body = json.dumps([event.to_prefect() for event in events]).encode()
        request = urllib.request.Request(f"{self.api.rstrip('/')}/events", body, headers, method="POST")
        with urllib.request.urlopen(request, timeout=POST_SECONDS):
            pass


def server_of(environment: Mapping[str, str]) -> EventServer | None:
    """Return the server that PREFECT_API_URL names, with its key or authorization; None without one.

    Raises `InputError` for an address that is not of http.
    """
    address = environment.get("PREFECT_API_URL", "")
    if not address:
        return None
    if not address.startswith(("http://", "https://")):
        raise InputError("PREFECT_API_URL", repr(address), "an address that begins with http:// or https://")
    key, auth = (environment.get(name, "") for name in ("PREFECT_API_KEY", "PREFECT_API_AUTH_STRING"))
    return EventServer(address, key, auth)


class EventOutbox:
    """Events on their way. One outbox a process: `name` is its file's, such as the system's or `command`.

    `emit` takes microseconds and may be called from any thread. `run` sends from an event loop, without ever blocking it;
    `deliver` sends here and now, for a command.
    """

    def __init__(
        self, home: Path, name: str, server: EventServer | None, post: Callable[[list[Event]], None] | None = None
    ) -> None:
        self._log, self._file = home / "events.jsonl", home / "outbox" / f"{name}.jsonl"
        self._post = post or (server.post if server is not None else None)
        self._lock, self._work = threading.Lock(), threading.Lock()
        self._fresh: list[Event] = []  # neither written to a file nor sent
        self._unlogged: list[Event] = []  # that events.jsonl lacks, as the disk was full
        self._waiting: list[Event] = _events(self._file) if self._file.is_file() else []
        self._logging, self._saving = Writing("events", self._log), Writing("events", self._file)
        self._complained = False  # that the server does not answer
        self._wake: Callable[[], object] = lambda: None  # nobody: no loop sends

    @property
    def waiting(self) -> int:
        """The number of events that Prefect's server does not have yet."""
        return len(self._fresh) + len(self._waiting)

    def emit(self, event: Event) -> None:
        """Take an event. Raises `InputError` for a payload that is no JSON, or too large."""
        try:
            size = len(json.dumps(event.to_prefect(), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise InputError("payload", event.name, f"plain values that JSON can hold ({error})") from None
        if size > MOST_EVENT_BYTES:
            raise InputError("payload", f"{size} bytes", f"at most {MOST_EVENT_BYTES} bytes as JSON")
        logger.info("event %s of %s: %s", event.name, event.system, event.payload.get("reason", ""))
        with self._lock:
            self._fresh.append(event)
        self._wake()

    def deliver(self, within: float = POST_SECONDS) -> bool:
        """Keep and send what waits; try again until `within` seconds are over. Return whether nothing waits any more."""
        until, wait = time.monotonic() + within, 0.1
        while not self.attempt() and time.monotonic() + wait < until:
            time.sleep(wait)
            wait *= 2
        return not self.waiting or self._post is None

    async def run(self) -> None:
        """Keep and send events until it is cancelled, in a thread beside the loop; what waits then is on disk."""
        loop, awake = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: loop.call_soon_threadsafe(awake.set)
        wait = FIRST_WAIT
        try:
            while True:
                awake.clear()
                sent = await asyncio.to_thread(self.attempt) if self.waiting or self._unlogged else True
                wait = FIRST_WAIT if sent else min(2 * wait, LONGEST_WAIT)
                if sent and not self._fresh:
                    await awake.wait()
                elif not sent:
                    await asyncio.sleep(wait)
        finally:
            self._wake = lambda: None

    def attempt(self) -> bool:
        """Write fresh events to disk and send what waits, once; return whether nothing is left to be sent."""
        with self._work:
            with self._lock:
                fresh, self._fresh = self._fresh, []
            unlogged = (self._unlogged + fresh)[-MOST_WAITING:]
            if unlogged:
                logged = _try(self._logging, lambda: self._append(unlogged))
                self._unlogged = [] if logged else unlogged
            if self._post is None:
                return True
            self._waiting += fresh
            if len(self._waiting) > MOST_WAITING:
                lost = len(self._waiting) - MOST_WAITING
                del self._waiting[:lost]
                logger.warning("%d events were given up, as Prefect's server has been gone for long", lost)
            if fresh or self._saving.failing:
                self._save()
            return self._send(self._post)

    def _send(self, post: Callable[[list[Event]], None]) -> bool:
        size = BATCH
        while self._waiting:
            batch = self._waiting[:size]
            try:
                post(batch)
            except urllib.error.HTTPError as error:
                error.close()
                if error.code in KEPT_STATUS or error.code >= 500:
                    return self._complain(error)
                if len(batch) > 1:  # one of them is bad, and does not keep the others
                    size = 1
                    continue
                logger.warning("Prefect's server refused the event %s with status %d", batch[0].name, error.code)
            except (OSError, ValueError) as error:
                return self._complain(error)
            self._complained = False
            del self._waiting[: len(batch)]
            self._save()
        return True

    def _save(self) -> None:
        """Write what waits, as a whole: the file is either the former one or this."""

        def replace() -> None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._file, b"".join(map(_line, self._waiting)))

        _try(self._saving, replace)

    def _append(self, events: Iterable[Event]) -> None:
        """Append whole lines to the log, all or none."""
        if append_whole(self._log, b"".join(map(_line, events))) > MOST_BYTES:
            newer = self._log.read_bytes()[-MOST_BYTES // 2 :]
            write_whole(self._log, newer[newer.find(b"\n") + 1 :])

    def _complain(self, error: Exception) -> bool:
        """Log the first failure of a row of them to reach the server; return False."""
        if not self._complained:
            logger.warning("Prefect's server cannot be reached (%s); %d events wait", error, self.waiting)
        self._complained = True
        return False


def _try(writing: Writing, write: Callable[[], None]) -> bool:
    """Write, and return whether that succeeded."""
    try:
        write()
    except OSError as error:
        writing.failed(f"events cannot be written ({error}); they wait in memory")
        return False
    writing.succeeded()
    return True


def _line(event: Event) -> bytes:
    return json.dumps(asdict(event)).encode() + b"\n"


def _events(path: Path) -> list[Event]:
    events = []
    for line in complete_lines(path, path.name):
        try:
            events.append(from_line(line))
        except InputError:
            continue  # torn, or written by somebody else
    return events
