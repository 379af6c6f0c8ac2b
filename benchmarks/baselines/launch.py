"""Starts one of the three services, waits until it is up, and ends all that it started.

Knows commands, environments and health; what is tried of each service is in `settings.py`.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

from benchmarks.baselines.model import MODEL_VARIABLE, OPTIONS_VARIABLE, Artifact, ModelSpec
from benchmarks.baselines.settings import Options, Rival
from benchmarks.places import ROOT
from flows import servers
from pliant.errors import PliantError
from registry.names import TOKENS_TASK
from serving.tokens.catalog import Registry, load_catalog

START_SECONDS = 180.0
PROBE_SECONDS = 1.0

_QUIET = {
    "OMP_NUM_THREADS": "1",  # a framework may run the model in a thread of its own, which torch's setting does not reach
    "MKL_NUM_THREADS": "1",
    "DO_NOT_TRACK": "1",
    "BENTOML_DO_NOT_TRACK": "True",
    "BENTOML_CONTAINERIZED": "true",  # see serving/launch.py
    "OTEL_SDK_DISABLED": "true",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_SERVE_LOG_TO_STDERR": "0",
    "HF_HUB_OFFLINE": "1",
}


def model_spec(registry: Registry, alias: str) -> ModelSpec:
    """What Pliant's own service would serve. Raises as `load_catalog` does."""
    catalog = load_catalog(registry, alias)
    tasks = []
    for name in catalog.tasks:
        folder, published = registry.fetch(TOKENS_TASK + name, alias)
        tasks.append(Artifact(str(folder.absolute()), published.digest))
    backbone = Artifact(str(catalog.folder.absolute()), catalog.backbone_digest)
    return ModelSpec(backbone, tuple(tasks), catalog.image_size)


@contextmanager
def serving(rival: Rival, options: Options, model: ModelSpec, home: Path) -> Iterator[str]:
    """The address of the service, up; its log and own files are under `home`. Raises `PliantError` if it does not start."""
    port = servers.free_port()
    folder = home / "rivals" / f"{rival.name}-{port}"
    with started(rival, port, _command(rival, port), _environment(options, model, port), folder) as address:
        yield address


@contextmanager
def started(rival: Rival, port: int, command: Sequence[str], told: Mapping[str, str], folder: Path) -> Iterator[str]:
    """The address of `command`, up at `port`. `told`: variables besides ours. Its log is in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log"
    environment = {**os.environ, **_QUIET, "BENTOML_HOME": str(folder), **told}
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=environment, cwd=ROOT, stdout=output, stderr=output, start_new_session=True
        )
    try:
        address = f"http://{servers.HOST}:{port}"
        _await(f"{address}{rival.health}", rival, process, log)
        yield address
    finally:
        servers.stop(process)


def _command(rival: Rival, port: int) -> list[str]:
    if rival.name == "bentoml":
        service = "benchmarks.baselines.bentoml_service:Classifier"
        return [sys.executable, "-m", "bentoml", "serve", service, "--host", servers.HOST, "--port", str(port)]
    return [sys.executable, "-m", "benchmarks.baselines", rival.name, str(port)]


def _environment(options: Options, model: ModelSpec, port: int) -> Mapping[str, str]:
    told = {MODEL_VARIABLE: model.text(), OPTIONS_VARIABLE: json.dumps(dict(options))}
    told |= {"RAY_AUTH_TOKEN": secrets.token_hex(32)}  # else Ray writes one into the user's home
    return {**told, **(_direct_ingress(port) if options.get("ingress") == "direct" else {})}


def _direct_ingress(port: int) -> Mapping[str, str]:
    """Ray Serve's mode for throughput, in which the replica itself listens, on the one port that is left to it."""
    prefix = "RAY_SERVE_DIRECT_INGRESS_"
    ports = {f"{prefix}MIN_HTTP_PORT": str(port), f"{prefix}MAX_HTTP_PORT": str(port + 1)}
    return {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1", f"{prefix}MIN_DRAINING_PERIOD_S": "0", **ports}


def _await(health: str, rival: Rival, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            raise PliantError(f"{rival.title} ended with status {process.returncode} while starting; its log is {log}")
        if _is_up(health):
            return
        time.sleep(0.1)
    raise PliantError(f"{rival.title} was not ready within {START_SECONDS:.0f} s; its log is {log}")


def _is_up(health: str) -> bool:
    try:
        with urllib.request.urlopen(health, timeout=PROBE_SECONDS) as answer:
            return bool(answer.status == HTTPStatus.OK)
    except (OSError, urllib.error.URLError):
        return False
