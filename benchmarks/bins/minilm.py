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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import minilm
from benchmarks.baselines.model import Artifact
from benchmarks.baselines.text_model import TextSpec
from benchmarks.bins.requests import TASK
from benchmarks.places import ROOT
from flows import settings
from flows.bins import live as bins_live
from pliant.bins.artifact import Bins, Encoder
from pliant.bins.runtimes.cache import cache_folder
from pliant.errors import PliantError

MAX_LENGTH = 256  # tokens: the model's own max_seq_length
CODE = "import json, sys; from flows.bins.run import run_flow; run_flow(None, json.loads(sys.argv[1]))"
LENGTHS = "lengths.parquet"


@dataclass(frozen=True, slots=True)
class Served:
    """A stream in a registry: what Pliant's service needs to be told, and what others need."""

    told: settings.Settings
    bins: Bins
    encoder: Encoder
    spec: TextSpec


def own_registry(told: settings.Settings) -> settings.Settings:
    """Beside the user's."""
    home = told.home / "bench-bins"
    return settings.Settings(home, f"sqlite:///{home / 'mlflow.db'}", home / "artifacts")


def prepared(lengths: NDArray[np.int32], slo: float = 0.15) -> Served:
    """The champion for these lengths (any number of requests). Raises `InputError` where the model is not installed."""
    import pandas

    folder, told = minilm.folder(), own_registry(settings.read())
    told.home.mkdir(parents=True, exist_ok=True)
    path = told.home / LENGTHS
    pandas.DataFrame({"length": lengths}).to_parquet(path)
    stream = {"encoder": f"path:{folder}", "name": TASK, "lengths": [f"parquet:{path}"]}
    _run_flow(told, {"streams": [{**stream, "max_length": MAX_LENGTH, "slo": slo}]})
    return served(told, str(folder))


def served(told: settings.Settings, model: str = "") -> Served:
    """The champion of the one stream in this registry, a local one. `model`: the encoder as transformers stores it."""
    registry = bins_live.open_registry(told)
    live = bins_live.live(registry)[TASK]
    encoder, version = bins_live.encoder(registry, live)
    folder, published = registry.fetch(bins_live.encoder_model(TASK), version)
    compiled = cache_folder(told.home, live.bins.encoder, live.bins.device_class)
    kept = Artifact(str(folder.absolute()), published.digest)
    spec = TextSpec(kept, str(compiled), dict(live.bins.files), model, encoder.max_length)
    return Served(told, live.bins, encoder, spec)


def _run_flow(told: settings.Settings, overrides: dict[str, Any]) -> None:
    told.artifact_root.mkdir(parents=True, exist_ok=True)
    where = {"PLIANT_HOME": str(told.home), "MLFLOW_TRACKING_URI": told.tracking_uri}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    command = [sys.executable, "-c", CODE, json.dumps(overrides)]
    ended = subprocess.run(command, env={**kept, **where}, cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode:
        said = (ended.stderr.strip().splitlines() or ["nothing"])[-1]
        raise PliantError(f"the flow that prepares {TASK} ended with status {ended.returncode}: {said}")
