"""The predictor of lengths on its device: the encoder in the device's precision, the heads in float32."""

from __future__ import annotations

import pytest
import torch

from pliant.packing.engine import predictor as module
from pliant.packing.engine.model import PredictorModel
from tests.fixtures.packing.published import predictor

TEXTS = ["a text", "a text", "quite another text of several words"]


def test_a_gpu_takes_its_own_precision_and_a_cpu_float32(monkeypatch):
    monkeypatch.setattr(module, "has_bfloat16", lambda device: device.index == 0)
    precisions = [module.precision_of(torch.device(device)) for device in ("cpu", "cuda:0", "cuda:1")]
    assert precisions == [torch.float32, torch.bfloat16, torch.float16]


def test_on_a_cpu_it_forecasts_as_it_was_trained():
    artifact = predictor("g")
    assert module.load(artifact, "cpu").predict(TEXTS) == PredictorModel.of(artifact).predict(TEXTS)


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_with_its_encoder_in_half_precision_it_forecasts_nearly_the_same(monkeypatch, precision):
    artifact = predictor("g")
    monkeypatch.setattr(module, "precision_of", lambda device: precision)
    rounded = module.load(artifact, "cpu")
    assert {parameter.dtype for parameter in rounded.model.encoder.parameters()} == {precision}
    assert rounded.model.quantile.weight.dtype == torch.float32
    for one, other in zip(PredictorModel.of(artifact).predict(TEXTS), rounded.predict(TEXTS), strict=True):
        assert other.tokens == pytest.approx(one.tokens, rel=0.02)


def test_prompts_are_brought_to_the_device_of_the_model():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = torch.nn.Embedding(5, 2)

        def forward(self, ids_BN, mask_BN):
            return self.encoder(ids_BN), mask_BN

    model, ones_BN = Model(), torch.ones(2, 3, dtype=torch.long)
    module.place(model, torch.device("meta"))
    assert {output.device.type for output in model(ones_BN, ones_BN)} == {"meta"}
