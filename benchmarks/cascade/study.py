"""What the cascade's targets are computed from, per data set: trained classifiers, their saved outputs, measured latencies.

Classifiers and outputs are kept in a plain folder between runs; latencies are measured anew in every run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.cascade import models
from benchmarks.cascade.contest import Material
from benchmarks.cascade.data import files, read
from benchmarks.harness import Stage
from pliant.cascade.artifact import Outputs, Pruning
from pliant.device import device_class, threads
from pliant.latency import LatencyTable
from pliant.models.artifact import Classifier
from pliant.progress import Progress, share
from profiling.cascade.latency import LatencyConfig, profile
from profiling.cascade.outputs import OutputsConfig, run_all
from profiling.timer import TimerConfig
from registry import codec
from registry.store import FolderStore
from training.text_data import TextData

PRUNINGS = (
    *(Pruning("mean", alpha) for alpha in (0.5, 0.6, 0.7, 0.8)),
    *(Pruning("mass", mass) for mass in (0.95, 0.9, 0.8)),
)
LENGTHS = (8, 16, 32, 64, 128)
TIMER = TimerConfig(warmup=2, least=15, most=40, budget=0.15)


@dataclass(frozen=True, slots=True)
class Study:
    """`classifiers`: smallest first. `outputs`: of profiling and test split together, all of which no training has seen."""

    data: TextData
    classifiers: tuple[Classifier, ...]
    outputs: Outputs


@dataclass(frozen=True, slots=True)
class Latencies:
    """Of one data set's levels, one text at a time on one core; the others' differ in their last layer alone."""

    latency: tuple[LatencyTable, ...]
    importance: tuple[LatencyTable, ...]
    device: str


def held_out(data: TextData) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.concatenate([data.split.profiling, data.split.test])


def ready(names: Sequence[str], store: FolderStore, folder: Path) -> list[str]:
    """Return those whose classifiers are there already."""
    here = [name for name in names if all(file.is_file() for file in files(name, folder))]
    return [name for name in here if models.present(name, read(name, folder), store)]


def study(name: str, store: FolderStore, folder: Path, stage: Stage) -> Study:
    """Return a data set with its classifiers and their outputs, kept in the store or made now."""
    data = read(name, folder)
    classifiers = models.classifiers(name, data, store, stage)
    digests = [codec.digest(store.path(models.key(name, data, depth))) for depth in models.DEPTHS]
    content = repr((digests, PRUNINGS, data.fingerprint))
    key = f"bench-{name}-outputs-{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    if not store.has(key):
        with stage(f"{name} outputs") as progress:
            outputs = run_all(classifiers, data, held_out(data), OutputsConfig(PRUNINGS), "cpu", progress, digests)
        store.save(key, outputs)
    return Study(data, classifiers, store.load(Outputs, key))


def latencies(classifiers: Sequence[Classifier], progress: Progress) -> Latencies:
    """Measure, with and without importance, interleaved a level at a time."""
    config, count = LatencyConfig(LENGTHS, (1,), TIMER), len(classifiers)
    with threads(1):
        plain, watched = [], []
        for number, classifier in enumerate(classifiers):
            part = share(progress, 100 * number // count, 100 * (number + 1) // count)
            plain.append(profile(classifier, config, "cpu", part))
            watched.append(profile(classifier, config, "cpu", importance=True))
        return Latencies(tuple(plain), tuple(watched), device_class("cpu"))


def material(study: Study, measured: Latencies) -> Material:
    pairs = study.data.second is not None
    return Material(study.outputs, measured.latency, measured.importance, pairs, measured.device)
