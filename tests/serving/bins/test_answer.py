"""Embeddings and scores are what TEI's formulas give."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from pliant.serving.bins.api import embeddings, respond, scores


def answer(outputs, normalize: bool = False) -> SimpleNamespace:
    return SimpleNamespace(outputs=outputs, encoder=SimpleNamespace(normalize=normalize))


def test_floats_are_written_with_as_few_digits_as_they_need():
    response = respond([{"score": np.float32(0.1)}])
    assert response.body == b'[{"score":0.1}]' and response.status_code == 200
    assert response.headers["content-type"].startswith("application/json")


def test_an_embedding_shorter_than_1_is_made_longer_too():
    (unit,) = embeddings(answer([np.array([0.3, 0.4], np.float32)]))
    np.testing.assert_allclose(unit, [0.6, 0.8], rtol=1e-6)


def test_many_logits_are_no_sigmoids_and_the_largest_do_not_overflow():
    result = scores(np.array([1000.0, 1000.0], np.float32), ("a", "b"), raw=False, max_classes=None)
    assert [(item["label"], float(item["score"])) for item in result] == [("a", 0.5), ("b", 0.5)]
    (low,) = scores(np.array([-1000.0], np.float32), (), raw=False, max_classes=1)
    assert float(low["score"]) == 0.0
