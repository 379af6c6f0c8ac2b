"""Certificates that have expired and passwords that are wrong, on a real service, MLflow's server and nginx."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pliant.registry.mlflow_store import MlflowRegistry
from qa.prefect_server import until
from qa.stack.servers import connect, guarded, installed, mlflow_server
from tests.fixtures.bins.published import MlflowPublisher, publish_tiny, settings_for
from tests.fixtures.certificate import certificate
from tests.fixtures.live import running
from tests.fixtures.places import ROOT

pytestmark = pytest.mark.slow

PATIENCE = 200.0  # seconds until what hangs is given up; nothing else ends by it
SECRET, WRONG, OTHER = "first-secret-7", "wrong-secret-8", "other-secret-9"
USER, PASSWORD = "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"


def label(url: str, trusted: Path | None = None) -> str:
    """The class of an answer."""
    with connect(url, trusted=trusted) as client:
        answer = client.post("/predict", json={"inputs": "a dog"}).raise_for_status()
    return str(answer.json()[0]["label"])


def refresh(url: str) -> dict[str, Any]:
    """What the service says of its last look at the registry."""
    with connect(url) as client:
        return client.get("/status").raise_for_status().json()["refresh"]


@pytest.fixture
def clean(monkeypatch):
    for name in (USER, PASSWORD, "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)


def test_a_service_whose_certificate_has_expired_starts_and_says_so_and_its_clients_refuse_it(clean, tmp_path):
    publish_tiny(MlflowPublisher(tmp_path), "colours")
    own = certificate(tmp_path / "own", -1.0)
    expired = pytest.raises(httpx.ConnectError, match="certificate has expired")
    with running(settings_for(tmp_path, tls_cert=own.path, tls_key=own.key), tmp_path) as service, expired:
        label(service.url, own.path)
    log = (tmp_path / "serve.log").read_text()
    assert f"the certificate {own.path} has expired on " in log and "Traceback" not in log


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory) -> Iterator[str]:
    """An MLflow server that holds a stream of bins."""
    installed("nginx")
    home = tmp_path_factory.mktemp("mlflow")
    with mlflow_server(home, f"sqlite:///{home}/mlflow.db", home) as url:
        publisher = MlflowPublisher(home)
        publisher._registry = MlflowRegistry(url, "pliant-bins", home)
        publish_tiny(publisher, "colours")
        yield url


def command(words: str, home: Path, **variables: str) -> str:
    """What a command says on standard error that fails with one sentence."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PLIANT_HOME": str(home / "home"), **variables}
    line = [sys.executable, "-m", "pliant", *words.split()]
    done = subprocess.run(line, cwd=home, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert not any(secret in done.stdout + done.stderr for secret in (SECRET, WRONG, OTHER))
    return done.stderr.splitlines()[-1]


def test_commands_without_the_registrys_password_say_what_to_set(clean, mlflow, tmp_path):
    with guarded(mlflow, tmp_path / "nginx", {"anna": SECRET}) as guard:
        none = command("status bins", tmp_path, MLFLOW_TRACKING_URI=guard.url)
        assert none.endswith(f"it asks for a name and a password: set {USER} and {PASSWORD} (401)")
        wrong = {"MLFLOW_TRACKING_URI": guard.url, USER: "anna", PASSWORD: WRONG}
        answer = command("serve bins --port 0", tmp_path, **wrong)
        assert answer.endswith(f"it does not accept the name and the password of {USER} and {PASSWORD} (401)")
        early = command("train bins", tmp_path, MLFLOW_TRACKING_URI=guard.address("anna", WRONG))
        assert early.endswith("it does not accept the name and the password in its address (401)")


@pytest.mark.parametrize("place", ["address", "variables"])
def test_a_service_outlasts_a_change_of_the_registrys_password_and_never_prints_it(
    place, clean, mlflow, tmp_path, monkeypatch
):
    with guarded(mlflow, tmp_path / "nginx", {"anna": SECRET}) as guard:
        if place == "variables":
            monkeypatch.setenv(USER, "anna")
            monkeypatch.setenv(PASSWORD, SECRET)
        uri = guard.url if place == "variables" else guard.address("anna", SECRET)
        with running(settings_for(tmp_path, registry_uri=uri, refresh_seconds=1.0), tmp_path) as service:
            guard.change({"anna": OTHER})
            until(lambda: refresh(service.url)["outcome"] == "failed", PATIENCE)
            said = refresh(service.url)["message"]
            assert label(service.url) == "red"
            guard.change({"anna": SECRET})
            until(lambda: refresh(service.url)["outcome"] == "unchanged", PATIENCE)
    assert "it does not accept the name and the password" in said
    log = (tmp_path / "serve.log").read_text()
    assert SECRET not in log + said and "Traceback" not in log
    assert not [
        path for path in (tmp_path / "home").rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()
    ]


def test_a_registry_whose_certificate_expires_is_one_sentence_for_commands_and_running_services(
    clean, mlflow, tmp_path, monkeypatch
):
    own, expired = certificate(tmp_path / "tls", 1.0), certificate(tmp_path / "expired", -1.0)
    trusted = tmp_path / "trusted.pem"
    shutil.copy(own.path, trusted)
    monkeypatch.setenv("MLFLOW_TRACKING_SERVER_CERT_PATH", str(trusted))
    with guarded(mlflow, tmp_path / "nginx", certificate=own) as guard:
        with running(settings_for(tmp_path, registry_uri=guard.url, refresh_seconds=1.0), tmp_path) as service:
            shutil.copy(expired.path, trusted)
            shutil.copy(expired.path, own.path)
            shutil.copy(expired.key, own.key)
            guard.reload()
            until(lambda: refresh(service.url)["outcome"] == "failed", PATIENCE)
            told = refresh(service.url)["message"]
            assert label(service.url) == "red"
        said = command("status bins", tmp_path, MLFLOW_TRACKING_URI=guard.url)
    fault = (
        f"the certificate of the MLflow server at {guard.url} is not valid (certificate has expired): renew it there"
    )
    assert told == fault and said == f"pliant: {fault}"
