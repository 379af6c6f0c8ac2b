"""What an encoder gets right, and what half precision costs of it, by the kind of its head."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pliant.profiling.bins import accuracy as bins_accuracy
from pliant.profiling.bins.accuracy import cost, outputs
from tests.fixtures.bins.encoders import tiny_encoder

TEXTS = [(f"{'large ' * (count % 5)}cat", None) for count in range(40)]


@pytest.fixture
def said(monkeypatch):
    """Outputs by precision, instead of an encoder's."""
    values: dict[str, np.ndarray] = {}

    def fake(encoder, texts, device, threads, progress, precision="float32"):
        return np.asarray(values[precision], dtype=np.float32)

    monkeypatch.setattr(bins_accuracy, "outputs", fake)
    return values


def test_outputs_come_in_the_order_of_the_texts_whatever_their_lengths():
    encoder = tiny_encoder()
    together = outputs(encoder, TEXTS, "cpu", 1)
    for row, text in enumerate(TEXTS[:6]):
        np.testing.assert_allclose(outputs(encoder, [text], "cpu", 1)[0], together[row], atol=1e-5)


def test_a_classifier_loses_right_answers_or_without_labels_those_that_change(said):
    said |= {"float32": [[1, 0], [1, 0], [0, 1], [0, 1]], "bfloat16": [[1, 0], [0, 1], [0, 1], [1, 0]]}
    encoder, texts = tiny_encoder(), TEXTS[:4]
    assert cost(encoder, texts, np.array([0, 1, 1, 1]), "bfloat16") == 0.0
    assert cost(encoder, texts, np.array([0, 0, 1, 1]), "bfloat16") == 0.5
    assert cost(encoder, texts, None, "bfloat16") == 0.5


def test_an_embedding_loses_what_it_turns_away(said):
    said |= {"float32": [[1, 0], [2, 0]], "bfloat16": [[3, 0], [0, 1]]}
    assert cost(tiny_encoder(head="embedding"), TEXTS[:2], None, "bfloat16") == pytest.approx(0.5)


def test_a_regressor_loses_its_difference_in_deviations(said):
    said |= {"float32": [[0.0], [2.0]], "bfloat16": [[0.1], [2.1]]}
    encoder = replace(tiny_encoder(), classes=())
    assert cost(encoder, TEXTS[:2], None, "bfloat16") == pytest.approx(0.1)


@pytest.mark.parametrize("head", ["classification", "embedding"])
def test_bfloat16_of_a_real_encoder_costs_little(monkeypatch, head):
    monkeypatch.setattr("pliant.precision.has_bfloat16", lambda device: True)
    assert cost(tiny_encoder(head=head), TEXTS, None, "bfloat16") < 0.1
    assert cost(tiny_encoder(head=head), TEXTS, None, "float32") == pytest.approx(0, abs=1e-6)
