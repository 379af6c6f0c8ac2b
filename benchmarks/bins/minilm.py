"""all-MiniLM-L6-v2 as a stream of the bins system, in a registry of the benchmark's own, made by the flow.

The flow measures the encoder here and chooses its bins for the trace's lengths.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pliant.benchmarks import places, released
from pliant.benchmarks.baselines.model import Artifact
from pliant.benchmarks.baselines.text_model import TextSpec
from pliant.benchmarks.bins.requests import TASK
from pliant.bins.artifact import Bins, Encoder
from pliant.bins.runtimes.cache import cache_folder
from pliant.flows import settings
from pliant.flows.bins import champions as bins_champions
from pliant.flows.champions import load_champions
from pliant.flows.release import open_registry
from pliant.precision import FLOAT32
from pliant.registry.names import BINS_ENCODER

MAX_LENGTH = 256  # tokens: the model's own max_seq_length
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

    folder, project = places.minilm(), released.registry("bench-bins")
    path = project.home / LENGTHS
    pandas.DataFrame({"length": lengths}).to_parquet(path)
    stream = {"encoder": f"path:{folder}", "name": TASK, "lengths": [f"parquet:{path}"]}
    streams = [{**stream, "max_length": MAX_LENGTH, "slo": slo}]
    # as what it is compared with
    released.run_flow(project, "bins", {"streams": streams, "arithmetic": {"precision": FLOAT32}})
    registry = open_registry(project, "bins")
    live = load_champions(registry, Bins)[TASK]
    encoder, version = bins_champions.fetch_encoder(registry, live)
    fetched, published = registry.fetch(BINS_ENCODER + TASK, version)
    compiled = cache_folder(project.home, live.artifact.encoder, live.artifact.device_class)
    artifact = Artifact(str(fetched.absolute()), published.digest)
    spec = TextSpec(artifact, str(compiled), dict(live.artifact.files), str(folder), encoder.max_length)
    return Served(project, encoder, spec)
