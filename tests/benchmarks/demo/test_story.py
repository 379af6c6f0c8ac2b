"""The story's clients, what it follows, and the surroundings that it makes for itself."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from pliant.benchmarks.demo import story
from pliant.benchmarks.demo.story_follow import Follower
from pliant.benchmarks.demo.story_load import Clients, Mix, Said, Speech
from pliant.flows import settings


class _Service(BaseHTTPRequestHandler):
    """Answers every request, but for those that say so, and keeps their keys."""

    keys: ClassVar[set[str]] = set()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.keys.add(self.headers["x-pliant-key"])
        self.send_response(503 if b"bad" in body else 200)
        self.end_headers()
        self.wfile.write(b"busy" if b"bad" in body else b'{"version": 4}')

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def service() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def clients(address: str, mix: Mix) -> Clients:
    def body(example: str, deadline: float) -> dict[str, object]:
        return {"inputs": example, "deadline": deadline}

    speech = Speech("/predict", body, lambda answer, example: Said(answer["version"], example == "good", 0.75))
    return Clients(address, speech, mix, rate=200.0, deadline=10.0, start=0.0)


def wait_for(follower: Follower, running: Clients, count: int) -> None:
    follower.wait("answers", 30, lambda: True if len(running.answers) >= count else None, running)


@pytest.fixture
def follower(tmp_path) -> Follower:
    return Follower(tmp_path, "bins", lambda _line: None)


def test_clients_send_with_keys_and_count_an_error_as_a_failure(follower):
    with service() as address, clients(address, Mix("good", ["good"])).running() as running:
        wait_for(follower, running, 5)
        assert not running.failures
        assert {(each.version, each.correct, each.confidence) for each in running.answers} == {(4, True, 0.75)}
        running.mix = Mix("bad", ["bad"])
        before = len(running.answers)
        wait_for(follower, running, before + 20)
    assert running.failures and all("status 503: busy" in each.failure for each in running.failures)
    assert all(key.startswith("client ") for key in _Service.keys)


def test_the_story_has_a_folder_and_a_registry_of_its_own_and_gives_back_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("PLIANT_HOME", str(tmp_path / "mine"))
    monkeypatch.setenv("PREFECT_API_URL", "http://prefect.example/api")
    monkeypatch.delenv("PLIANT_ROLLOUT", raising=False)
    before = dict(os.environ)
    with story.own_environment(tmp_path / "story"):
        project = settings.read()
        assert project.home == tmp_path / "story"
        assert project.artifact_root == tmp_path / "story" / "mlruns" / "artifacts"
        assert os.environ["PLIANT_ROLLOUT"] == "canary" and "PREFECT_API_URL" not in os.environ
    assert dict(os.environ) == before
