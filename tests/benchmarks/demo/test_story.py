"""The story's clients, what it follows, and the surroundings that it makes for itself."""

from __future__ import annotations

import os

import pytest

from pliant.benchmarks.demo import story
from pliant.benchmarks.demo.story_follow import Follower
from pliant.benchmarks.demo.story_load import Clients, Mix, Said, Speech
from pliant.flows import settings
from tests.fixtures.listener import Message, listening


def answer(message: Message) -> tuple[int, bytes]:
    """Answer every request, but for those that say so."""
    return (503, b"busy") if b"bad" in message.body else (200, b'{"version": 4}')


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
    with listening(answer) as service, clients(service.url, Mix("good", ["good"])).running() as running:
        wait_for(follower, running, 5)
        assert not running.failures
        assert {(each.version, each.correct, each.confidence) for each in running.answers} == {(4, True, 0.75)}
        running.mix = Mix("bad", ["bad"])
        before = len(running.answers)
        wait_for(follower, running, before + 20)
    assert running.failures and all("status 503: busy" in each.failure for each in running.failures)
    assert all(each.headers["x-pliant-key"].startswith("client ") for each in service.messages)


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
