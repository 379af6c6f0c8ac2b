"""Fits a task's heads on features of its frozen backbone: for gamma 0, merged gammas, and each operating point.

Both ridge and logistic regression of scikit-learn are tried; what is right more often on the last part of the fit split,
which it was not fitted on, is fitted again on the whole. Points of one size that merge alike share a forward, so all of them
take as long as some four at gamma 0. The logistic regression, which takes longer, is tried for what the ridge regression
finds the best to read.

Shape suffixes: N pictures, F features that a head reads, K classes, P points of one forward.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from pliant.errors import BackboneError
from pliant.progress import Progress, silent
from pliant.tokens.artifact import Head
from pliant.tokens.points import Point, forwards, numbered
from pliant.tokens.runtime import ROWS, TokensRuntime, read_all, read_of
from pliant.training.data import ImageData

SHRINKAGES = (1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-5)
"""Of ridge regression, over the pictures: beside variances of 1, as features are standardised."""
STRENGTH = 1.0
"""Of logistic regression: the inverse of its regularisation (scikit-learn's C)."""
NEVER = -1e4
"""Logit of a class of which no picture was fitted on."""

Floats = NDArray[np.float32]
Index = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Fitted:
    """A head, and its share of right answers on pictures that one of its kind was not fitted on."""

    head: Head
    judged: float


def fit_heads(
    runtime: TokensRuntime,
    data: ImageData,
    size: int,
    held_out: float,
    iterations: int,
    images: int | None = None,
    points: bool = True,
    merged: Sequence[int] = (),
    progress: Progress = silent,
) -> tuple[dict[int, Point], dict[int, Fitted]]:
    """Return the operating points of a backbone by number, and a head for each, for gamma 0 and for the gammas `merged`.

    `runtime`: of the backbone, in float32; `size`: of its pictures; `held_out`: share of the fit split, of which the first
    `images` are used; `iterations`: of logistic regression, at most. There are no points without `points`, and of a
    backbone that takes no other size than its own.
    """
    rows, heads = data.split.fit[:images], dict[int, Fitted]()
    try:
        known = numbered(runtime.dimensions) if points else {}
    except BackboneError:
        known = {}
    groups = forwards({0: Point(size, runtime.depth), **known}) if known else {}
    gammas, labels, done = [*merged, *([] if known else [0])], (data.labels[rows], len(data.classes), held_out), 0
    for gamma in gammas:
        feature_ND = np.concatenate(
            [runtime.features(data.images.batch(rows[at : at + ROWS], size), gamma) for at in range(0, len(rows), ROWS)]
        )
        heads[gamma] = fit(feature_ND, *labels, iterations)
        progress(done := done + 1, len(gammas) + len(groups))
    for forward, of in groups.items():
        ends = sorted({point.blocks for point in of.values()})
        for end, feature_NF in read_all(runtime, data.images, rows, size, forward, ends).items():
            parts = {number: read_of(feature_NF, point.reads) for number, point in of.items() if point.blocks == end}
            ridges = {number: fit(part_NF, *labels) for number, part_NF in parts.items()}
            best = max(ridges, key=lambda number: ridges[number].judged)
            heads |= ridges | {n: fit(parts[n], *labels, iterations) for n in {0, best} & parts.keys()}
        progress(done := done + 1, len(gammas) + len(groups))
    return known, heads


def fit(feature_NF: Floats, label_N: Index, classes: int, held_out: float, iterations: int = 0) -> Fitted:
    """Return the best head of these features, by ridge regression, and by logistic regression where it may iterate.

    Where one picture of two classes is not left to fit on and another to judge with, all are used for both.
    """
    cut = round(len(label_N) * (1 - held_out))
    seen, held = slice(0, cut), slice(cut, None)
    if len(set(label_N[seen].tolist())) < 2 or cut == len(label_N):
        seen = held = slice(None)
    tried: list[tuple[float, Any, float]] = []
    for kind in [*SHRINKAGES, None] if iterations else SHRINKAGES:
        head = _regression(feature_NF[seen], label_N[seen], classes, kind, iterations)
        logit_NK = feature_NF[held] @ head.weight.T + head.bias
        scale = 1.0 if kind is None else _scale(logit_NK, label_N[held])
        tried.append((float((logit_NK.argmax(1) == label_N[held]).mean()), kind, scale))
    judged, kind, scale = max(tried, key=lambda each: (each[0], each[1] is None))
    head = _regression(feature_NF, label_N, classes, kind, iterations)
    return Fitted(Head(head.weight * np.float32(scale), head.bias * np.float32(scale)), judged)


def _regression(feature_NF: Floats, label_N: Index, classes: int, shrinkage: float | None, iterations: int) -> Head:
    """Return a ridge regression of the classes' indicators, or where `shrinkage` is None a logistic regression."""
    from sklearn.linear_model import LogisticRegression, RidgeClassifier
    from threadpoolctl import threadpool_limits

    mean_F = feature_NF.mean(0)
    scale_F = np.maximum(feature_NF.std(0), 1e-6)
    model: Any = (
        LogisticRegression(C=STRENGTH, max_iter=iterations)
        if shrinkage is None
        else RidgeClassifier(alpha=shrinkage * len(label_N))
    )
    # Its steps are so small that threads would take most of the time to wait for each other.
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")  # that it has not converged: its iterations are bounded
        model.fit((feature_NF - mean_F) / scale_F, label_N)
    weight_KF, bias_K = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
    if len(model.classes_) == 2:  # one row, of the second class
        weight_KF, bias_K = np.concatenate([-weight_KF, weight_KF]) / 2, np.concatenate([-bias_K, bias_K]) / 2
    weight, bias = np.zeros((classes, len(mean_F)), np.float32), np.full(classes, NEVER, np.float32)
    weight[model.classes_] = weight_KF / scale_F
    bias[model.classes_] = bias_K - (weight_KF / scale_F) @ mean_F
    return Head(weight, bias)


def _scale(logit_NK: Floats, label_N: Index) -> float:
    """Return the factor that makes probabilities of a ridge regression's outputs, by the likelihood of these labels."""
    wide_NK, rows = logit_NK.astype(np.float64), np.arange(len(label_N))

    def loss(power: float) -> float:
        return -float(log_softmax(np.exp(power) * wide_NK, axis=1)[rows, label_N].mean())

    return float(np.exp(minimize_scalar(loss, bounds=(-2.0, 4.0), method="bounded").x))
