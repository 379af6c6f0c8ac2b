"""Clients of a system's endpoint that make happen what dashboards draw: answers, labels, refusals, streams that are left."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

from pliant.benchmarks.demo.story_load import Speech
from pliant.errors import PliantError
from qa.stack.plans import Plan
from qa.targets import bearer, exchange, sent

DEADLINE = 30.0  # seconds of a request, so that none is refused because the machine is slow
TIMEOUT = 60.0
PAUSE = 0.05  # seconds between two requests of a client
PERIOD = 10.0  # seconds
SILENCE = 2.0  # seconds at the beginning of each period without a request: some things happen in idle moments alone
OK, MANY = 200, 429
BURST = 5  # requests at once of a tenant that may send one a second


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an endpoint is, and the keys of its clients. `limited`: of a tenant that may send one request a second;
    `trusted`: file of the certificate that a service with TLS has."""

    url: str
    key: str
    limited: str = ""
    trusted: Path | None = None

    def post(self, path: str, body: Any, key: str = "") -> tuple[int, Any]:
        """Return the status of an answer, and what it says; 0 and the error where none came."""
        data, headers = json.dumps(body).encode(), bearer(key or self.key)
        try:
            status, _, content = exchange(self.url, "POST", path, data, headers, TIMEOUT, self.trusted)
            return status, json.loads(content or b"null") if status < 400 else content[:300].decode(errors="replace")
        except (OSError, HTTPException, ValueError) as error:
            return 0, f"{type(error).__name__}: {error}"

    def leave(self, path: str, body: Any) -> None:
        """Begin to read a stream, and leave before its end."""
        data = json.dumps(body).encode()
        with sent(self.url, "POST", path, data, bearer(self.key), TIMEOUT, self.trusted) as answer:
            answer.readline()

    def get(self, path: str, key: str) -> Any:
        """Return what the endpoint says to a request without a body. Raises `PliantError`."""
        status, _, content = exchange(self.url, "GET", path, None, bearer(key), TIMEOUT, self.trusted)
        if status != OK:
            raise PliantError(f"{self.url}{path} is answered with {status}: {content[:300]!r}")
        return json.loads(content)


@dataclass(slots=True)
class Clients:
    """Several clients, each of which sends the next example when the last was answered, and reports the label.

    `falsely`: labels are those of other examples, so that a promise of accuracy is broken.
    """

    endpoint: Endpoint
    speech: Speech
    examples: Sequence[Any]
    falsely: bool = False
    answered: int = 0
    failures: list[str] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self, count: int) -> Iterator[Clients]:
        """Run so many clients while the context lasts."""
        threads = [threading.Thread(target=self._send_all, args=(number,), daemon=True) for number in range(count)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            for thread in threads:
                thread.join(TIMEOUT)

    def _send_all(self, first: int) -> None:
        number = first
        while not self._ended.wait(PAUSE):
            if time.monotonic() % PERIOD < SILENCE:
                continue
            examples = self.examples
            self._send(examples[number * 7 % len(examples)], examples[(number * 7 + 1) % len(examples)])
            number += 1

    def _send(self, example: Any, other: Any) -> None:
        """Send an example, and report its label, or, falsely, that of another one where that differs."""
        status, answer = self.endpoint.post(self.speech.path, self.speech.body(example, DEADLINE))
        if status != OK:
            self.failures.append(f"{status}: {answer}")
            return
        self.answered += 1
        label = self.speech.label(answer, other if self.falsely else example)
        if label is not None:
            self.endpoint.post("/v1/outcomes", label)


def misbehave(endpoint: Endpoint, plan: Plan) -> list[str]:
    """Send what is refused, and leave a stream where the interface has them; return what was not refused as it should be."""
    speech, example, wrong = plan.speech, plan.before.examples[0], list[str]()
    status, answer = endpoint.post(speech.path, {})
    if not 400 <= status < 500:
        wrong.append(f"an empty request to {speech.path} gets {status}: {answer}")
    body = speech.body(example, DEADLINE)
    with ThreadPoolExecutor(BURST) as pool:
        statuses = list(pool.map(lambda _: endpoint.post(speech.path, body, endpoint.limited)[0], range(BURST)))
    if MANY not in statuses or OK not in statuses:
        wrong.append(f"{BURST} requests at once of a tenant that may send one a second get {statuses}")
    if speech.path.endswith("/chat/completions"):
        endpoint.leave(speech.path, {**body, "stream": True})
    return wrong


def await_all(what: str, seconds: float, ready: Mapping[str, Callable[[], bool]]) -> None:
    """Return once all are true. Raises `PliantError` that names those that are not within so many seconds."""
    until = time.monotonic() + seconds
    missing = list(ready)
    while missing := [name for name in missing if not ready[name]()]:
        if time.monotonic() > until:
            raise PliantError(f"{what} did not come within {seconds:.0f} s at {', '.join(missing)}")
        time.sleep(0.5)
