"""Calibrates confidences: the temperature of logits, the spread of a regression's errors, and the calibration error.

Temperature scaling and the expected calibration error are those of Guo et al. 2017. A regression has no logits: its
confidence is the probability that the error stays within a tolerance, for a normal error whose variance depends on the
prediction and the text's length. Temperature scaling is convex, so Newton's method finds the optimum.

Also how much a larger level's answer counts beside the answer so far, as published (Tabi, Eq. 6), on texts that go on.

Shape suffixes: R texts, K classes, B bins, F features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pliant.cascade.route import softmax, spread_features
from pliant.errors import InputError

Floats = NDArray[np.float64]
Numbers = NDArray[np.floating | np.integer]
Slopes = Callable[[float], tuple[float, float]]

COLDEST, HOTTEST = 0.05, 1000.0
"""Bounds of a temperature, which is 0 for logits that separate the classes perfectly and infinite for useless ones."""
CLOSE, MOST_STEPS = 1e-13, 200
"""Newton's method ends at a relative step this small, or after so many steps; 5 to 10 are usual."""
TINY = 1e-30  # stands for a zero deviation or error
LEAST = 1e-4
"""Share of the mean squared error that a single one counts as at least, or its logarithm would outweigh all others."""


@dataclass(frozen=True, slots=True)
class Reliability:
    """A reliability diagram: texts by confidence in bins of equal width over [0, 1]. Empty bins are NaN."""

    confidence: Floats  # [B] mean over a bin's texts
    accuracy: Floats  # [B] share of a bin's texts that is correct
    count: NDArray[np.int64]  # [B]
    error: float  # expected calibration error


def temperature(logits_RK: Numbers, labels_R: Numbers) -> float:
    """Return the T of softmax(logits / T) with the least negative log-likelihood, from 0.05 to 1000.

    Where every T is as good (equal logits) it is 1. Raises `InputError` without texts, for logits that are not finite,
    and for labels out of range.
    """
    margin_RK = _margins(logits_RK, labels_R)

    def slopes(inverse: float) -> tuple[float, float]:
        """Return the first and second derivative of the mean loss, which is convex, by 1/T."""
        weight_RK = softmax(margin_RK * inverse)
        mean_R = (weight_RK * margin_RK).sum(1)
        return float(mean_R.mean()), float(((weight_RK * margin_RK**2).sum(1) - mean_R**2).mean())

    low, high = 1 / HOTTEST, 1 / COLDEST
    if not margin_RK.any():
        return 1.0
    if slopes(low)[0] >= 0:
        return HOTTEST
    if slopes(high)[0] <= 0:
        return COLDEST
    return 1 / _root(slopes, low, high)


def calibration_error(probabilities_RK: Numbers, labels_R: Numbers, bins: int = 15) -> float:
    """Return the expected calibration error of the most probable class."""
    return error_of(probabilities_RK.max(1), probabilities_RK.argmax(1) == labels_R, bins)


def error_of(confidence_R: Numbers, correct_R: NDArray[np.bool_], bins: int = 15) -> float:
    """Return the expected calibration error: the bins' mean distance of confidence and accuracy, weighted by texts."""
    return reliability(confidence_R, correct_R, bins).error


def reliability(confidence_R: Numbers, correct_R: NDArray[np.bool_], bins: int = 15) -> Reliability:
    """Return the diagram: bin i of B holds confidences in (i/B, (i + 1)/B], the first one also 0.

    Raises `InputError` without texts.
    """
    if not len(confidence_R):
        raise InputError("texts to calibrate on", 0, "at least 1")
    bin_R = np.clip(np.ceil(np.asarray(confidence_R, dtype=np.float64) * bins).astype(np.int64) - 1, 0, bins - 1)
    count_B = np.bincount(bin_R, minlength=bins)
    confidence_B = np.bincount(bin_R, confidence_R, bins)
    accuracy_B = np.bincount(bin_R, correct_R, bins)
    error = float(np.abs(confidence_B - accuracy_B).sum() / len(bin_R))
    count_or_nan_B = np.where(count_B > 0, count_B, np.nan)
    return Reliability(confidence_B / count_or_nan_B, accuracy_B / count_or_nan_B, count_B, error)


def fit_spread(prediction_R: Numbers, label_R: Numbers, length_R: Numbers) -> tuple[float, ...]:
    """Return the model of the errors' variance for `deviation`: (centre, scale, weights, bounds). `length_R`: tokens.

    It is a least-squares fit of the logarithm of the squared error. Since the mean of a logarithm is below the
    logarithm of the mean, it is raised until the mean variance is the mean squared error. The bounds are those of the
    fitted values, so that nothing is extrapolated. Raises `InputError` without texts and for values that are not
    finite.
    """
    if not len(prediction_R):
        raise InputError("texts to calibrate on", 0, "at least 1")
    value_R = np.asarray(prediction_R, dtype=np.float64)
    square_R = (value_R - np.asarray(label_R, dtype=np.float64)) ** 2
    if not np.isfinite(square_R).all():
        raise InputError("prediction or label", "not a number", "finite for every text")
    mean = max(float(square_R.mean()), TINY)
    centre, scale = float(value_R.mean()), float(value_R.std()) or 1.0
    feature_RF = spread_features(value_R, length_R, centre, scale)
    weight_F = np.linalg.lstsq(feature_RF, np.log(np.maximum(square_R, LEAST * mean)), rcond=None)[0]
    weight_F[0] += np.log(mean / np.exp(feature_RF @ weight_F).mean())
    fitted_R = feature_RF @ weight_F
    return (centre, scale, *weight_F.tolist(), float(fitted_R.min()), float(fitted_R.max()))


def _margins(logits_RK: Numbers, labels_R: Numbers) -> Floats:
    """Return the logits minus the one of the label. Raises `InputError` as `temperature` does."""
    finite_RK = np.asarray(logits_RK, dtype=np.float64)
    label_R = np.asarray(labels_R).astype(np.int64)
    if not len(finite_RK):
        raise InputError("texts to calibrate on", 0, "at least 1")
    if not np.isfinite(finite_RK).all():
        raise InputError("logits", "not a number", "finite for every text")
    if label_R.min() < 0 or label_R.max() >= finite_RK.shape[1]:
        raise InputError("label", f"{label_R.min()} to {label_R.max()}", f"from 0 to {finite_RK.shape[1] - 1}")
    return finite_RK - finite_RK[np.arange(len(label_R)), label_R, None]


def _root(slopes: Slopes, low: float, high: float) -> float:
    """Return where the first of the slopes is zero, by Newton's method; it is negative at `low`, positive at `high`.

    A step that would leave the bracket becomes a bisection on the logarithmic scale.
    """
    at = 1.0
    for _ in range(MOST_STEPS):
        value, slope = slopes(at)
        following = at - value / slope if slope > 0 else low
        if abs(following - at) <= CLOSE * at:
            return following
        low, high = (at, high) if value < 0 else (low, at)
        at = following if low < following < high else (low * high) ** 0.5
    return at


def published(before_RK: Floats, after_RK: Floats, label_R: NDArray[np.integer]) -> float:
    """Return the published weight, in proportion to the two accuracies on re-routed texts."""
    if not len(label_R):
        return 1.0
    small = float((before_RK.argmax(axis=1) == label_R).mean())
    large = float((after_RK.argmax(axis=1) == label_R).mean())
    return large / (small + large) if small + large else 1.0
