"""all-MiniLM-L6-v2 as a stream of the bins system, in a registry of the benchmark's own, made by the flow.

The flow measures the encoder here and chooses its bins for the trace's lengths. Run again it finds all stages made. It
runs in a process of its own, which learns of the registry by the variables that flows/settings.py reads.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pliant.benchmarks import places
from pliant.benchmarks.baselines.model import Artifact
from pliant.benchmarks.baselines.text_model import TextSpec
from pliant.benchmarks.bins.requests import TASK
from pliant.bins.artifact import Bins, Encoder
from pliant.bins.runtimes.cache import cache_folder
from pliant.errors import PliantError
from pliant.flows import settings
from pliant.flows.bins import champions as bins_champions
from pliant.flows.champions import load_champions
from pliant.flows.release import open_registry
from pliant.precision import FLOAT32
from pliant.registry.names import BINS_ENCODER

MAX_LENGTH = 256  # tokens: the model's own max_seq_length
CODE = "import json, sys; from pliant.flows.run import run_flow; run_flow('bins', None, json.loads(sys.argv[1]))"
LENGTHS = "lengths.parquet"


@dataclass(frozen=True, slots=True)
class Served:
    """A stream in a registry: what Pliant's service needs, and what the others do. `project`: where the registry is."""

    project: settings.Settings
    encoder: Encoder
    spec: TextSpec


def prepared(lengths: NDArray[np.int32], slo: float = 0.15) -> Served:
    """Return the champion for these lengths of requests, in a registry beside the user's.

    Raises `InputError` where the model is not installed.
    """
    import pandas

    folder, home = places.minilm(), settings.read().home / "bench-bins"
    project = settings.Settings(home, f"sqlite:///{home / 'mlflow.db'}", home / "artifacts")
    project.artifact_root.mkdir(parents=True, exist_ok=True)
    path = home / LENGTHS
    pandas.DataFrame({"length": lengths}).to_parquet(path)
    stream = {"encoder": f"path:{folder}", "name": TASK, "lengths": [f"parquet:{path}"]}
    streams = [{**stream, "max_length": MAX_LENGTH, "slo": slo}]
    overrides = {"streams": streams, "arithmetic": {"precision": FLOAT32}}  # as what it is compared with
    where = {"PLIANT_HOME": str(project.home), "MLFLOW_TRACKING_URI": project.tracking_uri}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    command = [sys.executable, "-c", CODE, json.dumps(overrides)]
    ended = subprocess.run(command, env={**kept, **where}, cwd=places.ROOT, capture_output=True, text=True, check=False)
    if ended.returncode:
        said = (ended.stderr.strip().splitlines() or ["nothing"])[-1]
        raise PliantError(f"the flow that prepares {TASK} ended with status {ended.returncode}: {said}")
    registry = open_registry(project, "bins")
    live = load_champions(registry, Bins)[TASK]
    encoder, version = bins_champions.fetch_encoder(registry, live)
    fetched, published = registry.fetch(BINS_ENCODER + TASK, version)
    compiled = cache_folder(project.home, live.artifact.encoder, live.artifact.device_class)
    artifact = Artifact(str(fetched.absolute()), published.digest)
    spec = TextSpec(artifact, str(compiled), dict(live.artifact.files), str(folder), encoder.max_length)
    return Served(project, encoder, spec)
