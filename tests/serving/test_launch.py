"""How `bentoml serve` is started, watched and ended, without starting it."""

from __future__ import annotations

import signal
import socket
from contextlib import closing
from pathlib import Path

import pytest

from pliant.errors import InputError, WorkerError
from pliant.serving import launch
from pliant.serving.launch import Service
from pliant.serving.settings import from_environment
from pliant.serving.tokens.settings import TokensSettings


class Process:
    """A service's process: ends with `status` once it got a signal, or by itself at the look number `ends`."""

    def __init__(self, ends: int | None = None, status: int = 0) -> None:
        self.ends, self.returncode, self.looks = ends, status, 0
        self.signals: list[int] = []

    def poll(self):
        self.looks += 1
        return self.returncode if self.signals or (self.ends is not None and self.looks > self.ends) else None

    def send_signal(self, number):
        self.signals.append(number)

    def wait(self, seconds=None):
        self.seconds = seconds
        return self.returncode


def service(process: Process, log: Path | None = None) -> Service:
    return Service(process, "http://127.0.0.1:1", log)


def test_one_that_ends_before_is_an_error_that_names_status_and_log(monkeypatch):
    monkeypatch.setattr(Service, "_is_ready", lambda self: False)
    with pytest.raises(WorkerError, match=r"the service ended with status 3 before it was ready; see the-log"):
        service(Process(ends=1, status=3), Path("the-log")).wait_until_ready()
    with pytest.raises(WorkerError, match=r"before it was ready$"):
        service(Process(ends=0, status=3)).wait_until_ready()


def test_with_a_certificate_it_is_https_and_bentoml_gets_both_files():
    settings = TokensSettings(tls_cert=Path("cert.pem"), tls_key=Path("key.pem"))
    assert launch._url(settings, 443) == "https://127.0.0.1:443"
    command = launch._command(settings, 443)
    assert command[-4:] == ["--ssl-certfile", "cert.pem", "--ssl-keyfile", "key.pem"]


def test_the_environment_holds_the_settings_instead_of_this_process_s_own():
    settings = TokensSettings(margin=0.3)
    ours = {"PATH": "/bin", "PLIANT_GAMMA": "4", "HF_HUB_OFFLINE": "0"}
    environment = launch._environment(settings, Path("/home"), ours)
    assert from_environment(environment, TokensSettings) == settings
    assert environment["PATH"] == "/bin" and environment["BENTOML_HOME"] == "/home"
    assert environment["HF_HUB_OFFLINE"] == "1"


def test_a_port_in_use_is_refused_and_a_free_one_is_not():
    with closing(socket.socket()) as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        with pytest.raises(InputError, match=f"port is {port}, but must be free on 127.0.0.1"):
            launch._check_port("127.0.0.1", port)
    launch._check_port("127.0.0.1", port)
    with pytest.raises(InputError, match="port is 70000"):
        launch._check_port("127.0.0.1", 70000)


def test_launching_checks_before_it_starts_and_keeps_the_output(tmp_path, monkeypatch):
    steps = []
    monkeypatch.setattr(launch, "check", lambda settings: steps.append("check"))

    def start(command, env, stdout, stderr, start_new_session):
        steps.append("start")
        assert stdout == stderr and start_new_session and Path(env["BENTOML_HOME"]).is_dir()
        return Process()

    monkeypatch.setattr(launch.subprocess, "Popen", start)
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started = launch.launch(TokensSettings(device="cpu"), tmp_path / "state", port, tmp_path / "log")
    assert steps == ["check", "start"] and started.url == f"http://127.0.0.1:{port}"
    assert started.log == tmp_path / "log" and (tmp_path / "state" / f"bentoml-{port}").is_dir()


@pytest.mark.parametrize("lacking", ["there is no registry", ""])
def test_what_waits_for_its_first_release_is_checked_once_there_is_one(lacking, tmp_path, monkeypatch):
    checks = []
    commands = started(monkeypatch)
    monkeypatch.setattr(launch, "check", checks.append)
    monkeypatch.setattr("pliant.serving.lifecycle.first_release.lacking", lambda settings: lacking)
    monkeypatch.setattr(launch, "_check_port", lambda host, port: None)
    settings = TokensSettings(home=tmp_path, device="cpu", wait_for_release=60.0)
    launch.launch(settings, tmp_path / "state", 3000)
    assert len(commands) == 1 and len(checks) == (0 if lacking else 1)


def test_serving_passes_signals_on_once_and_gives_them_back(monkeypatch):
    process = Process(status=7)
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(launch, "launch", lambda *_: service(process))

    def while_starting(_service):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)
        raise WorkerError("it ended")

    assert launch.serve(TokensSettings(), Path("state"), 1, while_starting) == 7
    assert process.signals == [signal.SIGTERM] * 2
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def started(monkeypatch) -> list[list[str]]:
    commands: list[list[str]] = []
    monkeypatch.setattr(launch, "check", lambda settings: None)
    monkeypatch.setattr(launch.subprocess, "Popen", lambda command, **_: commands.append(command) or Process())
    return commands


def test_nothing_is_started_where_everybody_could_call_or_another_service_listens(tmp_path, monkeypatch):
    commands = started(monkeypatch)
    with pytest.raises(InputError, match=r"host is 192\.0\.2\.7, but must be an address of this machine alone"):
        launch.launch(TokensSettings(host="192.0.2.7", home=tmp_path), tmp_path, 3000)
    with closing(socket.socket()) as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        with pytest.raises(InputError, match="port is"):
            launch.launch(TokensSettings(home=tmp_path), tmp_path, busy.getsockname()[1])
    assert commands == [] and list(tmp_path.iterdir()) == []
