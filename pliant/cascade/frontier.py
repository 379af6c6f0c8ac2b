"""Finds the thresholds of a path exactly: every trade of accuracy for seconds that they can make on given texts.

One sort gives every distinct threshold of the last gate. The gates before it are tried at quantiles of their scores, or
at all thresholds if the texts are few. Pure functions over arrays; knows no models, gates or bounds.

Shape suffixes: R texts, S steps, P points, G gates (S - 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NEVER, ALWAYS = 1e6, -1e6  # thresholds beyond every score; finite, for JSON
QUANTILES = 64  # thresholds to try of a gate before the last, at most


@dataclass(frozen=True, slots=True)
class Points:
    """Thresholds with their accuracy and mean seconds. A text passes gate g if its score there is above
    `threshold_PG[:, g]`.
    """

    threshold_PG: Floats
    accuracy_P: Floats
    seconds_P: Floats

    def __len__(self) -> int:
        return len(self.accuracy_P)

    def chosen(self, index: NDArray[np.integer]) -> Points:
        """Return the points with these indices."""
        return Points(self.threshold_PG[index], self.accuracy_P[index], self.seconds_P[index])


def points(correct_SR: Sequence[Floats], seconds_SR: Sequence[Floats], score_GR: Sequence[Floats]) -> Points:
    """Return all thresholds with the share of correct answers and the mean seconds that they give."""
    count = len(correct_SR[0])
    order = np.argsort(-np.asarray(score_GR[-1]), kind="stable") if len(score_GR) else np.arange(count)
    correct, seconds = ([np.asarray(row, dtype=np.float64)[order] for row in rows] for rows in (correct_SR, seconds_SR))
    sums = _sums(correct, seconds, [np.asarray(row)[order] for row in score_GR])
    return Points(sums.threshold_PG, sums.accuracy_P / count, sums.seconds_P / count)


def applied(
    correct_SR: Sequence[NDArray[np.bool_]],
    seconds_SR: Sequence[Floats],
    score_GR: Sequence[Floats],
    threshold_PG: Floats,
) -> tuple[NDArray[np.bool_], Floats]:
    """Return whether each text is answered correctly [P, R], and the mean seconds [P], at given thresholds."""
    shape = len(threshold_PG), len(correct_SR[0])
    correct_PR, going_PR = np.broadcast_to(correct_SR[0], shape), np.ones(shape, dtype=np.bool_)
    seconds_P = np.full(len(threshold_PG), float(np.mean(seconds_SR[0])))
    for gate, score_R in enumerate(score_GR):
        going_PR = going_PR & (score_R > threshold_PG[:, gate, None])
        correct_PR = np.where(going_PR, correct_SR[gate + 1], correct_PR)
        seconds_P += going_PR @ seconds_SR[gate + 1] / shape[1]
    return correct_PR, seconds_P


def frontier(points: Points) -> Points:
    """Return the points that no other beats in both, by descending accuracy and so by descending seconds."""
    order = np.lexsort((-points.accuracy_P, points.seconds_P))
    accuracy = points.accuracy_P[order]
    best_before = np.concatenate([[-np.inf], np.maximum.accumulate(accuracy)[:-1]])
    return points.chosen(order[accuracy > best_before][::-1])


def _sums(correct: list[Floats], seconds: list[Floats], scores: list[Floats]) -> Points:
    """Return `points` as sums over the texts, which are sorted by the last gate's score, the highest first."""
    if not scores:
        return Points(np.empty((1, 0)), np.array([correct[0].sum()]), np.array([seconds[0].sum()]))
    if len(scores) == 1:
        return _one_gate(correct, seconds, scores[0])
    parts = [_beyond(threshold, correct, seconds, scores) for threshold in _thresholds_to_try(scores[0])]
    return Points(
        np.concatenate([part.threshold_PG for part in parts]),
        np.concatenate([part.accuracy_P for part in parts]),
        np.concatenate([part.seconds_P for part in parts]),
    )


def _one_gate(correct: list[Floats], seconds: list[Floats], score_R: Floats) -> Points:
    """Return the points where the k texts of the highest score go on, for every k at which the score changes."""
    accuracy = correct[0].sum() + np.concatenate([[0.0], np.cumsum(correct[1] - correct[0])])
    took = seconds[0].sum() + np.concatenate([[0.0], np.cumsum(seconds[1])])
    thresholds, ends = _cuts(score_R)
    return Points(thresholds[:, None], accuracy[ends], took[ends])


def _cuts(descending: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Return the thresholds between scores that differ, and how many scores lie above each."""
    if not len(descending):
        return np.array([NEVER]), np.array([0])
    ends = np.flatnonzero(descending[:-1] > descending[1:]) + 1
    between = (descending[ends - 1] + descending[ends]) / 2
    # Where the middle of two near scores rounds to the higher one, take the lower one: what is above it goes on.
    between = np.where(between >= descending[ends - 1], descending[ends], between)
    return np.concatenate([[NEVER], between, [ALWAYS]]), np.concatenate([[0], ends, [len(descending)]])


def _thresholds_to_try(score_R: Floats) -> Floats:
    """Return at most QUANTILES of the gate's distinct thresholds, evenly spread in rank."""
    thresholds, _ = _cuts(np.sort(score_R)[::-1])
    if len(thresholds) <= QUANTILES:
        return thresholds
    chosen: Floats = thresholds[np.linspace(0, len(thresholds) - 1, QUANTILES).round().astype(int)]
    return chosen


def _beyond(threshold: float, correct: list[Floats], seconds: list[Floats], scores: list[Floats]) -> Points:
    """Return the points with the first gate at `threshold`: what stays, and all that later gates make of the rest."""
    on = scores[0] > threshold
    rest = _sums([row[on] for row in correct[1:]], [row[on] for row in seconds[1:]], [row[on] for row in scores[1:]])
    first = np.full((len(rest), 1), threshold)
    return Points(
        np.concatenate([first, rest.threshold_PG], axis=1),
        rest.accuracy_P + correct[0][~on].sum(),
        rest.seconds_P + seconds[0].sum(),
    )
