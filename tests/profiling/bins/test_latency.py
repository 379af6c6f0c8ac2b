"""The staircase: which shapes are measured, in turns, and that tables never contradict themselves."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.bins.artifact import Shape
from pliant.profiling.bins import accuracy as bins_accuracy
from pliant.profiling.bins.accuracy import cost
from pliant.profiling.bins.latency import LatencyConfig, profile
from tests.fixtures.bins.encoders import tiny_encoder

TEXTS = [(f"{'large ' * (count % 5)}cat", None) for count in range(40)]

FAST = LatencyConfig(lengths=(4, 8, 60), batches=(1, 3), repeats=2, least=1, budget=0.1)


def test_every_candidate_is_measured_and_the_longest_and_the_dynamic_runtime_at_the_same_points(tmp_path):
    reports = []
    measured = profile(tiny_encoder(), "eager", tmp_path, {}, FAST, progress=lambda *at: reports.append(at))
    assert list(measured.static) == [Shape(length, batch) for length in (4, 8, 40) for batch in (1, 3)]
    assert (measured.dynamic.settings, measured.dynamic.batches) == ((4, 8, 40), (1, 3))
    for rows in (np.reshape(list(measured.static.values()), (3, 2)), np.array(measured.dynamic.seconds)):
        assert (rows > 0).all()
        assert (np.diff(rows, axis=0) >= 0).all()
        assert (np.diff(rows, axis=1) >= 0).all()
    assert [done for done, _ in reports] == sorted(done for done, _ in reports)
    assert len(reports) == FAST.warmup + FAST.repeats


@pytest.fixture
def said(monkeypatch):
    """Outputs by precision, instead of an encoder's."""
    values: dict[str, np.ndarray] = {}

    def fake(encoder, texts, device, threads, progress, precision="float32"):
        return np.asarray(values[precision], dtype=np.float32)

    monkeypatch.setattr(bins_accuracy, "outputs", fake)
    return values


def test_a_classifier_loses_right_answers_or_without_labels_those_that_change(said):
    said |= {"float32": [[1, 0], [1, 0], [0, 1], [0, 1]], "bfloat16": [[1, 0], [0, 1], [0, 1], [1, 0]]}
    encoder, texts = tiny_encoder(), TEXTS[:4]
    assert cost(encoder, texts, np.array([0, 1, 1, 1]), "bfloat16") == 0.0
    assert cost(encoder, texts, np.array([0, 0, 1, 1]), "bfloat16") == 0.5
    assert cost(encoder, texts, None, "bfloat16") == 0.5


@pytest.mark.parametrize("head", ["classification", "embedding"])
def test_bfloat16_of_a_real_encoder_costs_little(monkeypatch, head):
    monkeypatch.setattr("pliant.precision.has_bfloat16", lambda device: True)
    assert cost(tiny_encoder(head=head), TEXTS, None, "bfloat16") < 0.1
    assert cost(tiny_encoder(head=head), TEXTS, None, "float32") == pytest.approx(0, abs=1e-6)
