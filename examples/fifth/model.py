"""The model: a linear classifier of hashed words, of which it reads the first ones, as many as a launch's setting says.

Shape suffixes: N texts, B buckets, K classes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from zlib import crc32

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pliant.latency import LatencyTable
from pliant.registry import codec
from pliant.serving.workers.devices import BuildPlan, DevicePlan

MODEL = "pliant-words-task-"  # prefix of registered models
WORDS, BATCHES = (8, 32, 128), (1, 4, 16)  # settings of a launch, and sizes that are measured
BUCKETS, STEPS, RATE = 2048, 100, 20.0
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Task:
    """What is published: weights [B, K], seconds of a launch, and share of right answers on the test split, by words."""

    KIND: ClassVar[str] = "words-task"
    SCHEMA: ClassVar[int] = 1

    name: str
    classes: tuple[str, ...]
    weights: Floats
    latency: LatencyTable
    accuracy: Mapping[int, float]
    device: str


def predict(weights_BK: Floats, texts: Sequence[str], words: int) -> Floats:
    """Return the probabilities [N, K] of the classes, by the first `words` words of each text."""
    powers_NK = np.exp(_hashed(texts, words) @ weights_BK)
    return np.asarray(powers_NK / powers_NK.sum(1, keepdims=True), np.float32)


def train(texts: Sequence[str], labels_N: NDArray[Any], classes: int) -> Floats:
    """Return weights, fitted by gradient descent at every setting alike."""
    seen_NB = np.concatenate([_hashed(texts, words) for words in WORDS])
    wanted_NK = np.eye(classes, dtype=np.float32)[np.tile(labels_N, len(WORDS))]
    weights_BK = np.zeros((BUCKETS, classes), np.float32)
    for _ in range(STEPS):
        powers_NK = np.exp(seen_NB @ weights_BK)
        weights_BK += RATE / len(seen_NB) * (seen_NB.T @ (wanted_NK - powers_NK / powers_NK.sum(1, keepdims=True)))
    return weights_BK


def _hashed(texts: Sequence[str], words: int) -> Floats:
    """Return the counts [N, B] of the first words of texts, scaled to length 1."""
    counts_NB = np.zeros((len(texts), BUCKETS), np.float32)
    for row, text in enumerate(texts):
        for word in text.lower().split()[:words]:
            counts_NB[row, crc32(word.encode()) % BUCKETS] += 1
    return np.asarray(counts_NB / np.maximum(np.linalg.norm(counts_NB, axis=1, keepdims=True), 1), np.float32)


@dataclass(frozen=True, slots=True)
class Build(BuildPlan):
    """Makes the model in a device process, of the folder and digest of each task."""

    BUILDER: ClassVar[str] = "fifth.model:Model"

    tasks: Mapping[str, tuple[Path, str]]
    plan: DevicePlan


class Model:
    """What a device process runs. A payload is a task and a text."""

    def __init__(self, build: Build) -> None:
        self._weights = {name: codec.load(Task, *held).weights for name, held in build.tasks.items()}

    def run(self, setting: int, payloads: Sequence[tuple[str, str]]) -> tuple[Sequence[Floats], float]:
        began = time.perf_counter()
        outputs = [predict(self._weights[task], [text], setting)[0] for task, text in payloads]
        return outputs, time.perf_counter() - began


class Labels:
    """Texts -> labels, in an MLflow client. `params={"words": 8}` chooses how many words are read."""

    def __init__(self, folder: Path, _config: Mapping[str, Any]) -> None:
        self._task = codec.load(Task, folder)

    def predict(self, frame: pd.DataFrame, params: Mapping[str, Any]) -> pd.DataFrame:
        said_N = predict(self._task.weights, list(frame["text"]), int(params["words"])).argmax(1)
        return pd.DataFrame({"label": [self._task.classes[index] for index in said_N]})


KINDS = {Task.KIND: Labels}
