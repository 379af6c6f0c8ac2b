"""Answers of two releases to the same requests: recorded from two real classifiers, or synthetic.

The recorded pairs are of held-out texts. Champion and challenger are TF-IDF and logistic regression; the challenger has
seen a part of the champion's training texts, and is as much worse as that makes it. Both are calibrated by a temperature.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from benchmarks.places import SHARED, missing

TEXTS = SHARED / "text"
CALIBRATING = 1500  # texts
TEMPERATURES = np.geomspace(0.1, 3.0, 60)

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Source:
    """Files, the most texts that are used of them, and the part of the training texts that the challenger has seen."""

    files: tuple[str, ...]
    texts: int
    seen: float


SOURCES: Mapping[str, Source] = {
    "clinc150": Source(("clinc150_train.parquet", "clinc150_validation.parquet"), 18_000, 0.5),
    "sst2": Source(("sst2_train.parquet",), 24_000, 0.55),
}
"""The parts were chosen, before any rollout was simulated, so that the challenger is some 3 points worse."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Answers of champion and challenger, each array [2, pairs], in that order.

    `scores`: probability of the right label; `confidences`: of the label that was answered.
    """

    correct: Bools
    scores: Floats
    confidences: Floats

    @property
    def worse(self) -> float:
        """By how much the challenger's accuracy is lower."""
        return float(self.correct[0].mean() - self.correct[1].mean())

    @property
    def discordance(self) -> float:
        """The share of pairs of which one answer alone is right."""
        return float((self.correct[0] != self.correct[1]).mean())

    def sample(self, count: int, rng: np.random.Generator, swapped: float = 0.0) -> Pairs:
        """Return `count` different pairs in random order. In a share `swapped` of them the releases change places: at one
        half they are exactly equal.
        """
        chosen = rng.choice(self.correct.shape[1], count, replace=False)
        first = (rng.random(count) < swapped).astype(np.int64)
        arms = np.stack([first, 1 - first])
        return Pairs(self.correct[arms, chosen], self.scores[arms, chosen], self.confidences[arms, chosen])


def synthetic(discordance: float, worse: float, count: int, rng: np.random.Generator, wrong: float = 0.1) -> Pairs:
    """Return pairs of which a share `discordance` differs in being right; nothing but that is known of their answers.

    The champion is wrong in a share `wrong` of them, at least (discordance - worse) / 2, and the challenger in `worse` more.
    """
    lost, won = (discordance + worse) / 2, (discordance - worse) / 2
    kinds = rng.choice(4, count, p=[lost, won, wrong - won, 1 - wrong - lost])  # the last two: both wrong, both right
    correct = np.stack([(kinds == 0) | (kinds == 3), (kinds == 1) | (kinds == 3)])
    known = correct.astype(np.float64)
    return Pairs(correct, known, np.ones_like(known))


def unavailable() -> str:
    """Return why nothing can be recorded here; empty if it can."""
    return missing(*(TEXTS / file for source in SOURCES.values() for file in source.files))


@cache
def recorded(name: str) -> Pairs:
    """Train both classifiers of a data set and return their answers to the held-out third of its texts."""
    source = SOURCES[name]
    texts, labels = _read(source)
    held = len(labels) // 3
    fit = len(labels) - held - CALIBRATING
    answers = [_answers(texts, labels, count, fit) for count in (fit, int(source.seen * fit))]
    right = labels[-held:]
    rows = np.arange(held)
    return Pairs(
        np.stack([each.argmax(axis=1) == right for each in answers]),
        np.stack([each[rows, right] for each in answers]),
        np.stack([each.max(axis=1) for each in answers]),
    )


def _read(source: Source) -> tuple[NDArray[Any], NDArray[np.int64]]:
    import pandas

    data = pandas.concat([pandas.read_parquet(TEXTS / file) for file in source.files])
    order = np.random.default_rng(0).permutation(len(data))[: source.texts]
    labels: NDArray[np.int64] = data["label"].to_numpy(np.int64)[order]
    return data["text"].to_numpy()[order], labels


def _answers(texts: NDArray[Any], labels: NDArray[np.int64], count: int, fit: int) -> Floats:
    """Train on the first `count` texts and return calibrated probabilities [held out, classes]."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    vectors = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, max_features=20_000)
    model = LogisticRegression(C=10.0, tol=3e-4, max_iter=300).fit(vectors.fit_transform(texts[:count]), labels[:count])
    logits = np.asarray(model.decision_function(vectors.transform(texts[fit:])))
    if logits.ndim == 1:
        logits = np.stack([np.zeros_like(logits), logits], axis=1)
    known, rows = logits[:CALIBRATING], np.arange(CALIBRATING)
    losses = [-log_softmax(known / at, axis=1)[rows, labels[fit : fit + CALIBRATING]].mean() for at in TEMPERATURES]
    calibrated: Floats = softmax(logits[CALIBRATING:] / TEMPERATURES[int(np.argmin(losses))], axis=1)
    return calibrated
