"""Models are compared with linear ones on the same rows: by a paired test, for classes, numbers and pictures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pliant.flows.gate import below_linear
from pliant.training import data as pictures
from pliant.training import texts
from pliant.training.linear import LinearComparison, compare_pictures, compare_texts
from pliant.training.text_data import TextData

CLOSE = LinearComparison("TF-IDF", "accuracy", 0.7, 0.8, 0.1, 0.06, 300, 100, 0.5)


@pytest.fixture(scope="module")
def kinds(tmp_path_factory) -> TextData:
    """Texts of two classes that one word tells apart."""
    rng, path = np.random.default_rng(0), tmp_path_factory.mktemp("texts") / "kinds.csv"
    rows = [f"{rng.choice(['the', 'an', 'old'])} {word} {n},{word}" for n in range(100) for word in ("oak", "tin")]
    path.write_text("\n".join(["text,label", *rows]))
    return texts.load(f"csv:{path}")


def test_a_model_that_guesses_is_worse_than_a_linear_one_and_one_that_is_right_is_not(kinds):
    right_RK = np.eye(2)[kinds.labels[kinds.split.test].astype(int)]
    good, bad = compare_texts(kinds, right_RK), compare_texts(kinds, np.eye(2)[np.zeros(len(right_RK), int)])
    assert (good.linear_score, good.model_score, good.worse) == (1.0, 1.0, False)
    assert bad.worse and bad.tested == len(kinds.split.test) and bad.fitted == len(kinds.split.fit)


def test_numbers_are_compared_by_their_squared_errors(kinds):
    numbers = replace(kinds, classes=(), labels=kinds.labels * 10.0)
    label_R = numbers.labels[numbers.split.test]
    assert not compare_texts(numbers, label_R[:, None]).worse
    constant = compare_texts(numbers, np.full((len(label_R), 1), 5.0))
    assert constant.worse and constant.model_score == pytest.approx(25) and constant.linear_score < 10


def test_pictures_are_compared_by_their_pixels_and_one_class_alone_is_predicted(kinds):
    digits = pictures.load("digits:loops")
    rows = digits.split.test[:100]
    compared = compare_pictures(digits, rows, np.zeros(100, bool))
    assert compared.worse and compared.linear_score > 0.8
    alone = replace(digits, labels=np.zeros_like(digits.labels))
    assert compare_pictures(alone, rows, np.ones(100, bool)).linear_score == 1.0


@pytest.mark.parametrize(
    ("error", "address", "allowed", "refused"),
    [
        (0.06, "csv:mine", None, False),  # chance may explain it
        (0.01, "csv:mine", None, True),
        (0.01, "csv:mine", True, False),
        (0.01, "docstrings:kind", None, False),  # comes with Pliant, to try it
        (0.01, "docstrings:kind", False, True),
    ],
)
def test_the_gate_refuses_by_name_what_is_worse_beyond_chance_unless_it_may_be(
    error, address, allowed, refused, capsys
):
    reason = below_linear([("the task mine", address, replace(CLOSE, error=error))], allowed)
    assert ("the task mine is worse" in reason and "gate.below_linear" in reason) == refused
    assert "0.7000 against 0.8000" in capsys.readouterr().err


@pytest.mark.parametrize(("address", "allowed", "refused"), [("csv:mine", None, True), ("csv:mine", True, False)])
def test_a_model_that_learnt_nothing_is_refused_also_where_a_linear_one_learnt_as_little(
    kinds, address, allowed, refused
):
    guessing = compare_texts(kinds, np.eye(2)[np.zeros(len(kinds.split.test), int)])
    assert not guessing.learnt and compare_texts(kinds, np.eye(2)[kinds.labels[kinds.split.test]]).learnt
    reason = below_linear([("the task mine", address, replace(guessing, margin=0.0))], allowed)
    assert ("the task mine is no better than the majority class (accuracy" in reason) == refused
    squared = replace(CLOSE, measure="mean squared error", model_score=4.0, constant_score=4.0, margin=0.0)
    assert ("no better than the mean" in below_linear([("t", address, squared)], allowed)) == refused
