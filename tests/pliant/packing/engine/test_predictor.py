"""The predictor of lengths on its device: the encoder in the device's precision, the heads in float32."""

from __future__ import annotations

import pytest
import torch

from pliant.packing.engine import model as module
from pliant.packing.engine.model import PredictorModel
from tests.fixtures.packing.published import predictor


def test_a_gpu_takes_its_own_precision_and_a_cpu_float32(monkeypatch):
    monkeypatch.setattr(module, "has_bfloat16", lambda device: device.index == 0)
    precisions = [module.precision_of(torch.device(device)) for device in ("cpu", "cuda:0", "cuda:1")]
    assert precisions == [torch.float32, torch.bfloat16, torch.float16]


def test_on_a_cpu_it_forecasts_as_it_was_trained():
    artifact = predictor("g")
    texts = ["word " * (7 * number % 30) for number in range(20)]
    for one, other in zip(
        PredictorModel.of(artifact).predict(texts), module.load(artifact, "cpu").predict(texts), strict=True
    ):
        assert (other.tokens, other.bucket) == (pytest.approx(one.tokens, rel=1e-4), one.bucket)


class Passes:
    """Notes what is predicted in one pass; a forecast is the prompt itself."""

    def __init__(self):
        self.passes = []

    def predict(self, texts):
        self.passes.append(texts)
        return list(texts)


@pytest.mark.parametrize(
    ("alike", "passes"), [(2, [["a", "b"], ["cc", "ddd"], ["eeee"]]), (0, [["a", "b", "cc", "ddd", "eeee"]])]
)
def test_prompts_of_similar_length_run_together_and_forecasts_keep_their_order(alike, passes):
    model = Passes()
    texts = ["ddd", "a", "eeee", "b", "cc"]
    assert module.PlacedPredictor(model, alike).predict(texts) == texts
    assert model.passes == passes
    assert module.PlacedPredictor(model, alike).predict([]) == []
