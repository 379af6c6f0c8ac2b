"""Starts `bentoml serve` for a system: checks the settings, starts the process, waits until it is ready, and stops it."""

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
from pliant.lines import open_log
from serving.settings import PREFIX, Settings, to_environment

HOST = "127.0.0.1"
PROBE_SECONDS = 1.0  # for one request to /readyz: a service that is starting accepts connections and does not answer
DRAIN_SECONDS = 120  # that pending requests have to end after SIGTERM

_QUIET = {
    "BENTOML_DO_NOT_TRACK": "True",
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "OTEL_SDK_DISABLED": "true",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",  # its threads would take processor time from the device for a single text
    # Without it a service that cannot start is restarted for ever, and /readyz hangs meanwhile.
    "BENTOML_CONTAINERIZED": "true",
}


def check(settings: Settings) -> None:
    """Check all that can be checked before serving. Raises `PliantError`, whose one sentence replaces a server's log."""
    systems.system(settings.system).part("serving", "assembly").check(settings)


@dataclass(frozen=True, slots=True)
class Service:
    """A running `bentoml serve`; `log` is the file of its output."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path | None

    def wait_until_ready(self, seconds: float = 300.0) -> None:
        """Return when the model has run. Raises `WorkerError` if the service ends before, or takes longer than `seconds`."""
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
        """Send SIGTERM, wait until pending requests are answered, and return the exit status (0 for a clean end)."""
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
    """Check the settings and start the service. Its output goes to `log`, or else where this process's output goes.

    `state` is a folder for BentoML's own files, with a folder per port: two services in one folder would delete each
    other's metrics. Raises `PliantError` before anything is started.
    """
    settings = _absolute(settings)
    _check_port(port)
    check(settings)
    home = (state / f"bentoml-{port}").absolute()
    home.mkdir(parents=True, exist_ok=True)
    environment = _environment(settings, home, os.environ)
    with _output(log) as output:
        # A session of its own: Ctrl-C in a terminal reaches this process alone, which passes it on once.
        process = subprocess.Popen(
            _command(settings.system, port), env=environment, stdout=output, stderr=output, start_new_session=True
        )
    return Service(process, f"http://{HOST}:{port}", log)


def serve(settings: Settings, state: Path, port: int, while_starting: Callable[[Service], None] | None = None) -> int:
    """Run the service in the foreground until SIGTERM or SIGINT, and return its exit status.

    `while_starting` is called with the service once its process runs, and may wait until the service is ready.
    """
    service = launch(settings, state, port)

    def forward(_number: int, _frame: FrameType | None) -> None:
        service.process.send_signal(signal.SIGTERM)

    previous = {number: signal.signal(number, forward) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        if while_starting is not None:
            with contextlib.suppress(WorkerError):  # a service that ends says why by its output and its status
                while_starting(service)
        return service.process.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _check_port(port: int) -> None:
    """Raise `InputError` for a port in use: /readyz would reach whatever listens there."""
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
    """Return the import path by which BentoML finds the service."""
    return f"serving.{system}.service:{system.capitalize()}Service"


def _environment(settings: Settings, home: Path, ours: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment, with its PLIANT_ variables replaced by those of the settings."""
    inherited = {name: value for name, value in ours.items() if not name.startswith(PREFIX)}
    return {**inherited, **_QUIET, "BENTOML_HOME": str(home), **to_environment(settings)}


def _absolute(settings: Settings) -> Settings:
    """Return the settings with absolute paths: the service has another working folder than this process."""
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
    with open_log(log) as file:
        yield file.fileno()
