"""Commands in front of a registry that is gone: one sentence, status 2, and nothing has changed."""

from __future__ import annotations

import os
import socket

import pytest

from pliant.registry.mlflow_store import MlflowRegistry
from tests.cli.test_releases import BINS, place, published, served
from tests.fixtures.commands import refused

__all__ = ["BINS", "place", "published"]  # fixtures

COMMANDS = (["status", "bins"], ["promote", "bins", "2"], ["rollback", "bins"], ["rollback", "bins", "--to", "1"])


@pytest.fixture
def nobody() -> str:
    """An address at which nobody answers."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_tracking_server_that_is_gone_is_one_sentence(words, here, nobody, capsys):
    os.environ["MLFLOW_TRACKING_URI"] = nobody
    sentence = refused(words, capsys)
    assert nobody in sentence and "Traceback" not in sentence


@pytest.mark.parametrize("words", COMMANDS[1:], ids=" ".join)
def test_a_registry_that_goes_before_the_commit_leaves_what_was_served(words, place, monkeypatch, capsys):
    connect = MlflowRegistry.connect

    def fail(*_arguments, **_more):
        from mlflow.exceptions import MlflowException

        raise MlflowException("the server is gone")

    def connected(self, create=False):
        client = connect(self, create)
        monkeypatch.setattr(client, "set_registered_model_alias", fail)
        return client

    with monkeypatch.context() as patch:
        patch.setattr(MlflowRegistry, "connect", connected)
        sentence = refused(words, capsys)
    assert "the server is gone" in sentence and "bins could not be released" in sentence
    assert served() == 3
    assert not (place / ".pliant" / "events.jsonl").exists(), "no event says what did not happen"
