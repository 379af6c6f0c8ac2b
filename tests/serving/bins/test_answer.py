"""Embeddings and scores are what TEI's formulas give."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pliant.errors import InputError
from pliant.serving.bins.answer import check_normalize, embeddings, respond, scores

LOGITS = st.floats(-80, 80, width=32)
CLASSES = ("a", "b", "c")


def answer(outputs, normalize: bool = False) -> SimpleNamespace:
    return SimpleNamespace(outputs=outputs, encoder=SimpleNamespace(normalize=normalize))


def test_embeddings_are_of_length_1_unless_plain_ones_are_wanted_or_the_encoder_did_it():
    row, zero = np.array([3, 4], np.float32), np.zeros(2, np.float32)
    unit, unchanged = embeddings(answer([row, zero]))
    np.testing.assert_allclose(unit, [0.6, 0.8], rtol=1e-6)
    assert unit.dtype == np.float32 and np.array_equal(unchanged, zero)
    assert embeddings(answer([row]), normalize=False) == [row]
    assert embeddings(answer([row], normalize=True)) == [row]


def test_embeddings_are_cut_first_and_scaled_after_that_unless_plain_ones_are_wanted():
    row = np.array([3, 4, 12], np.float32)
    for own in (False, True):
        (cut,) = embeddings(answer([row], normalize=own), dimensions=2)
        np.testing.assert_allclose(cut, [0.6, 0.8], rtol=1e-6)
    (plain,) = embeddings(answer([row]), normalize=False, dimensions=2)
    assert plain.tolist() == [3, 4]
    np.testing.assert_allclose(embeddings(answer([row]), dimensions=3)[0], row / 13, rtol=1e-6)
    with pytest.raises(
        InputError, match="dimensions is 4, but must be at most 3, the width of the encoder's embeddings"
    ):
        embeddings(answer([row]), dimensions=4)


def test_plain_embeddings_of_an_encoder_that_normalizes_are_refused():
    with pytest.raises(InputError, match="normalize is false"):
        check_normalize(SimpleNamespace(normalize=True), False)
    for own, wanted in ((True, True), (False, False), (False, True)):
        check_normalize(SimpleNamespace(normalize=own), wanted)


@given(arrays.arrays(np.float32, 3, elements=LOGITS))
def test_scores_are_the_softmax_best_first(logits):
    result = scores(logits, CLASSES, raw=False, max_classes=None)
    exact = np.exp(logits.astype(float) - logits.max())
    exact /= exact.sum()
    by_label = {item["label"]: float(item["score"]) for item in result}
    np.testing.assert_allclose([by_label[name] for name in CLASSES], exact, atol=1e-6)
    assert [item["score"] for item in result] == sorted(by_label.values(), reverse=True)


@given(LOGITS)
def test_a_single_output_is_a_sigmoid(logit):
    (item,) = scores(np.array([logit], np.float32), (), raw=False, max_classes=None)
    assert item["label"] == "LABEL_0"
    assert float(item["score"]) == pytest.approx(1 / (1 + np.exp(-float(logit))), abs=1e-6)


def test_raw_scores_are_the_logits_and_only_the_best_are_given():
    logits = np.array([1.0, 5.0, 5.0], np.float32)
    assert [item["label"] for item in scores(logits, CLASSES, raw=True, max_classes=2)] == ["b", "c"]
    assert [item["score"] for item in scores(logits, CLASSES, raw=True, max_classes=None)] == [5.0, 5.0, 1.0]


def test_floats_are_written_with_as_few_digits_as_they_need():
    response = respond([{"score": np.float32(0.1)}], {"x-some": "header"})
    assert response.body == b'[{"score":0.1}]' and json.loads(response.body)
    assert (response.status_code, response.headers["x-some"]) == (200, "header")
    assert response.headers["content-type"].startswith("application/json")


def test_an_embedding_shorter_than_1_is_made_longer_too():
    (unit,) = embeddings(answer([np.array([0.3, 0.4], np.float32)]))
    np.testing.assert_allclose(unit, [0.6, 0.8], rtol=1e-6)


def test_many_logits_are_no_sigmoids_and_the_largest_do_not_overflow():
    result = scores(np.array([1000.0, 1000.0], np.float32), ("a", "b"), raw=False, max_classes=None)
    assert [(item["label"], float(item["score"])) for item in result] == [("a", 0.5), ("b", 0.5)]
    (low,) = scores(np.array([-1000.0], np.float32), (), raw=False, max_classes=1)
    assert float(low["score"]) == 0.0
