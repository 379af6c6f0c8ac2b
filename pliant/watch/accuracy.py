"""Estimates accuracy without labels. An estimate, and called so: it is as good as the calibration it rests on.

Two estimates from the confidences of answers, counted by bin of [0, 1]:

- the mean of calibrated confidences. It is right while calibration holds, under any change of the inputs that leaves it so;
- the average thresholded confidence (Garg et al., Leveraging unlabeled data to predict out-of-distribution performance, ICLR
  2022): on labelled reference data, the threshold below which as many confidences lie as answers were wrong; the estimate is
  the share above it now. It does not need calibrated confidences, but the reference's order of them.

The intervals say what the number of answers leaves open (Hoeffding, 95%), and nothing about calibration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from pliant.errors import InputError
from pliant.watch.detector import checked_counts

INTERVAL = 0.95


@dataclass(frozen=True, slots=True)
class AccuracyEstimate:
    """An estimated accuracy with its interval; NaN without answers."""

    method: Literal["mean confidence", "average thresholded confidence"]
    accuracy: float
    low: float
    high: float
    answers: int


def mean_confidence(counts: ArrayLike, means: ArrayLike | None = None) -> AccuracyEstimate:
    """Return the mean confidence from the counts by bin [bins] of equal width over [0, 1].

    `means` [bins]: the mean confidence, or better the accuracy that the answers of each bin had on labelled data; the
    middles of the bins where it is None.
    """
    bins = np.asarray(counts).shape[0]
    block = checked_counts(counts, bins, 2**62)
    values = (np.arange(bins) + 0.5) / bins if means is None else np.clip(np.asarray(means, float), 0, 1)
    answers = int(block.sum())
    return _estimate("mean confidence", float(block @ values) / answers if answers else math.nan, answers)


def thresholded_confidence(reference: ArrayLike, accuracy: float, counts: ArrayLike) -> AccuracyEstimate:
    """Return the average thresholded confidence of answers counted by bin [bins] of the confidence.

    `reference` [bins]: counts of labelled answers, which had this `accuracy`. Within the bin of the threshold confidences
    count as evenly spread. Raises `InputError` for an accuracy outside 0 to 1 or a reference without answers.
    """
    if not 0 <= accuracy <= 1:
        raise InputError("accuracy", accuracy, "0 to 1")
    former = checked_counts(reference, np.asarray(reference).shape[0], 2**62)
    block = checked_counts(counts, len(former), 2**62)
    if not former.sum():
        raise InputError("reference", "without answers", "counts of labelled answers")
    answers = int(block.sum())
    if not answers:
        return _estimate("average thresholded confidence", math.nan, 0)
    above = np.concatenate([np.cumsum(former[::-1])[::-1] / former.sum(), [0.0]])  # share from each edge on
    place = int(np.nonzero(above >= accuracy)[0][-1])  # the last edge with enough above it begins the threshold's bin
    if place == len(former):
        return _estimate("average thresholded confidence", 0.0, answers)
    inside = (
        (accuracy - above[place + 1]) / (above[place] - above[place + 1]) if above[place] > above[place + 1] else 0.0
    )
    share = (block[place + 1 :].sum() + inside * block[place]) / answers
    return _estimate("average thresholded confidence", float(share), answers)


def _estimate(
    method: Literal["mean confidence", "average thresholded confidence"], accuracy: float, answers: int
) -> AccuracyEstimate:
    margin = math.sqrt(math.log(2 / (1 - INTERVAL)) / (2 * answers)) if answers else math.nan
    low, high = max(0.0, accuracy - margin), min(1.0, accuracy + margin)
    return AccuracyEstimate(method, accuracy, low if answers else math.nan, high if answers else math.nan, answers)
