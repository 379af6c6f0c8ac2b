"""Where `bentoml serve` is called directly, paths count from its folder, and it listens as the settings say."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from subprocess import Popen

import psutil
import pytest

from pliant.errors import InputError
from pliant.serving.bento import hosting, supervisor
from pliant.serving.bento.supervisor import listening, prepare
from pliant.serving.settings import from_environment
from pliant.serving.tokens.settings import TokensSettings


def test_relative_paths_and_defaults_are_made_absolute_in_the_folder_of_the_call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    environment = {"PLIANT_REGISTRY_URI": "sqlite:///m.db", "PLIANT_KEYS_FILE": "keys.json", "PLIANT_MARGIN": "0.2"}
    prepare(environment)
    settings = from_environment(environment, TokensSettings)
    assert settings.registry_uri == f"sqlite:///{tmp_path / 'm.db'}"
    assert (settings.home, settings.keys_file) == (tmp_path / ".pliant", tmp_path / "keys.json")
    assert settings.artifact_root == str(tmp_path / "mlruns" / "artifacts")
    assert (settings.margin, settings.tls_cert, settings.journal) == (0.2, None, None)


def test_the_registry_is_mlflow_s_unless_the_setting_names_another():
    prepare(environment := {"MLFLOW_TRACKING_URI": "http://mlflow:5000"})
    assert environment["PLIANT_REGISTRY_URI"] == "http://mlflow:5000"
    prepare(environment := {"MLFLOW_TRACKING_URI": "http://mlflow:5000", "PLIANT_REGISTRY_URI": "http://other"})
    assert environment["PLIANT_REGISTRY_URI"] == "http://other"


def test_with_a_certificate_it_speaks_https():
    given = {"PLIANT_TLS_CERT": "/tls/cert.pem", "PLIANT_TLS_KEY": "/tls/key.pem"}
    assert listening(given)["ssl"] == {"enabled": True, "certfile": "/tls/cert.pem", "keyfile": "/tls/key.pem"}


@pytest.mark.parametrize("name", ["PLIANT_TLS_CERT", "PLIANT_TLS_KEY"])
def test_a_certificate_at_a_relative_path_is_refused(name):
    with pytest.raises(InputError, match="an absolute path"):
        listening({name: "cert.pem"})


def test_bentoml_calls_the_hook_before_it_starts_the_service(monkeypatch, tmp_path):
    """As `server_on_deployment` of BentoML does: on the class, without an instance."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(hosting.os, "environ", environment := {})
    waits = []
    monkeypatch.setattr(hosting, "wait_for_release", lambda *given: waits.append(given))
    kind = type("Hosted", (hosting.HostedService,), {"SYSTEM": "bins"})
    for hook in [getattr(kind, name) for name in dir(kind)]:
        if callable(hook) and getattr(hook, "__bentoml_deployment_hook__", False):
            hook()
    assert environment["PLIANT_HOME"] == str(Path(tmp_path) / ".pliant")
    assert waits == [("bins", environment)]


def waiting_for(code: str, monkeypatch) -> None:
    """Wait for a process that runs this code in the place of its own."""
    monkeypatch.setattr(supervisor.subprocess, "Popen", lambda command, **more: Popen([*command[:2], code], **more))
    supervisor.wait_for_release("bins", {**os.environ, "PLIANT_WAIT_FOR_RELEASE": "60"})


def test_what_the_waiting_process_says_is_logged_and_its_failure_ends_this_one(monkeypatch, caplog):
    waiting_for("print('nothing yet')", monkeypatch)
    assert caplog.messages == ["nothing yet"]
    with pytest.raises(SystemExit) as ended:
        waiting_for("print('a wrong password'); raise SystemExit(2)", monkeypatch)
    assert ended.value.code == 2 and caplog.messages[1:] == ["a wrong password"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_and_its_process_and_handlers_are_given_back(number, monkeypatch, caplog):
    before, others = signal.getsignal(number), set(psutil.Process().children())  # other tests may have left some
    code = f"import os, time; os.kill(os.getppid(), {int(number)}); print(os.getpid(), flush=True); time.sleep(600)"
    with pytest.raises(SystemExit) as ended:
        waiting_for(code, monkeypatch)
    assert not ended.value.code and signal.getsignal(number) is before
    assert caplog.messages[-1] == "the service ends before there was anything to serve"
    assert set(psutil.Process().children()) <= others
