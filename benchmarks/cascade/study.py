"""What the cascade's targets are computed from, per data set: trained classifiers, their saved outputs, measured latencies.

Classifiers and outputs are kept in a plain folder between runs; latencies are measured anew in every run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.cascade import models
from benchmarks.cascade.contest import Material
from benchmarks.cascade.data import files, read
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

Stage = Callable[[str], Progress]


@dataclass(frozen=True, slots=True)
class Study:
    """`classifiers`: smallest first. `outputs`: of profiling and test split together, all of which no training has seen."""

    data: TextData
    classifiers: tuple[Classifier, ...]
    outputs: Outputs

    @property
    def texts(self) -> list[tuple[str, str | None]]:
        """In the order of the outputs."""
        return self.data.texts(held_out(self.data))


@dataclass(frozen=True, slots=True)
class Latencies:
    """Of one data set's levels, one text at a time on one core; the others' differ in their last layer alone."""

    latency: tuple[LatencyTable, ...]
    importance: tuple[LatencyTable, ...]
    device: str


def held_out(data: TextData) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.concatenate([data.split.profiling, data.split.test])


def ready(names: Sequence[str], store: FolderStore, folder: Path) -> list[str]:
    """Those whose classifiers are there already."""
    here = [name for name in names if all(file.is_file() for file in files(name, folder))]
    return [name for name in here if models.present(name, read(name, folder), store)]


def study(name: str, store: FolderStore, folder: Path, stage: Stage) -> Study:
    """Train or fetch, run or fetch."""
    data = read(name, folder)
    classifiers = models.classifiers(name, data, store, stage).classifiers
    digests = [codec.digest(store.path(models.key(name, data, depth))) for depth in models.DEPTHS]
    told = repr((digests, PRUNINGS, data.fingerprint))
    key = f"bench-{name}-outputs-{hashlib.sha256(told.encode()).hexdigest()[:16]}"
    if not store.has(key):
        progress = stage(f"{name} outputs")
        store.save(key, run_all(classifiers, data, held_out(data), OutputsConfig(PRUNINGS), "cpu", progress, digests))
    return Study(data, classifiers, store.load(Outputs, key))


def latencies(classifiers: Sequence[Classifier], progress: Progress) -> Latencies:
    """Measured now, with and without importance, interleaved a level at a time."""
    config, count = LatencyConfig(LENGTHS, (1,), TIMER), len(classifiers)
    with threads(1):
        found = []
        for number, one in enumerate(classifiers):
            parts = share(progress, 100 * number // count, 100 * (number + 1) // count)
            found.append((profile(one, config, "cpu", parts), profile(one, config, "cpu", importance=True)))
        device = device_class("cpu")
    return Latencies(tuple(a for a, _ in found), tuple(b for _, b in found), device)


def material(one: Study, measured: Latencies) -> Material:
    return Material(one.outputs, measured.latency, measured.importance, one.data.second is not None, measured.device)
