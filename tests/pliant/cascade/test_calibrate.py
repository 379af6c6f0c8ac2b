"""Calibration, ensembles' weights and certified bounds: each is held against a grid, a formula or what it promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from pliant.cascade.calibrate import (
    COLDEST,
    HOTTEST,
    error_of,
    published,
    temperature,
)
from pliant.cascade.certify import clopper_pearson, lower_bounds
from pliant.cascade.route import softmax
from tests.fixtures.cascade.scenarios import lower_bound


def drawn(true, texts=600, classes=4, seed=0):
    """Return logits whose best temperature is `true`, and labels."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(texts, classes)) * 2
    labels = np.array([rng.choice(classes, p=row) for row in softmax(logits)])
    return logits * true, labels


def loss(logits, labels, tried):
    scaled = logits / tried
    top = scaled.max(1)
    return (top + np.log(np.exp(scaled - top[:, None]).sum(1)) - scaled[np.arange(len(labels)), labels]).mean()


@settings(deadline=None, max_examples=50)
@given(
    seed=st.integers(0, 1000),
    classes=st.integers(2, 12),
    scale=st.floats(0.01, 100),
    noise=st.floats(0, 3),
)
def test_no_temperature_of_the_allowed_ones_is_better(seed, classes, scale, noise):
    logits, labels = drawn(scale, 40, classes, seed)
    logits = logits + noise * scale * np.random.default_rng(seed).normal(size=logits.shape)
    fitted = temperature(logits, labels)
    least = loss(logits, labels, fitted)
    assert all(least <= loss(logits, labels, tried) + 1e-12 for tried in np.geomspace(COLDEST, HOTTEST, 300))


def test_classes_that_separate_perfectly_stop_at_the_coldest_temperature():
    logits = np.array([[2.0, 0.0], [0.0, 1.0], [3.0, 1.0]])
    assert temperature(logits, np.array([0, 1, 0])) == COLDEST


@given(
    rows=st.lists(st.tuples(st.integers(0, 997).map(lambda n: n / 997), st.booleans()), min_size=1, max_size=60),
    bins=st.integers(1, 20),
)
def test_the_error_is_the_weighted_distance_of_every_bin(rows, bins):
    expected = 0.0
    for number in range(bins):
        inside = [row for row in rows if number / bins < row[0] <= (number + 1) / bins or row[0] == number == 0]
        if inside:
            expected += abs(sum(row[0] for row in inside) - sum(row[1] for row in inside)) / len(rows)
    confidence, correct = (np.array(column) for column in zip(*rows, strict=True))
    assert error_of(confidence, correct, bins) == pytest.approx(expected)


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


def test_the_published_weight_is_in_proportion_to_both_accuracies_and_without_texts_the_larger_level_stands_alone():
    before, larger, label_R = said(0)
    small, large = ((answer_RK.argmax(axis=1) == label_R).mean() for answer_RK in (before, larger))
    assert published(before, larger, label_R) == pytest.approx(large / (small + large))
    assert published(np.empty((0, 3)), np.empty((0, 3)), np.empty(0, int)) == 1.0


WORLDS = 4000
CONFIDENCE = 0.95
SLACK = 3 * np.sqrt(0.05 * 0.95 / WORLDS)  # three standard errors of the share of misses


def differences(rng, losses, gains, texts):
    """Return for each world the sum of differences and the number of texts that differ: lost, won or equal."""
    lost, won, _ = rng.multinomial(texts, [losses, gains, 1 - losses - gains], WORLDS).T
    return (won - lost) / texts, (won + lost) / texts


@pytest.mark.parametrize("texts", [300, 1400])
@pytest.mark.parametrize(("losses", "gains"), [(0.002, 0.0), (0.01, 0.0), (0.01, 0.005), (0.05, 0.04), (0.15, 0.2)])
def test_the_bound_is_above_the_true_mean_in_at_most_the_declared_share_of_worlds(texts, losses, gains):
    rng = np.random.default_rng(1)
    mean_P, square_P = differences(rng, losses, gains, texts)
    missed = (lower_bounds(mean_P, square_P, texts, CONFIDENCE) > gains - losses).mean()
    assert missed <= 0.05 + SLACK


@given(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=1, max_size=50), st.sampled_from([None, 10, 1000]))
def test_the_bound_is_that_of_the_differences_with_one_loss_more(differences, horizon):
    seen, z, further = np.array(differences), 1.6448536269514722, 1 / horizon if horizon else 0
    spread = np.append(seen, -1.0).std() * np.sqrt(1 / len(seen) + further)
    skewed = (z**2 - 1) / 3 * max(0, 1 / len(seen) - further)
    expected = (seen.sum() - 1) / len(seen) - z * spread - skewed
    assert lower_bound(seen, 0.95, horizon) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("right", "texts"), [(90, 100), (1, 40), (40, 40)])
def test_the_bound_of_a_share_is_the_one_at_which_as_many_right_answers_are_just_unlikely(right, texts):
    assert binom.sf(right - 1, texts, clopper_pearson(np.arange(texts) < right, 0.95)) == pytest.approx(0.05)
