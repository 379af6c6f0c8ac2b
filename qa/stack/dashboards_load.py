"""Clients of a system's endpoint that make happen what dashboards draw: answers, labels, refusals, streams that are left."""

from __future__ import annotations

import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pliant.benchmarks.demo.story_load import Speech
from pliant.errors import PliantError
from qa.stack.plans import Plan

DEADLINE = 30.0  # seconds of a request, so that none is refused because the machine is slow
TIMEOUT = 60.0
PAUSE = 0.05  # seconds between two requests of a client
PERIOD = 10.0  # seconds
SILENCE = (
    2.0  # seconds at the beginning of each period in which no client sends: some things happen in idle moments alone
)
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
        try:
            with self._open(path, body, key) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, error.read()[:300].decode(errors="replace")
        except (OSError, ValueError) as error:
            return 0, f"{type(error).__name__}: {error}"

    def leave(self, path: str, body: Any) -> None:
        """Begin to read a stream, and leave before its end."""
        with self._open(path, body, "") as answer:
            answer.readline()

    def get(self, path: str, key: str) -> Any:
        """Return what the endpoint says to a request without a body. Raises `OSError`."""
        with self._open(path, None, key) as answer:
            return json.loads(answer.read())

    def _open(self, path: str, body: Any, key: str) -> Any:
        headers = {"content-type": "application/json", "authorization": f"Bearer {key or self.key}"}
        data = None if body is None else json.dumps(body).encode()
        context = None if self.trusted is None else ssl.create_default_context(cafile=str(self.trusted))
        request = urllib.request.Request(f"{self.url}{path}", data, headers)
        return urllib.request.urlopen(request, timeout=TIMEOUT, context=context)


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


@contextmanager
def clients_of(
    endpoints: Mapping[str, Endpoint], plans: Mapping[str, Plan], count: int
) -> Iterator[dict[str, Clients]]:
    """Run so many clients of each system, with what they send before any change."""
    with ExitStack() as running:
        listed = {
            system: Clients(endpoint, plans[system].speech, plans[system].before.examples)
            for system, endpoint in endpoints.items()
        }
        for clients in listed.values():
            running.enter_context(clients.running(count))
        yield listed


def misbehave(endpoint: Endpoint, plan: Plan) -> list[str]:
    """Send what is refused, and leave a stream where the interface has them; return what was not refused as it should be."""
    speech, example, wrong = plan.speech, plan.before.examples[0], list[str]()
    status, answer = endpoint.post(speech.path, {})
    if not 400 <= status < 500:
        wrong.append(f"an empty request to {speech.path} gets {status}: {answer}")
    body = speech.body(example, DEADLINE)
    statuses = list[int]()
    threads = [
        threading.Thread(target=lambda: statuses.append(endpoint.post(speech.path, body, endpoint.limited)[0]))
        for _ in range(BURST)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
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
