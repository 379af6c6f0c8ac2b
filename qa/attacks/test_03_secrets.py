"""A registry that fails in every way while everybody asks about it: others are served, and no secret is shown."""

from __future__ import annotations

import json
from http.client import HTTPException
from pathlib import Path

import pytest

from pliant.flows.servers import free_port, mlflow_server
from pliant.flows.settings import Settings
from qa.targets import exchange, say, under_attack
from tests.fixtures.bins.published import MlflowPublisher, publish_tiny, settings_for
from tests.fixtures.live import running
from tests.fixtures.secret_registries import SECRETS, WAYS, Proxy

REQUEST = ("POST", "/predict", json.dumps({"inputs": "a dog"}).encode())


def poll(url: str) -> None:
    """Ask for a poll of the registry, for the status, and for a page that is not there."""
    for method, path, body in (("POST", "/refresh", b"{}"), ("GET", "/status", None), ("GET", "/nothing", None)):
        try:
            answer = exchange(url, method, path, body, timeout=30.0)[2].decode(errors="replace")
        except (OSError, HTTPException) as error:
            answer = str(error)
        assert "content-type" not in answer, "the service did not look at its registry"
        assert not any(secret in answer for secret in SECRETS), f"{path} shows a secret"


@pytest.mark.parametrize("way", [way for way in WAYS if way != "postgres"])
def test_a_failing_registry_with_secrets_in_its_address(way, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    publish_tiny(MlflowPublisher(tmp_path), "colours")
    direct = settings_for(tmp_path)
    project = Settings(tmp_path / "home", direct.registry_uri, Path(direct.artifact_root))
    with mlflow_server(project, free_port()) as upstream:
        proxy = Proxy(upstream)
        settings = settings_for(tmp_path, registry_uri=proxy.address, refresh_seconds=1.0)
        with running(settings, tmp_path) as service:
            proxy.fail(way)
            under_attack(service, REQUEST, [poll], f"03 a registry that {way}")
            poll(service.url)
        if way != "refuses":
            proxy.close()
    text = (tmp_path / "serve.log").read_text(errors="replace")
    shown = [secret for secret in SECRETS if secret in text]
    say(f"TARGET 03 a registry that {way}: secrets in the log: {len(shown)} (at most 0)")
    assert "refresh: failed" in text and not shown
