"""Starts `bentoml serve` for a system and watches over it: checked before, ready when it says so, drained at the end.

Knows the child process, its environment and its health; knows nothing of what it serves but the settings it hands on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import serving
from pliant import systems
from pliant.errors import InputError, WorkerError
from serving.settings import PREFIX, Settings, to_environment

HOST = "127.0.0.1"
PROBE_SECONDS = 1.0  # of one look at /readyz: a service that starts accepts connections and leaves them hanging
DRAIN_SECONDS = 120  # in which requests in flight end after SIGTERM

_QUIET = {
    "BENTOML_DO_NOT_TRACK": "True",
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "OTEL_SDK_DISABLED": "true",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",  # its threads would take the device's processor for one text
    # Without it a service that cannot start is started again for ever, and /readyz hangs meanwhile.
    "BENTOML_CONTAINERIZED": "true",
}


def check(settings: Settings) -> None:
    """Everything that can be known before serving. Raises `PliantError`: one sentence instead of a server's log."""
    systems.system(settings.system).part("serving", "assembly").check(settings)


@dataclass(frozen=True, slots=True)
class Service:
    """A running `bentoml serve`."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path | None

    def wait_until_ready(self, seconds: float = 300.0) -> None:
        """Return when the model has run. Raises `WorkerError` where the service ends before, or takes longer."""
        until = time.monotonic() + seconds
        while not self._is_ready():
            if self.process.poll() is not None:
                raise WorkerError(
                    f"the service ended with status {self.process.returncode} before it was ready{self._where}"
                )
            if time.monotonic() > until:
                raise WorkerError(f"the service was not ready within {seconds:g} s{self._where}")
            time.sleep(0.05)

    def stop(self, seconds: float = DRAIN_SECONDS + 30.0) -> int:
        """SIGTERM, then wait until what is in flight is answered; the exit status, 0 for a clean end."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    @property
    def _where(self) -> str:
        return f"; see {self.log}" if self.log else ""

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=PROBE_SECONDS) as response:
                return bool(response.status == 200)
        except (OSError, urllib.error.URLError):
            return False


def launch(settings: Settings, state: Path, port: int, log: Path | None = None) -> Service:
    """Check, then start; its output goes to `log`, or where ours goes. Raises `PliantError` before anything is started.

    `state` is a folder for BentoML's own files; each port has its own there, since two running services in one would
    wipe each other's metrics.
    """
    settings = _absolute(settings)
    _check_port(port)
    check(settings)
    home = (state / f"bentoml-{port}").absolute()
    home.mkdir(parents=True, exist_ok=True)
    environment = _environment(settings, home, os.environ)
    with _output(log) as output:
        # A session of its own: Ctrl-C in a terminal reaches us alone, and we pass it on once.
        process = subprocess.Popen(
            _command(settings.system, port), env=environment, stdout=output, stderr=output, start_new_session=True
        )
    return Service(process, f"http://{HOST}:{port}", log)


def serve(settings: Settings, state: Path, port: int, while_starting: Callable[[Service], None] | None = None) -> int:
    """In the foreground until SIGTERM or SIGINT; the service's exit status.

    `while_starting` is called with the service when it begins to start; it may wait until it is ready.
    """
    service = launch(settings, state, port)

    def forward(_number: int, _frame: FrameType | None) -> None:
        service.process.send_signal(signal.SIGTERM)

    former = {number: signal.signal(number, forward) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        if while_starting is not None:
            with contextlib.suppress(WorkerError):  # one that ends tells why itself, by its output and its status
                while_starting(service)
        return service.process.wait()
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _check_port(port: int) -> None:
    """Or a look at /readyz would find whoever is there already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError) as error:
            raise InputError("port", port, f"free on {HOST} ({error})") from None


def _command(system: str, port: int) -> list[str]:
    root = Path(serving.__file__).parents[1]
    options = ["--working-dir", str(root), "--host", HOST, "--port", str(port)]
    options += ["--timeout-graceful-shutdown", str(DRAIN_SECONDS)]
    return [sys.executable, "-m", "bentoml", "serve", _service(system), *options]


def _service(system: str) -> str:
    """Where BentoML finds the service."""
    return f"serving.{system}.service:{system.capitalize()}Service"


def _environment(settings: Settings, home: Path, ours: Mapping[str, str]) -> dict[str, str]:
    """Ours without what would set settings behind our back, and with what the service is told."""
    kept = {name: value for name, value in ours.items() if not name.startswith(PREFIX)}
    return {**kept, **_QUIET, "BENTOML_HOME": str(home), **to_environment(settings)}


def _absolute(settings: Settings) -> Settings:
    """The service works in another folder than we do."""
    uri, journal = settings.registry_uri, settings.journal
    file = uri.removeprefix("sqlite:///")
    return dataclasses.replace(
        settings,
        registry_uri=f"sqlite:///{Path(file).absolute()}" if file != uri else uri,
        artifact_root=str(Path(settings.artifact_root).absolute()),
        home=settings.home.absolute(),
        journal=journal.absolute() if journal else None,
    )


@contextmanager
def _output(log: Path | None) -> Iterator[int | None]:
    if log is None:
        yield None
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        yield file.fileno()
