"""Decides whether to answer or go on: confidences, how likely the large model overturns an answer, combined answers.

An answer is a row of numbers: calibrated class probabilities [K], or in a regression the value and the probability that
it lies within the tolerance. Pure functions over rows; knows no texts, models or queues. Tabi: section 4.2 and Eq. 4
(re-routing), Eq. 6 (ensemble).

Shape suffixes: R texts, K classes, F features.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from pliant.cascade.artifact import Candidate, Cascade, Gate, LevelProfile
from pliant.errors import InputError

Rows = NDArray[np.float64]
Numbers = NDArray[np.floating | np.integer]

FEATURES = (
    *("one", "confidence", "log doubt", "margin", "log of second over third", "entropy", "confidence x log doubt"),
    *("log length", "rate of the class"),
)
"""What is known of an answer; for each level before it follow `FORMER`."""
FORMER = ("its probability of the answer", "whether it agrees", "its confidence")
DOUBT_WEIGHTS = (0.0, 0.0, 1.0)
"""Weights by which doubt decides, where nothing can be learnt; further features count 0."""
TINY = 1e-30  # stands for a zero deviation
MIN_DOUBT = 1e-6  # the least doubt whose logarithm is taken; doubt is 1 minus confidence
MIN_LIKELY = 1e-9  # the same of a probability


def answers(
    level: LevelProfile, tolerance: float, logits_RK: NDArray[np.floating], length_R: NDArray[np.integer]
) -> Rows:
    """Return a level's outputs as answers [R, K]. `length_R`: the tokens that it read."""
    if not level.spread:
        return softmax(logits_RK, level.temperature)
    value_R = logits_RK[:, 0].astype(np.float64)
    return np.column_stack([value_R, within(deviation(level.spread, value_R, length_R), tolerance)])


def softmax(logits_RK: Numbers, temperature: float = 1.0) -> Rows:
    """Return the class probabilities of logits / temperature."""
    logits_RK = np.asarray(logits_RK, dtype=np.float64) / temperature
    weight_RK = np.exp(logits_RK - np.maximum.reduce(logits_RK, 1, keepdims=True))
    return np.asarray(weight_RK / np.add.reduce(weight_RK, 1, keepdims=True))


def deviation(spread: tuple[float, ...], prediction_R: Numbers, length_R: Numbers) -> Rows:
    """Return the standard deviation of the error [R], in the label's unit."""
    centre, scale, *weight_F, lowest, highest = spread
    fitted_R = spread_features(prediction_R, length_R, centre, scale) @ np.array(weight_F)
    return np.asarray(np.exp(np.clip(fitted_R, lowest, highest) / 2))


def within(deviation_R: Numbers, tolerance: float) -> Rows:
    """Return the probability [R] that a normal error of this deviation is at most `tolerance` either way."""
    return np.asarray(1 - 2 * ndtr(-tolerance / np.maximum(deviation_R, TINY)))


def spread_features(prediction_R: Numbers, length_R: Numbers, centre: float, scale: float) -> Rows:
    """Return [R, F]: 1, the standardised prediction, its square, and the logarithm of the length."""
    place_R = (np.asarray(prediction_R, dtype=np.float64) - centre) / scale
    length = np.log(np.maximum(np.asarray(length_R, dtype=np.float64), 1))
    return np.stack([np.ones_like(place_R), place_R, place_R**2, length], axis=1)


def confidence(answer_RK: Rows, regression: bool) -> Rows:
    """Return the calibrated probabilities [R] that the answers are correct."""
    return answer_RK[:, 1] if regression else np.maximum.reduce(answer_RK, 1)


def combine(gate: Gate, before_RK: Rows, after_RK: Rows) -> Rows:
    """Return the weighted mean of the answer so far and the next level's (Eq. 6)."""
    if gate.weight == 1.0:
        return after_RK
    return gate.weight * after_RK + (1 - gate.weight) * before_RK


