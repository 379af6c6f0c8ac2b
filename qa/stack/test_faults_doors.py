"""Certificates that have expired and passwords that are wrong, on a real service, MLflow's server and nginx."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest

from pliant.benchmarks.harness import Skipped
from pliant.flows import servers
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.serving.launch import launch
from qa.stack.programs import program
from qa.stack.proxy import guarded
from tests.fixtures.bins.published import MlflowPublisher, publish_tiny, settings_for
from tests.fixtures.certificate import certificate
from tests.fixtures.clients import free_port
from tests.fixtures.places import ROOT

pytestmark = pytest.mark.slow

PATIENCE = 200.0  # seconds until what hangs is given up; nothing else ends by it

SECRET, WRONG, OTHER = "first-secret-7", "wrong-secret-8", "other-secret-9"
USER, PASSWORD = "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"


def until(condition: Callable[[], Any]) -> None:
    limit = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.1)


def ask(url: str, trusted: Path | None = None, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    context = None if trusted is None else ssl.create_default_context(cafile=trusted)
    with urllib.request.urlopen(request, timeout=60, context=context) as answer:
        return answer.read().decode() if url.endswith("/metrics") else json.load(answer)


@pytest.fixture
def clean(monkeypatch):
    for name in (USER, PASSWORD, "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)


def test_a_service_whose_certificate_has_expired_says_so_and_takes_a_new_one_while_it_runs(clean, tmp_path):
    publish_tiny(MlflowPublisher(tmp_path), "colours")
    own, new = certificate(tmp_path / "own", -1.0), certificate(tmp_path / "new", 30.0)
    settings = settings_for(tmp_path, tls_cert=own.path, tls_key=own.key)
    service = launch(settings, tmp_path / "state", free_port(), tmp_path / "serve.log")
    try:
        service.wait_until_ready(PATIENCE)
        with pytest.raises(URLError, match="certificate has expired"):
            ask(f"{service.url}/predict", own.path, {"inputs": "a dog"})
        shutil.copy(new.key, own.key)
        shutil.copy(new.path, own.path)
        until(lambda: "is in force, until" in (tmp_path / "serve.log").read_text())
        assert ask(f"{service.url}/predict", new.path, {"inputs": "a dog"})[0]["label"] == "red"
        (sample,) = [
            line for line in ask(f"{service.url}/metrics", new.path).splitlines() if line.startswith("pliant_tls_")
        ]
        assert float(sample.split()[-1]) > time.time() + 29 * 86_400
    finally:
        assert service.stop() == 0
    log = (tmp_path / "serve.log").read_text()
    assert f"the certificate {own.path} has expired on " in log and "Traceback" not in log


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory) -> Iterator[str]:
    """An MLflow server that holds a stream of bins."""
    try:
        program("nginx")
    except Skipped as error:
        pytest.skip(str(error))
    home, port = tmp_path_factory.mktemp("mlflow"), servers.free_port()
    url = f"http://{servers.HOST}:{port}"
    command = [sys.executable, "-m", "mlflow", "server", "--host", servers.HOST, "--port", str(port), "--workers", "1"]
    command += ["--serve-artifacts", "--artifacts-destination", str(home / "artifacts")]
    quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_BACKEND_STORE_URI": f"sqlite:///{home}/mlflow.db"}
    with servers.running("MLflow", command, quiet, f"{url}/health", home):
        publisher = MlflowPublisher(home)
        publisher._registry = MlflowRegistry(url, "pliant-bins", home)
        publish_tiny(publisher, "colours")
        yield url


def command(words: str, home: Path, **variables: str) -> str:
    """What a command says on standard error that fails with one sentence."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PLIANT_HOME": str(home / "home"), **variables}
    done = subprocess.run(
        [sys.executable, "-m", "pliant.cli", *words.split()],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
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
        settings = settings_for(tmp_path, registry_uri=uri, refresh_seconds=1.0)
        service = launch(settings, tmp_path / "state", free_port(), tmp_path / "serve.log")
        try:
            service.wait_until_ready(PATIENCE)
            guard.change({"anna": OTHER})
            until(lambda: ask(f"{service.url}/status")["refresh"]["outcome"] == "failed")
            refresh = ask(f"{service.url}/status")["refresh"]["message"]
            assert ask(f"{service.url}/predict", body={"inputs": "a dog"})[0]["label"] == "red"
            guard.change({"anna": SECRET})
            until(lambda: ask(f"{service.url}/status")["refresh"]["outcome"] == "unchanged")
        finally:
            assert service.stop() == 0
    assert "it does not accept the name and the password" in refresh
    log = (tmp_path / "serve.log").read_text()
    assert SECRET not in log + refresh and "Traceback" not in log
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
        settings = settings_for(tmp_path, registry_uri=guard.url, refresh_seconds=1.0)
        service = launch(settings, tmp_path / "state", free_port(), tmp_path / "serve.log")
        try:
            service.wait_until_ready(PATIENCE)
            shutil.copy(expired.path, trusted)
            shutil.copy(expired.path, own.path)
            shutil.copy(expired.key, own.key)
            guard.reload()
            until(lambda: ask(f"{service.url}/status")["refresh"]["outcome"] == "failed")
            refresh = ask(f"{service.url}/status")["refresh"]["message"]
            assert ask(f"{service.url}/predict", body={"inputs": "a dog"})[0]["label"] == "red"
        finally:
            assert service.stop() == 0
        said = command("status bins", tmp_path, MLFLOW_TRACKING_URI=guard.url)
    fault = (
        f"the certificate of the MLflow server at {guard.url} is not valid (certificate has expired): renew it there"
    )
    assert refresh == fault and said == f"pliant: {fault}"
