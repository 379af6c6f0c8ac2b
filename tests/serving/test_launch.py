"""How `bentoml serve` is started, watched and ended, without starting it."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from pliant.errors import InputError, WorkerError
from pliant.serving import launch
from pliant.serving.launch import DRAIN_SECONDS, Service
from pliant.serving.settings import from_environment
from pliant.serving.tokens.settings import TokensSettings
from tests.fixtures.certificate import make_certificate


class Process:
    """A service's process: ends with `status` once it got a signal, or by itself at the look number `ends`."""

    def __init__(self, ends: int | None = None, status: int = 0) -> None:
        self.ends, self.returncode, self.looks = ends, status, 0
        self.signals: list[int] = []
        self.pid = os.getpid()

    def poll(self):
        self.looks += 1
        return self.returncode if self.signals or (self.ends is not None and self.looks > self.ends) else None

    def send_signal(self, number):
        self.signals.append(number)

    def wait(self, seconds=None):
        self.seconds = seconds
        return self.returncode


@pytest.fixture
def free() -> int:
    """A port at which nobody listens."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize(
    ("process", "log", "sentence"),
    [
        (Process(ends=1, status=3), Path("the-log"), r"ended with status 3 before it was ready; see the-log$"),
        (Process(ends=0, status=3), None, r"before it was ready$"),
        (Process(), None, r"was not ready within 0\.01 s$"),
    ],
)
def test_one_that_ends_before_or_takes_too_long_is_an_error(process, log, sentence, free):
    with pytest.raises(WorkerError, match=sentence):
        Service(process, f"http://127.0.0.1:{free}", log).wait_until_ready(0.01 if process.ends is None else 60.0)


def test_stopping_sends_sigterm_once_and_gives_pending_requests_their_time():
    running, ended = Process(status=0), Process(ends=0, status=5)
    assert Service(running, "", None).stop() == 0
    assert running.signals == [signal.SIGTERM] and running.seconds > DRAIN_SECONDS
    assert Service(ended, "", None).stop() == 5
    assert ended.signals == []


def test_serving_passes_signals_on_once_and_gives_them_back(monkeypatch):
    process = Process(status=7)
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(launch, "launch", lambda *_: Service(process, "", None))

    def while_starting(_service):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)
        raise WorkerError("it ended")

    assert launch.serve(TokensSettings(), Path("state"), 1, while_starting) == 7
    assert process.signals == [signal.SIGTERM] * 2
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


@pytest.fixture
def steps(monkeypatch) -> list[object]:
    """What was checked, and then started: "check", and a command with its options; nothing is started."""
    taken: list[object] = []

    def start(command, **options):
        taken.append(SimpleNamespace(command=command, **options))
        return Process()

    monkeypatch.setattr(launch, "check", lambda settings: taken.append("check"))
    monkeypatch.setattr(launch.subprocess, "Popen", start)
    return taken


def test_the_settings_are_checked_and_reach_the_service_in_place_of_this_process_s_own(
    steps, free, tmp_path, monkeypatch
):
    monkeypatch.setenv("PLIANT_GAMMA", "4")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    certificate, key = make_certificate(tmp_path)
    settings = TokensSettings(device="cpu", margin=0.3, home=tmp_path, tls_cert=certificate, tls_key=key)
    service = launch.launch(settings, tmp_path / "state", free, tmp_path / "log")
    check, started = steps
    assert check == "check" and started.stdout == started.stderr and started.start_new_session
    given = from_environment(started.env, TokensSettings)
    assert (given.margin, given.gamma, started.env["HF_HUB_OFFLINE"]) == (0.3, TokensSettings().gamma, "1")
    assert started.env["BENTOML_HOME"] == str(tmp_path / "state" / f"bentoml-{free}")
    assert (tmp_path / "state" / f"bentoml-{free}").is_dir() and "PATH" in started.env
    assert started.command[-4:] == ["--ssl-certfile", str(certificate), "--ssl-keyfile", str(key)]
    assert (service.url, service.log) == (f"https://127.0.0.1:{free}", tmp_path / "log")
    assert launch.known(tmp_path / "state") == [launch.KnownService("tokens", service.url, os.getpid())]


@pytest.mark.parametrize("lacking", ["there is no registry", ""])
def test_what_waits_for_its_first_release_is_checked_once_there_is_one(lacking, steps, free, tmp_path, monkeypatch):
    monkeypatch.setattr("pliant.serving.lifecycle.first_release.lacking", lambda settings: lacking)
    settings = TokensSettings(home=tmp_path, device="cpu", wait_for_release=60.0)
    launch.launch(settings, tmp_path / "state", free)
    assert steps[:-1] == ([] if lacking else ["check"])


def test_nothing_is_started_where_everybody_could_call_or_another_service_listens(steps, tmp_path):
    with pytest.raises(InputError, match=r"host is 192\.0\.2\.7, but must be an address of this machine alone"):
        launch.launch(TokensSettings(host="192.0.2.7", home=tmp_path), tmp_path, 3000)
    with closing(socket.socket()) as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        for port in (busy.getsockname()[1], 70000):
            with pytest.raises(InputError, match=f"port is {port}, but must be free on 127.0.0.1"):
                launch.launch(TokensSettings(home=tmp_path), tmp_path, port)
    assert steps == [] and list(tmp_path.iterdir()) == []
