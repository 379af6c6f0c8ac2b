"""Two tiny streams of random weights, and registries that hold them: a classifier and an embedder of width 16.

"colours" answers red, green and blue; "meanings" gives embeddings that the encoder normalizes itself.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import numpy as np

from pliant.bins.artifact import Bins, Encoder, Shape
from pliant.bins.cache import cache_folder
from pliant.bins.compile import compile_shapes
from pliant.latency import LatencyTable
from registry import codec
from registry.mlflow_store import CHAMPION, MlflowRegistry
from registry.package import Package
from serving.bins_catalog import ENCODER_PREFIX, PREFIX
from serving.settings import Settings
from tests.bins_encoders import tiny_encoder

CLASSES = ("red", "green", "blue")
DEVICE = f"cpu-{platform.machine()}-1t"
MOST = 40
SHAPES = (Shape(8, 1), Shape(8, 4), Shape(MOST, 1), Shape(MOST, 8, dynamic=True))
SHORT, TEXT, LONG = "a dog", "this text says what a small model reads", "the large cats " * 40  # tokens: 6, 22 and many
HEADS: Mapping[str, Mapping[str, object]] = {
    "colours": {"head": "classification"},
    "meanings": {"head": "embedding", "pooling": "mean", "normalize": True},
}


def encoder(name: str, seed: int = 0, **changes) -> Encoder:
    """Another `seed` gives other answers."""
    made = tiny_encoder(**{**HEADS[name], **changes}, name=name, max_length=MOST)
    weights = {key: value * np.float32(1 + seed / 10) for key, value in made.weights.items()}
    return replace(made, classes=CLASSES if made.classes else (), weights=weights)


def plan(name: str, digest: str, **changes) -> Bins:
    batches = (1, 2, 4, 8)
    table = LatencyTable((8, MOST), batches, tuple(tuple(2e-3 * n / 8 * b for b in batches) for n in (8, MOST)))
    made = Bins(
        name=name,
        encoder=digest,
        device_class=DEVICE,
        engine="eager",
        slo=30.0,
        shapes=SHAPES,
        seconds=(1e-3, 3e-3, 4e-3),
        dynamic=table,
        lengths=np.ones(MOST + 1, np.int64),
        load_seconds=0.01,
        placement="shared",
        files={},
        versions={},
    )
    return replace(made, **changes)


def publish_tiny(registry, *names: str, seed: int = 0, head: Mapping = {}, **changes) -> None:
    """Encoders and plans of the streams (both by default) under the alias. `registry.publish(name, artifact)`."""
    for name in names or HEADS:
        digest = registry.publish(ENCODER_PREFIX + name, encoder(name, seed, **head))
        registry.publish(PREFIX + name, plan(name, digest, **changes))


def publish_compiled(registry, home: Path, name: str, seed: int = 0) -> None:
    """With the files of engine onnx in the cache."""
    made = encoder(name, seed)
    digest = registry.publish(ENCODER_PREFIX + name, made)
    files = compile_shapes(made, SHAPES, "onnx", cache_folder(home, digest, DEVICE))
    registry.publish(PREFIX + name, plan(name, digest, engine="onnx", files=files))


def settings_for(folder: Path, **changes) -> Settings:
    told: Mapping = {"system": "bins", "experiment": "pliant-bins", "threads": 1, "refresh_seconds": 0.0}
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    where = {"registry_uri": uri, "artifact_root": str(folder / "artifacts"), "home": folder / "home"}
    return Settings(**{**where, **told, **changes})


class MlflowPublisher:
    """`publish` as a FolderRegistry has it, into MLflow."""

    def __init__(self, folder: Path) -> None:
        settings = settings_for(folder)
        self._folder = folder
        self._registry = MlflowRegistry(settings.registry_uri, settings.experiment, Path(settings.artifact_root))

    def publish(self, name: str, artifact) -> str:
        draft = self._folder / "drafts" / uuid4().hex
        digest = codec.save(artifact, draft)
        with self._registry.run("test") as run:
            package = Package(name, draft, {"text": np.array([TEXT])}, {"label": np.array(["red"])})
            published = self._registry.publish(run, package)
        self._registry.promote(published.name, published.version, CHAMPION)
        return digest
