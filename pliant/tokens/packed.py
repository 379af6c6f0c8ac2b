"""The linear layers of a vision transformer's blocks in oneDNN's packed layout (pliant/models/packed.py)."""

from __future__ import annotations

from torch import nn

from pliant.models.packed import PackedLinear
from pliant.tokens.model import AdaptiveViT


def pack(model: AdaptiveViT) -> None:
    """Replace the linear layers of every block, in place; an MLP's exact GELU is computed by its first layer."""
    for block in model.vit.blocks:
        block.attn.qkv, block.attn.proj = PackedLinear(block.attn.qkv), PackedLinear(block.attn.proj)
        mlp = block.mlp
        fused = type(mlp.act) is nn.GELU and mlp.act.approximate == "none"
        mlp.fc1, mlp.fc2 = PackedLinear(mlp.fc1, "gelu" if fused else "none"), PackedLinear(mlp.fc2)
        if fused:
            mlp.act = nn.Identity()
