"""Every linear layer of every block is packed, with the activation that follows it."""

from __future__ import annotations

import pytest
from torch import nn

from pliant.models.packed import PackedLinear, can_pack
from pliant.tokens.packed import pack
from pliant.tokens.runtime import load_model
from tests.fixtures.tokens.samples import tiny_backbone


@pytest.mark.skipif(not can_pack(), reason="this processor or build of torch has no packed layers")
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_all_blocks_are_packed_and_only_the_exact_gelu_is_computed_with_its_layer(approximate):
    model = load_model(tiny_backbone())
    for block in model.vit.blocks:
        block.mlp.act = nn.GELU(approximate)
    pack(model)
    layers = [layer for b in model.vit.blocks for layer in (b.attn.qkv, b.attn.proj, b.mlp.fc1, b.mlp.fc2)]
    assert layers and all(isinstance(layer, PackedLinear) for layer in layers)
    fused = [isinstance(block.mlp.act, nn.Identity) for block in model.vit.blocks]
    assert fused == [approximate == "none"] * len(model.vit.blocks)
