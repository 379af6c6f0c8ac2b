"""A small cascade over the tiny classifiers for tests: two levels, texts, what they make of them, and some candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pliant.cascade.artifact import Candidate, Cascade, Classifier, Gate, LevelProfile, Outputs, Pruning
from pliant.cascade.calibrate import fit_spread
from pliant.cascade.evaluate import Ground, measured, tested
from pliant.cascade.route import answers, confidence
from pliant.latency import LatencyTable
from profiling.cascade_outputs import OutputsConfig, run_all
from tests.cascade_classifiers import WORDS, tiny_classifier

DOUBT = (1.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""Weights of a gain that is 1 - confidence (see route.FEATURES)."""
MEAN, MASS = Pruning("mean", 1.0), Pruning("mass", 0.7)
CLASSES = ("x", "y", "z")


@dataclass(frozen=True)
class Texts:
    """What profiling/cascade_outputs.py needs of a data set."""

    rows: tuple[tuple[str, str | None], ...]
    labels: np.ndarray
    classes: tuple[str, ...]
    name: str = "things"
    fingerprint: str = "sha256:things"

    def texts(self, index) -> list[tuple[str, str | None]]:
        return [self.rows[i] for i in index]


@dataclass(frozen=True)
class Things:
    cascade: Cascade
    classifiers: tuple[Classifier, ...]
    texts: Texts
    outputs: Outputs


def some_texts(pair: bool = False, classes: Sequence[str] = CLASSES, count: int = 30, seed: int = 0) -> Texts:
    """Some are longer than the classifiers read."""
    rng = np.random.default_rng(seed)

    def text() -> str:
        return " ".join(rng.choice(WORDS, rng.integers(1, 30)))

    rows = tuple((text(), text() if pair else None) for _ in range(count))
    labels = rng.integers(len(classes), size=count).astype(float) if classes else rng.normal(0, 2, count)
    return Texts(rows, labels, tuple(classes))


def things(
    pair: bool = False, classes: Sequence[str] = CLASSES, digests: Sequence[str] = ("sha256:small", "sha256:large")
) -> Things:
    """The large level has more tokens of the same words, since its vocabulary is smaller."""
    made = (
        tiny_classifier("small", classes=classes, seed=0),
        tiny_classifier("large", "roberta", classes=classes, seed=1, max_length=30, vocabulary=40),
    )
    texts = some_texts(pair, classes)
    outputs = run_all(
        made, texts, np.arange(len(texts.rows)), OutputsConfig(prunings=(MEAN, MASS), batch=4), digests=digests
    )
    return Things(cascade(outputs, pair), made, texts, outputs)


def cascade(outputs: Outputs, pair: bool, device: str = "cpu") -> Cascade:
    table = LatencyTable((8, 32), (1, 4), ((0.001, 0.002), (0.003, 0.008)))
    levels = tuple(
        LevelProfile(
            name, digest, 1.5 if outputs.classes else 1.0, _spread(outputs, level), 0.5, 0.2, 0.1, table, table
        )
        for level, (name, digest) in enumerate(zip(outputs.names, outputs.classifiers, strict=True))
    )
    tolerance = 0.0 if outputs.classes else 1.0
    first = outputs.levels[0]
    sure_R = confidence(answers(levels[0], tolerance, first.logits, first.length), not outputs.classes)
    drafts = [Candidate(name, (0, 1), (gate,), 0, 0, 0, ()) for name, gate in _gates(float(np.median(sure_R))).items()]
    drafts.append(Candidate("single", (1,), (), 0, 0, 0, ()))
    candidates = tuple(measured(draft, Ground(outputs, levels, tolerance), promised=0.3) for draft in drafts)
    task = Cascade("things", outputs.classes, pair, tolerance, device, levels, candidates, 0.3, 0.95, {}, outputs.data)
    return tested(task, outputs)


def _gates(middle: float) -> dict[str, Gate]:
    """The first sends half of the texts on."""
    return {
        "default": Gate("gain", 1 - middle, weights=DOUBT),
        "pruned by mean": Gate("always", pruning=MEAN, weight=0.6),
        "pruned by mass": Gate("tabi", 0.8 * middle, 2.0, pruning=MASS, weight=0.8),
        "never": Gate("never"),
    }


def _spread(outputs: Outputs, level: int) -> tuple[float, ...]:
    if outputs.classes:
        return ()
    saved = outputs.levels[level]
    return fit_spread(saved.logits[:, 0], outputs.labels, saved.length)
