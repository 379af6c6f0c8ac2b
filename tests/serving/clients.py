"""Several clients that ask one after the other until told to stop, and what a test of a real service needs besides."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.serving.tokens_http import png

PATIENCE = 300.0  # seconds until what hangs is given up; nothing else ends by it
PAUSE = 0.05  # seconds between a client's requests: what is exchanged meanwhile needs the processor too


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def call(service, method: str, path: str, body: bytes | None = None, kind: str = "application/json"):
    """Status and decoded answer."""
    connection = http.client.HTTPConnection(service.url.removeprefix("http://"), timeout=PATIENCE)
    connection.request(method, path, body, {"content-type": kind} if body else {})
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def question(task: str = "digits", deadline: float = 30.0) -> bytes:
    return json.dumps({"image": base64.b64encode(png()).decode(), "task": task, "deadline": deadline}).encode()


def ask(service, task: str = "digits", deadline: float = 30.0):
    return call(service, "POST", "/v1/predict", question(task, deadline))


def wait_for(condition, seconds: float = PATIENCE) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)


@dataclass
class Clients:
    """`answers` in the order in which they came: status, body, seconds from asking to the answer."""

    answers: list[tuple[int, Any, float]] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def ask_on(self, service, task: str) -> None:
        connection = http.client.HTTPConnection(service.url.removeprefix("http://"), timeout=PATIENCE)
        while not self.stopped.wait(PAUSE):
            began = time.monotonic()
            connection.request("POST", "/v1/predict", question(task), {"content-type": "application/json"})
            response = connection.getresponse()
            answer = json.loads(response.read())
            self.answers.append((response.status, answer, time.monotonic() - began))

    def versions(self, task: str) -> list[dict[str, int]]:
        """Each once, in the order in which they first came."""
        seen = [body["versions"] for status, body, _ in list(self.answers) if status == 200 and body["task"] == task]
        return [one for index, one in enumerate(seen) if one not in seen[:index]]


@contextmanager
def asking(service, tasks: list[str]) -> Iterator[Clients]:
    """One client a task as long as the context lasts."""
    clients = Clients()
    threads = [threading.Thread(target=clients.ask_on, args=(service, task)) for task in tasks]
    for thread in threads:
        thread.start()
    try:
        yield clients
    finally:
        clients.stopped.set()
        for thread in threads:
            thread.join(PATIENCE)
