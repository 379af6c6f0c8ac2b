"""Starts and stops the servers that a command needs: Prefect's and MLflow's. Only processes started here are ended.

They are started from Python, not from a shell: a process started with `&` ignores the signal that should end it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pliant.errors import PliantError
from pliant.flows.progress import say
from pliant.flows.settings import Settings
from pliant.jsonl import open_log

HOST = "127.0.0.1"
PORTS = {"MLflow": 5000, "Prefect": 4200, "House": 4300}
"""Where people look for each server, and where links lead."""
START_SECONDS, STOP_SECONDS = 90.0, 10.0


def free_port(preferred: int = 0) -> int:
    """Return `preferred` if nobody listens there, else any free port."""
    for port in (preferred, 0):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
            return int(probe.getsockname()[1])
    raise PliantError("no port of this machine is free")


def usual_port(name: str) -> int:
    """Return the usual port of a server, or say that it is taken and return another."""
    port = free_port(PORTS[name])
    if port != PORTS[name]:
        say(f"port {PORTS[name]} is taken, so {name} has port {port}")
    return port


@contextmanager
def prefect_server(settings: Settings, port: int, meanwhile: Callable[[], object] = lambda: None) -> Iterator[str]:
    """Run a Prefect server, with its database under `settings.home`, and give its address.

    `meanwhile` is called while it starts.
    """
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", HOST, "--port", str(port)]
    # Kept in memory, as they are by default, leases are lost with the server, and a flow ends that cannot renew its own.
    leases = {
        **os.environ,
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    }
    with running("Prefect", command, leases, f"http://{HOST}:{port}/api/health", _log(settings, "prefect"), meanwhile):
        yield f"http://{HOST}:{port}"


@contextmanager
def mlflow_server(settings: Settings, port: int) -> Iterator[str]:
    """Run MLflow's user interface on the registry; gives its address."""
    store = ["--backend-store-uri", settings.tracking_uri, "--default-artifact-root", str(settings.artifact_root)]
    command = [sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", str(port), "--workers", "1"]
    quiet = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with running(
        "MLflow",
        [*command, "--no-serve-artifacts", *store],
        quiet,
        f"http://{HOST}:{port}/health",
        _log(settings, "mlflow"),
    ):
        yield f"http://{HOST}:{port}"


@contextmanager
def running(
    name: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    health: str,
    path: Path,
    meanwhile: Callable[[], object] = lambda: None,
    folder: Path | None = None,
    seconds: float = START_SECONDS,
) -> Iterator[None]:
    """Run a server, whose output goes to the log `path`, while the context lasts; it is up when `health` answers 200.

    `folder`: where it runs. Raises `PliantError` where it ends before, or is not up within so many seconds.
    """
    with open_log(path) as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=folder, start_new_session=True)
        try:
            meanwhile()
            until = time.monotonic() + seconds
            while not answers(health):
                if process.poll() is not None:
                    raise PliantError(
                        f"{name} ended with status {process.returncode} while starting; its log is {path}"
                    )
                if time.monotonic() > until:
                    raise PliantError(f"{name} was not ready within {seconds:.0f} s; its log is {path}")
                time.sleep(0.2)
            yield
        finally:
            stop(process)


def _log(settings: Settings, name: str) -> Path:
    return settings.home / "logs" / f"{name}.log"


def answers(health: str) -> bool:
    """Whether a server says at this address that it is up."""
    with contextlib.suppress(OSError), urllib.request.urlopen(health, timeout=2) as answer:
        return bool(answer.status == 200)
    return False


def stop(process: subprocess.Popen[bytes]) -> int:
    """Send SIGTERM, then SIGKILL to what is left of its process group; return the exit status."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()
