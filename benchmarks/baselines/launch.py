"""Starts a service that Pliant is compared with, waits until it is up, and ends all that it started.

Knows commands, environments and health; what is tried of each service is in `settings.py`.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pliant.benchmarks.baselines.model import MODEL_VARIABLE, OPTIONS_VARIABLE, Artifact, ModelSpec
from pliant.benchmarks.baselines.settings import Options, Rival
from pliant.benchmarks.load_generator import allow_many_connections
from pliant.benchmarks.places import ROOT
from pliant.flows import servers
from pliant.registry.names import TOKENS_TASK
from pliant.serving.lifecycle.catalog import Registry
from pliant.serving.tokens.catalog import load_catalog

PACKAGE = "pliant.benchmarks.baselines"
START_SECONDS = 180.0

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
    "TOKENIZERS_PARALLELISM": "false",
}


def model_spec(registry: Registry, alias: str) -> ModelSpec:
    """Return what Pliant's own service would serve, in its precision. Raises as `load_catalog` does."""
    catalog = load_catalog(registry, alias)
    tasks = []
    for name in catalog.tasks:
        folder, published = registry.fetch(TOKENS_TASK + name, alias)
        tasks.append(Artifact(str(folder.absolute()), published.digest))
    backbone = Artifact(str(catalog.backbone.folder.absolute()), catalog.backbone.digest)
    return ModelSpec(backbone, tuple(tasks), catalog.backbone.image_size, catalog.profile.precision)


@contextmanager
def serving(rival: Rival, options: Options, model: str, home: Path) -> Iterator[str]:
    """Give the address of a ready service of `model` (the text of its spec); its log and own files are under `home`.

    Raises `PliantError` if it does not start.
    """
    allow_many_connections()
    port = servers.free_port()
    folder = home / "rivals" / f"{rival.name}-{port}"
    folder.mkdir(parents=True, exist_ok=True)
    if ":" in rival.service:
        words = ["bentoml", "serve", f"{PACKAGE}.{rival.service}", "--host", servers.HOST, "--port", str(port)]
    else:
        words = [PACKAGE, rival.service, str(port)]
    variables = {MODEL_VARIABLE: model, OPTIONS_VARIABLE: json.dumps(dict(options)), "BENTOML_HOME": str(folder)}
    variables |= {"RAY_AUTH_TOKEN": secrets.token_hex(32)}  # else Ray writes one into the user's home
    if options.get("ingress") == "direct":  # for throughput the replica itself listens, on the one port left to it
        prefix = "RAY_SERVE_DIRECT_INGRESS_"
        variables |= {f"{prefix}MIN_HTTP_PORT": str(port), f"{prefix}MAX_HTTP_PORT": str(port + 1)}
        variables |= {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1", f"{prefix}MIN_DRAINING_PERIOD_S": "0"}
    environment = {**os.environ, **_QUIET, **variables}
    address = f"http://{servers.HOST}:{port}"
    command = [sys.executable, "-m", *words]
    with servers.running(
        rival.title, command, environment, address + rival.health, folder / "log", folder=ROOT, seconds=START_SECONDS
    ):
        yield address