def features(
    answers: Sequence[Rows],
    length_R: NDArray[np.integer],
    rates: Sequence[float],
    regression: bool,
    tolerance: float = 0.0,
) -> Rows:
    """Return the features [R, F] of the last of these answers [R, K], which are those of all levels so far.

    `length_R`: the tokens that the level read; `rates`: how often answers of each class are overturned. Of a regression
    the probabilities are those of being within the tolerance, and levels agree within it.
    """
    answer_RK, rows = answers[-1], np.arange(len(answers[-1]))
    if regression:
        first_R, second_R, third_R, entropy_R = (
            answer_RK[:, 1],
            1 - answer_RK[:, 1],
            np.zeros(len(rows)),
            np.zeros(len(rows)),
        )
        chosen_R, rate_R = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows))
    else:
        count = min(3, answer_RK.shape[1])
        top_RK = -np.sort(-np.partition(answer_RK, -count, axis=1)[:, -count:], axis=1)
        first_R, second_R = top_RK[:, 0], top_RK[:, 1]
        third_R = top_RK[:, 2] if count > 2 else np.zeros(len(rows))
        entropy_R = -(answer_RK * np.log(np.maximum(answer_RK, TINY))).sum(axis=1)
        chosen_R = answer_RK.argmax(axis=1)
        rate_R = np.asarray(rates)[chosen_R] if len(rates) else np.zeros(len(rows))
    log_doubt_R = np.log(np.maximum(1 - first_R, MIN_DOUBT))
    after_R = np.log(np.maximum(second_R, MIN_LIKELY)) - np.log(np.maximum(third_R, MIN_LIKELY))
    length = np.log(np.maximum(np.asarray(length_R, dtype=np.float64), 1.0))
    columns = [np.ones(len(rows)), first_R, log_doubt_R, first_R - second_R, after_R, entropy_R, first_R * log_doubt_R]
    columns += [length, rate_R]
    for former_RK in answers[:-1]:
        agrees_R = same(former_RK, answer_RK, regression, tolerance).astype(np.float64)
        columns += [agrees_R if regression else former_RK[rows, chosen_R], agrees_R, confidence(former_RK, regression)]
    return np.stack(columns, axis=1)


def same(first_RK: Rows, second_RK: Rows, regression: bool, tolerance: float = 0.0) -> NDArray[np.bool_]:
    """Return whether two levels give the same answers [R]: one class, or values within the tolerance of each other."""
    if regression:
        return np.asarray(np.abs(first_RK[:, 0] - second_RK[:, 0]) <= tolerance)
    return np.asarray(first_RK.argmax(axis=1) == second_RK.argmax(axis=1))


def overturned(gate: Gate, feature_RF: Rows) -> Rows:
    """Return the probabilities [R] that the large model gives another answer."""
    weights = np.zeros(feature_RF.shape[1])
    weights[: len(gate.weights)] = gate.weights
    return np.asarray(expit(feature_RF @ weights))


def overturned_alone(
    gate: Gate, answers: Sequence[Rows], length: int, regression: bool, tolerance: float = 0.0
) -> float:
    """Return what `overturned` gives for one text, whose answers have one row each, in a fraction of the time."""
    answer_K = answers[-1][0]
    if regression:
        first, second, third, entropy, chosen, rate = float(answer_K[1]), 1 - float(answer_K[1]), 0.0, 0.0, 0, 0.0
    else:
        count = min(3, len(answer_K))
        first, second, third = (*sorted(np.partition(answer_K, -count)[-count:].tolist(), reverse=True), 0.0)[:3]
        entropy = -float(answer_K @ np.log(np.maximum(answer_K, TINY)))
        chosen = int(answer_K.argmax())
        rate = gate.rates[chosen] if gate.rates else 0.0
    log_doubt = math.log(max(1 - first, MIN_DOUBT))
    after = math.log(max(second, MIN_LIKELY)) - math.log(max(third, MIN_LIKELY))
    features_F = [
        1.0,
        first,
        log_doubt,
        first - second,
        after,
        entropy,
        first * log_doubt,
        math.log(max(length, 1)),
        rate,
    ]
    for former_1K in answers[:-1]:
        agrees = float(same(former_1K, answers[-1], regression, tolerance)[0])
        features_F += [
            agrees if regression else float(former_1K[0, chosen]),
            agrees,
            float(confidence(former_1K, regression)[0]),
        ]
    return float(expit(sum(map(mul, gate.weights, features_F))))


