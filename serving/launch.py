"""Starts `bentoml serve` for a system: checks the settings, starts the process, waits until it is ready, and stops it."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from pathlib import Path
from types import FrameType

import pliant.errors
from pliant import systems
from pliant.errors import InputError, WorkerError
from pliant.jsonl import open_log, write_whole
from pliant.serving.http.access.access import check_access, is_wildcard
from pliant.serving.settings import Settings, to_environment
from pliant.serving.workers.devices import devices
from pliant.settings import PREFIX
from pliant.state import read

LOCAL = {4: "127.0.0.1", 6: "[::1]"}
"""How a process of this machine reaches a service that listens on all addresses, by the version of IP."""
PROBE_SECONDS = 1.0  # for one request to /readyz: a service that is starting accepts connections and does not answer
READY_SECONDS = 300.0  # that a service has to start
RECORD = "service.json"  # in the folder of a service, for `known`
DRAIN_SECONDS = 120  # that pending requests have to end after SIGTERM

_PATHS = ("journal", "keys_file", "tls_cert", "tls_key", "trusted_keys")  # settings that name a file, if given
QUIET = {
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
"""Variables of libraries that a service sets where they are not set."""


def check(settings: Settings) -> None:
    """Check all that can be checked before serving. Raises `PliantError`, whose one sentence replaces a server's log."""
    systems.system(settings.system).part("serving", "assembly").SERVED(settings).check()


@dataclass(frozen=True, slots=True)
class Service:
    """A running `bentoml serve`; `log` is the file of its output."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path | None

    def wait_until_ready(self, seconds: float = READY_SECONDS) -> None:
        """Return when the model has run. Raises `WorkerError` if the service ends before, or takes longer than `seconds`."""
        until = time.monotonic() + seconds
        while not is_ready(self.url):
            if self.process.poll() is not None:
                status = self.process.returncode
                raise WorkerError(f"the service ended with status {status} before it was ready{self._where}")
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


@dataclass(frozen=True, slots=True)
class KnownService:
    """A service that was launched here, as its folder says. `pid`: of its process."""

    system: str
    url: str
    pid: int


def known(state: Path) -> list[KnownService]:
    """Return the services that were launched with this folder for BentoML's files and still run, by system and address."""
    services = []
    for path in state.glob(f"bentoml-*/{RECORD}"):
        with suppress(OSError, InputError):  # its process has ended, or another version wrote it
            service = read(KnownService, path.read_text("utf-8"), "a service's record")
            os.kill(service.pid, 0)
            services.append(service)
    return sorted(services, key=lambda each: (each.system, each.url))


def is_ready(url: str) -> bool:
    """Whether the service at this address says that it can answer."""
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=PROBE_SECONDS, context=_tls(url)) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def launch(settings: Settings, state: Path, port: int, log: Path | None = None, service: str = "") -> Service:
    """Check the settings and start the service. Its output goes to `log`, or else where this process's output goes.

    `state` is a folder for BentoML's own files, with a folder per port: two services in one folder would delete each
    other's metrics. `service` is the import path ("module:class") of another service than the system's own. Raises
    `PliantError` before anything is started.
    """
    settings = absolute(settings)
    check_access(settings)
    _check_port(settings.host, port)
    if settings.journal is not None:
        _check_journal(settings.journal)
    settings = settings.replace(device=",".join(devices(settings)))
    from pliant.serving.lifecycle.first_release import lacking

    if not (settings.wait_for_release and lacking(settings)):
        check(settings)
    home = (state / f"bentoml-{port}").absolute()
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError("BentoML's folder", home, f"one that this user can make ({error.strerror})") from None
    environment = _environment(settings, home, os.environ)
    with nullcontext() if log is None else open_log(log) as output:
        # A session of its own: Ctrl-C in a terminal reaches this process alone, which passes it on once.
        process = subprocess.Popen(
            _command(settings, port, service), env=environment, stdout=output, stderr=output, start_new_session=True
        )
    url = _url(settings, port)
    with suppress(OSError):  # on a full disk others do not find the service, which serves nevertheless
        write_whole(home / RECORD, json.dumps(asdict(KnownService(settings.system, url, process.pid))).encode())
    return Service(process, url, log)


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
            with suppress(WorkerError):  # a service that ends says why by its output and its status
                while_starting(service)
        return service.process.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _url(settings: Settings, port: int) -> str:
    """Return the address by which this machine reaches the service."""
    scheme, host = "https" if settings.tls_cert else "http", settings.host
    if host != "localhost":
        address = ip_address(host)
        bare = f"[{host}]" if address.version == 6 else host
        host = LOCAL[address.version] if is_wildcard(host) else bare
    return f"{scheme}://{host}:{port}"


def _tls(url: str) -> ssl.SSLContext | None:
    """Return how to probe a service of this machine with a certificate: whatever it is, also one that has expired."""
    if not url.startswith("https:"):
        return None
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _check_port(host: str, port: int) -> None:
    """Raise `InputError` for a port in use: /readyz would reach whatever listens there."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            raise InputError("port", port, f"free on {host} ({error})") from None


def _check_journal(path: Path) -> None:
    """Raise `InputError` for a journal that this user cannot write: the service would end as it starts."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        reason = "" if os.access(path if path.exists() else path.parent, os.W_OK) else "Permission denied"
        reason = "Is a directory" if path.is_dir() else reason
    except FileExistsError:
        reason = f"{path.parent} is no folder"
    except OSError as error:
        reason = str(error.strerror)
    if reason:
        raise InputError("journal", path, f"a file that this user can write ({reason})")


def _command(settings: Settings, port: int, service: str = "") -> list[str]:
    root = Path(pliant.errors.__file__).parents[1]
    options = ["--working-dir", str(root), "--host", settings.host, "--port", str(port)]
    options += ["--timeout-graceful-shutdown", str(DRAIN_SECONDS)]
    if settings.tls_cert:
        options += ["--ssl-certfile", str(settings.tls_cert), "--ssl-keyfile", str(settings.tls_key)]
    return [sys.executable, "-m", "bentoml", "serve", service or service_path(settings.system), *options]


def service_path(system: str) -> str:
    """Return the import path by which BentoML finds the service."""
    return f"{systems.system(system).module('serving', 'service')}:{system.capitalize()}Service"


def _environment(settings: Settings, home: Path, ours: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment, with its PLIANT_ variables replaced by those of the settings."""
    inherited = {name: value for name, value in ours.items() if not name.startswith(PREFIX)}
    return {**inherited, **QUIET, "BENTOML_HOME": str(home), **to_environment(settings)}


def absolute(settings: Settings) -> Settings:
    """Return the settings with absolute paths: the service has another working folder than this process."""
    uri = settings.registry_uri
    file = uri.removeprefix("sqlite:///")
    return settings.replace(
        registry_uri=f"sqlite:///{Path(file).absolute()}" if file != uri else uri,
        artifact_root=str(Path(settings.artifact_root).absolute()),
        home=settings.home.absolute(),
        **{name: path.absolute() for name in _PATHS if (path := getattr(settings, name))},
    )
