"""A real tracking server tells a registered service that a release was moved."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pliant.errors import RegistryError
from pliant.flows import servers, settings
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.names import release
from pliant.registry.webhooks import moves_release, register, verified
from tests.fixtures.listener import Listener, listening

SECRET = "a secret of the service"


@pytest.fixture
def receiver() -> Iterator[Listener]:
    """A service's endpoint."""
    with listening(lambda _message: (202, b"")) as listener:
        yield listener


@pytest.fixture
def registry(tmp_path: Path, monkeypatch) -> Iterator[MlflowRegistry]:
    for name, value in {
        "PLIANT_HOME": str(tmp_path / "home"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path / 'mlflow.db'}",
        "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "http,https",
        "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true",
        "MLFLOW_WEBHOOK_CACHE_TTL": "1",
    }.items():
        monkeypatch.setenv(name, value)
    with servers.mlflow_server(settings.read(), servers.free_port()) as address:
        yield MlflowRegistry(address, "pliant-tokens", tmp_path / "artifacts")


def test_a_real_server_tells_a_registered_service_of_a_moved_release(registry, receiver):
    client, name = registry.connect(create=True), release("tokens")
    first = register(registry, "tokens", f"{receiver.url}/v1/registry", "a secret of before")
    assert register(registry, "tokens", f"{receiver.url}/v1/registry", SECRET) == first  # the same, with another secret
    assert register(registry, "bins", f"{receiver.url}/v1/registry", SECRET) != first
    assert len(client.list_webhooks()) == 2
    client.create_registered_model(name)
    client.create_model_version(name, "s3://nowhere/model")
    client.set_registered_model_alias(name, "champion", "1")
    until = time.monotonic() + 60
    while not receiver.messages and time.monotonic() < until:
        time.sleep(0.05)
    (message,) = receiver.messages
    body, sent = message.body, message.headers
    assert json.loads(body)["data"] == {"name": name, "alias": "champion", "version": "1"}
    assert verified(body, sent, SECRET, time.time())
    assert not verified(body, sent, "a secret of before", time.time())
    assert moves_release(body, "tokens")
    assert not moves_release(body, "bins")
    with pytest.raises(RegistryError, match=r"the webhook could not be registered at http://127.0.0.1.*scheme"):
        register(registry, "tokens", "ftp://host/hook", SECRET)
