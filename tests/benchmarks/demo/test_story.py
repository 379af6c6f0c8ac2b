"""The story's clients, what it follows, and the surroundings that it makes for itself."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import ClassVar

import pytest
from rich.console import Console

from pliant.benchmarks.bins import story as bins_story
from pliant.benchmarks.demo import story
from pliant.benchmarks.demo.story_follow import Follower, Mark, MissedError
from pliant.benchmarks.demo.story_load import Answer, Clients, Mix, Said, Speech
from pliant.flows import settings
from pliant.flows.bins import config as bins_config
from pliant.serving.events import CHAMPION, ROLLBACK, Event, EventOutbox


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


def test_a_service_that_is_not_there_is_a_failure_of_each_request_and_not_of_the_clients(follower):
    with clients("http://127.0.0.1:9", Mix("good", ["good"])).running() as running:
        wait_for(follower, running, 3)
        running.check()
    assert len(running.failures) == len(running.answers)


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


def test_a_former_story_is_forgotten_but_not_what_it_has_trained(tmp_path):
    for name in ("mlruns", "journals", "store", "prefect"):
        (tmp_path / name).mkdir()
    (tmp_path / "events.jsonl").write_text("{}\n")
    story.clear(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["prefect", "store"]


def test_a_challenger_that_is_taken_back_ends_the_story_with_the_reason(follower, tmp_path):
    outbox = EventOutbox(tmp_path, "bins", None)
    outbox.emit(Event(CHAMPION, "bins", {"release": 1, "reason": "there is no champion yet"}))
    outbox.emit(Event(ROLLBACK, "bins", {"release": 2, "reason": "taken back in shadow: it is slow"}))
    outbox.attempt()
    running = clients("http://127.0.0.1:9", Mix("none", []))
    with pytest.raises(MissedError, match="release 2 is taken back in shadow: it is slow"):
        story._try(SimpleNamespace(follower=follower, running=running))
    assert [mark.name for mark in follower.marks] == ["taken back"]


@pytest.mark.parametrize(
    ("failure", "trouble", "status"), [("", "", 0), ("status 500", "", 1), ("", "The alarm did not come.", 1)]
)
def test_the_exit_status_says_whether_every_step_came_and_no_request_failed(failure, trouble, status):
    printed = io.StringIO()
    answers, marks = [Answer(1.0, 0.1, 1, True, 0.5, failure)], [Mark(1.0, "start", "it starts")]
    assert story._conclude(Console(file=printed, width=200), marks, answers, trouble) == status
    assert all(text in printed.getvalue() for text in ("it starts", failure, trouble))


def test_the_flows_of_bins_learn_from_the_journal_and_the_bad_one_differs_in_its_encoder_alone(tmp_path):
    first, after, worse = (
        bins_config.read(None, overrides)
        for overrides in (bins_story.FIRST, bins_story.after(tmp_path / "j"), bins_story.worse(tmp_path / "j"))
    )
    assert first.streams[0].lengths == ("data",)
    assert after.streams[0].lengths == (f"journal:{tmp_path / 'j'}", "data")
    assert after.embedded == first.embedded and worse.streams == after.streams
    assert worse.embedded.classifier.rate < after.embedded.classifier.rate / 100
