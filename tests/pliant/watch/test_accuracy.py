"""Accuracy is estimated without labels, by two methods."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.watch import mean_confidence, thresholded_confidence

counts = st.lists(st.integers(0, 50), min_size=10, max_size=10).filter(any)


def test_the_mean_of_calibrated_confidences_is_the_accuracy():
    rng = np.random.default_rng(0)
    confidences = rng.beta(4, 1, 20_000)
    right = rng.random(20_000) < confidences
    estimate = mean_confidence(np.histogram(confidences, 50, (0, 1))[0])
    assert estimate.accuracy == pytest.approx(right.mean(), abs=0.01)
    assert estimate.low < right.mean() < estimate.high


@given(counts, st.floats(0, 1))
def test_on_the_reference_itself_the_thresholded_confidence_is_its_accuracy(reference, accuracy):
    estimate = thresholded_confidence(reference, accuracy, reference)
    assert estimate.accuracy == pytest.approx(accuracy, abs=1e-9)


@given(counts, counts, st.floats(0, 1))
def test_estimates_and_their_intervals_are_shares(reference, block, accuracy):
    for estimate in (mean_confidence(block), thresholded_confidence(reference, accuracy, block)):
        assert 0 <= estimate.low <= estimate.accuracy <= estimate.high <= 1


def test_without_answers_there_is_no_estimate():
    assert math.isnan(mean_confidence([0, 0]).accuracy)
    assert math.isnan(thresholded_confidence([1, 1], 0.5, [0, 0]).low)


def test_a_reference_without_answers_or_accuracy_is_refused():
    with pytest.raises(InputError):
        thresholded_confidence([0, 0], 0.5, [1, 1])
    with pytest.raises(InputError):
        thresholded_confidence([1, 1], 1.5, [1, 1])
