"""Encoders whose linear layers are packed give what plain ones give, with the GELU behind a layer in one with it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pliant.cascade.packed import pack
from pliant.errors import ArtifactError
from pliant.models.classifier import layers, load_model
from pliant.models.packed import PackedLinear, can_pack
from tests.fixtures.cascade.classifiers import tiny_classifier

pytestmark = pytest.mark.skipif(not can_pack(), reason="oneDNN's linear layers are for x86")


def linear(model: nn.Module, kind: type) -> list[nn.Module]:
    return [child for child in layers(model).modules() if type(child) is kind]


@pytest.mark.parametrize("family", ["bert", "distilbert"])
@torch.no_grad()
def test_a_packed_encoder_gives_the_same_logits(family):
    plain, packed = (load_model(tiny_classifier(family=family)) for _ in range(2))
    count = len(linear(plain, nn.Linear))
    pack(packed)
    assert not linear(packed, nn.Linear) and len(linear(packed, PackedLinear)) == count > 0
    assert sum(layer._activation == "gelu" for layer in linear(packed, PackedLinear)) == 2, "one a layer"
    ids = torch.randint(5, 80, (3, 12), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(packed(input_ids=ids).logits, plain(input_ids=ids).logits, atol=1e-4, rtol=1e-4)


class Block(nn.Module):
    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.dense, self.intermediate_act_fn = nn.Linear(4, 4), activation

    def forward(self, x):
        return self.intermediate_act_fn(self.dense(x))


@pytest.mark.parametrize(
    ("activation", "fused"), [(nn.GELU(), True), (nn.GELU("tanh"), False), (nn.ReLU(), False)], ids=repr
)
@torch.no_grad()
def test_only_the_exact_gelu_becomes_one_with_its_layer(activation, fused):
    model = nn.Sequential(nn.ModuleList([Block(activation)]))
    block, x = model[0][0], torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    expected = block(x)
    pack(model)
    assert isinstance(block.intermediate_act_fn, nn.Identity) == fused
    torch.testing.assert_close(block(x), expected, atol=1e-5, rtol=1e-4)


def test_a_model_without_layers_is_refused():
    with pytest.raises(ArtifactError, match="has no list of layers"):
        pack(nn.Linear(2, 2))