def judge(
    gate: Gate,
    answers: Sequence[Rows],
    length_R: NDArray[np.integer],
    draw_R: Rows,
    regression: bool,
    tolerance: float = 0.0,
) -> Rows:
    """Return [R], what the next level is worth where a text goes on, and NaN where the last of the answers suffices.

    `answers`: those of all levels so far [R, K]; `length_R`: the tokens that the last one read; `draw_R`: uniform numbers
    in [0, 1), which only the published gate uses. Raises `InputError` for an unknown kind.
    """
    match gate.kind:
        case "overturn" if len(answers[-1]) == 1:
            worth = overturned_alone(gate, answers, int(length_R[0]), regression, tolerance)
            return np.array([worth if worth > gate.threshold else math.nan])
        case "overturn":
            worth_R = overturned(gate, features(answers, length_R, gate.rates, regression, tolerance))
            return np.where(worth_R > gate.threshold, worth_R, np.nan)
        case "tabi":
            con_R = confidence(answers[-1], regression)
            return np.where(draw_R < reroute_probability(con_R, gate.threshold, gate.slope), 1 - con_R, np.nan)
        case "always":
            return 1 - confidence(answers[-1], regression)
        case "never":
            return np.full(len(answers[-1]), np.nan)
    raise InputError("gate", gate.kind, "one of overturn, tabi, always, never")


def reroute_probability(con_R: Rows, c: float, k: float) -> Rows:
    """Return the probabilities [R] of Eq. 4: 1 up to a confidence of `c`, then 1 / (1 + exp(k norm)).

    norm = (con - c) / (1 - c) - 1/2.
    """
    norm_R = (con_R - c) / max(1 - c, 1e-9) - 0.5
    return np.where(con_R <= c, 1.0, 1 / (1 + np.exp(np.clip(k * norm_R, -700, 700))))


def choose(cascade: Cascade, accuracy: float | None = None, latency: float | None = None) -> int:
    """Return the number of the cheapest candidate that promises `accuracy` within `latency` mean seconds.

    With `latency` alone it is the most accurate one, with neither the first, which is the default. Raises `InputError`
    with the best possible value if there is none.
    """
    if accuracy is None and latency is None:
        return 0
    able = [i for i, c in enumerate(cascade.candidates) if accuracy is None or c.promised >= accuracy]
    if not able:
        best = max(candidate.promised for candidate in cascade.candidates)
        raise InputError(
            "accuracy", accuracy, f"at most {best:.4f}, the most that any candidate of {cascade.task} promises"
        )
    quick = [i for i in able if latency is None or cascade.candidates[i].seconds <= latency]
    if not quick:
        least = min(cascade.candidates[i].seconds for i in able)
        raise InputError(
            "latency", latency, f"at least {least:.4f} seconds, which {_described(accuracy)} takes in the mean"
        )
    return min(quick, key=lambda i: _order(cascade.candidates[i], accuracy))


def number_of(cascade: Cascade, name: str) -> int:
    """Return the number of the candidate of this name. Raises `InputError` with the known names for another one."""
    names = [candidate.name for candidate in cascade.candidates]
    if name not in names:
        raise InputError("candidate", name, f"one of {', '.join(dict.fromkeys(names))}")
    return names.index(name)


def _order(candidate: Candidate, accuracy: float | None) -> tuple[float, float]:
    """Return the sort key: without a required accuracy the most accurate goes first, else the cheapest."""
    if accuracy is None:
        return -candidate.promised, candidate.seconds
    return candidate.seconds, -candidate.promised


def _described(accuracy: float | None) -> str:
    return "the quickest candidate" if accuracy is None else f"an accuracy of {accuracy:g}"
