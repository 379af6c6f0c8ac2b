"""The thresholds are all possible trades of accuracy for seconds, and give what they claim."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.cascade.frontier import ALWAYS, applied, frontier, points


def settled(correct, seconds, score, thresholds):
    """Return the share answered correctly and the mean seconds, computed text by text."""
    right, took = 0.0, 0.0
    for text in range(len(correct[0])):
        step = 0
        took += seconds[0][text]
        while step < len(thresholds) and score[step][text] > thresholds[step]:
            step += 1
            took += seconds[step][text]
        right += correct[step][text]
    return right / len(correct[0]), took / len(correct[0])


@st.composite
def outcomes(draw):
    """Draw scores of few values, so that many are equal, and seconds in eighths, so that sums are exact."""
    steps, texts = draw(st.integers(1, 3)), draw(st.integers(1, 8))

    def rows(values, count):
        return [np.array(draw(st.lists(values, min_size=texts, max_size=texts)), float) for _ in range(count)]

    eighths = st.integers(1, 16).map(lambda n: n / 8)
    scores = st.integers(-4, 4).map(lambda n: n / 8)
    return rows(st.integers(0, 1), steps), rows(eighths, steps), rows(scores, steps - 1)


def every_outcome(correct, seconds, score):
    cuts = [[ALWAYS, *np.unique(row)] for row in score]
    return {settled(correct, seconds, score, thresholds) for thresholds in product(*cuts)}


@given(outcomes())
def test_points_are_all_outcomes_that_any_thresholds_have(table):
    every = points(*table)
    assert set(zip(every.accuracy_P, every.seconds_P, strict=True)) == every_outcome(*table)


@given(outcomes())
def test_the_frontier_is_what_no_other_outcome_beats(table):
    outcomes = every_outcome(*table)
    best = {(a, s) for a, s in outcomes if not any((b >= a and t <= s) and (b, t) != (a, s) for b, t in outcomes)}
    edge = frontier(points(*table))
    assert set(zip(edge.accuracy_P, edge.seconds_P, strict=True)) == best
    assert len(edge) == len(best)
    assert (np.diff(edge.accuracy_P) < 0).all() and (np.diff(edge.seconds_P) < 0).all()


@given(outcomes(), st.integers(0, 3))
def test_given_thresholds_are_applied_as_text_by_text(table, seed):
    correct, seconds, score = table
    threshold_PG = np.random.default_rng(seed).integers(-5, 5, (4, len(score))) / 8
    correct_PR, seconds_P = applied([row.astype(bool) for row in correct], seconds, score, threshold_PG)
    for point, threshold_G in enumerate(threshold_PG):
        right, took = settled(correct, seconds, score, threshold_G)
        assert correct_PR[point].mean() == right
        assert seconds_P[point] == pytest.approx(took)
