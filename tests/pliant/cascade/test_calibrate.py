"""Calibration finds the exact optimum, after which confidences equal accuracies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.cascade.calibrate import (
    COLDEST,
    HOTTEST,
    deviation,
    error_of,
    fit_spread,
    reliability,
    softmax,
    temperature,
    within,
)
from pliant.errors import InputError


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


@pytest.mark.parametrize("true", [0.1, 0.4, 1.0, 2.5, 21.0, 90.0])
@pytest.mark.parametrize("classes", [2, 4, 30])
def test_the_temperature_is_the_minimum_of_a_fine_grid(true, classes):
    logits, labels = drawn(true, texts=300, classes=classes)
    fitted = temperature(logits, labels)
    grid = np.exp(np.linspace(np.log(fitted / 3), np.log(fitted * 3), 2001))
    losses = [loss(logits, labels, tried) for tried in grid]
    assert fitted == pytest.approx(true, rel=0.4)
    assert grid[np.argmin(losses)] == pytest.approx(fitted, rel=0.0012)
    assert loss(logits, labels, fitted) <= min(losses) + 1e-14


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


def test_logits_that_tell_nothing_or_the_contrary_stop_at_the_hottest():
    logits = np.array([[2.0, 0.0], [2.0, 0.0]])
    assert temperature(logits, np.array([1, 0])) == HOTTEST
    assert temperature(logits, np.array([1, 1])) == HOTTEST


@pytest.mark.parametrize(
    ("logits", "labels", "sentence"),
    [
        (np.zeros((0, 2)), [], "texts to calibrate on is 0, but must be at least 1"),
        ([[1.0, np.nan]], [0], "logits is not a number, but must be finite for every text"),
        ([[1.0, 0.0]], [2], "label is 2 to 2, but must be from 0 to 1"),
        ([[1.0, 0.0]] * 2, [1, -1], "label is -1 to 1, but must be from 0 to 1"),
    ],
)
def test_what_cannot_be_calibrated_is_refused(logits, labels, sentence):
    with pytest.raises(InputError, match=sentence):
        temperature(np.array(logits), np.array(labels))


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


def test_a_reliability_diagram_holds_every_text_and_leaves_empty_bins_blank():
    diagram = reliability(np.array([0.05, 0.95, 1.0, 0.92]), np.array([False, True, True, False]), 10)
    assert diagram.count.tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 0, 3]
    assert diagram.accuracy[[0, 9]].tolist() == [0.0, pytest.approx(2 / 3)]
    assert diagram.confidence[[0, 9]].tolist() == [0.05, pytest.approx(2.87 / 3)]
    assert np.isnan(diagram.accuracy[1:9]).all()


def errors(texts, seed=0):
    """Return predictions whose error grows with the length and falls towards the ends."""
    rng = np.random.default_rng(seed)
    prediction = rng.uniform(0, 5, texts)
    length = rng.integers(4, 128, texts)
    deviations = 100 * np.exp(-((prediction - 2.5) ** 2) / 6) * (length / 30) ** 0.4
    prediction = 1000 + 200 * prediction
    return prediction, prediction + deviations * rng.normal(size=texts), length, deviations


def test_the_spread_follows_prediction_and_length():
    prediction, label, length, true = errors(20_000)
    spread_R = deviation(fit_spread(prediction, label, length), prediction, length)
    assert np.mean(spread_R**2) == pytest.approx(np.mean((label - prediction) ** 2))
    assert np.median(np.abs(np.log(spread_R / true))) < 0.05


@pytest.mark.parametrize("tolerance", [20.0, 80.0, 200.0])
def test_the_share_within_the_tolerance_is_the_promised_one_on_new_texts(tolerance):
    prediction, label, length, _ = errors(4000)
    spread = fit_spread(prediction, label, length)
    prediction, label, length, _ = errors(20_000, seed=1)
    promised = within(deviation(spread, prediction, length), tolerance)
    correct = np.abs(label - prediction) <= tolerance
    assert promised.mean() == pytest.approx(correct.mean(), abs=0.015)
    assert error_of(promised, correct) < 0.025


def test_a_regression_without_texts_or_with_broken_ones_is_refused():
    with pytest.raises(InputError, match="texts to calibrate on is 0"):
        fit_spread(np.zeros(0), np.zeros(0), np.zeros(0))
    with pytest.raises(InputError, match="prediction or label is not a number"):
        fit_spread(np.array([np.inf]), np.zeros(1), np.ones(1))
