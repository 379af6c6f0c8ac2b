"""The weight is the likeliest one of a fine grid, and the larger level stands alone where mixing helps no text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.cascade.calibrate import softmax
from pliant.cascade.ensemble import likeliest, published, weight

GRID = np.linspace(0, 1, 501)


def said(seed, texts=60, classes=3, before=1.0, after=2.0):
    """Return two levels' answers and the labels. `before` and `after`: how much each level prefers the right class."""
    rng = np.random.default_rng(seed)
    label_R = rng.integers(classes, size=texts)
    answers = []
    for skill in (before, after):
        logits = rng.normal(0, 1, (texts, classes))
        logits[np.arange(texts), label_R] += skill
        answers.append(softmax(logits))
    return *answers, label_R


def likelihood(before, after, label, share):
    rows = np.arange(len(label))
    return np.log(share * after[rows, label] + (1 - share) * before[rows, label]).mean()


@given(st.integers(0, 10_000), st.floats(-1, 3), st.floats(-1, 3))
def test_no_weight_on_a_fine_grid_is_likelier(seed, before, after):
    answers = said(seed, before=before, after=after)
    best = max(likelihood(*answers, share) for share in GRID)
    assert likelihood(*answers, likeliest(*answers)) >= best - 1e-12


@given(st.integers(0, 10_000), st.floats(-1, 3))
def test_the_larger_level_stands_alone_unless_the_mixture_answers_more_texts_correctly(seed, after):
    before, larger, label = said(seed, after=after)
    fitted = weight(before, larger, label)
    mixed = ((fitted * larger + (1 - fitted) * before).argmax(axis=1) == label).mean()
    alone = (larger.argmax(axis=1) == label).mean()
    assert fitted == 1.0 or (mixed > alone and fitted == likeliest(before, larger, label))


def test_the_published_weights_are_as_the_accuracies():
    before = np.array([[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.9, 0.1]])
    after = np.array([[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.1, 0.9]])
    label = np.array([0, 1, 1, 1])
    assert published(before, after, label) == pytest.approx(0.5 / (0.25 + 0.5))
    assert published(before, before, np.array([1, 1, 1, 1])) == 1.0  # neither is ever correct


@pytest.mark.parametrize("fit", [weight, published])
def test_without_texts_the_larger_level_stands_alone(fit):
    assert fit(np.empty((0, 3)), np.empty((0, 3)), np.empty(0, int)) == 1.0
