"""One frozen vision transformer that runs at any gamma: prompts added (gamma > 0), tokens merged (gamma < 0) or plain (0).

Written over timm's blocks, whose modules stay as they are. Prompts follow VPT-deep (Jia et al. 2022, Eq. 5): each layer
replaces the prompts of the layer before, so a layer sees n + gamma tokens and no more. Merging follows ToMe: between
attention and MLP, on the keys averaged over heads. Tasks are mixed in one batch: prompts and heads are gathered per sample.
Knows nothing of requests, deadlines or where weights come from.

Shape suffixes: B batch, C colour, N tokens, D width, H heads, E head width, L layers, G prompts, T tasks, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import timm
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from pliant.errors import BackboneError
from pliant.tokens.merge import match, merge, merged_count


def create_vit(architecture: str, options: Mapping[str, Any], pretrained: bool = False) -> Any:
    """A timm vision transformer without its classifier. `pretrained=True` needs the hub (training/tokens_foundation.py)."""
    # Any: attribute types of timm's modules are not declared.
    return timm.create_model(architecture, pretrained=pretrained, num_classes=0, **options)


class AdaptiveViT(nn.Module):
    """Class-token features of a timm ViT at a given gamma.

    Raises `BackboneError` for a net of another shape: with another pooling or more tokens in front its features would
    be wrong without any sign of it.
    """

    def __init__(self, vit: Any) -> None:
        super().__init__()
        prefix, pool = getattr(vit, "num_prefix_tokens", 0), getattr(vit, "global_pool", "")
        if (prefix, pool) != (1, "token") or not hasattr(vit, "blocks"):
            raise BackboneError(
                f"{type(vit).__name__} has {prefix} tokens in front of the patches and pools by {pool or 'nothing'!r}, "
                "but must be a vision transformer with a class token alone, pooled by 'token'"
            )
        self.vit = vit

    @property
    def depth(self) -> int:
        return len(self.vit.blocks)

    @property
    def width(self) -> int:
        return int(self.vit.embed_dim)

    def forward(self, image_BCHW: Tensor, merged: int = 0, prompts_BLGD: Tensor | None = None) -> Tensor:
        """Features [B, D] of normalised images, merging `merged` tokens in every layer, or with prompts, or neither."""
        x_BND = self._embed(image_BCHW)
        size_BN1: Tensor | None = None
        for layer, block in enumerate(self.vit.blocks):
            if prompts_BLGD is not None:
                x_BND = _place_prompts(x_BND, prompts_BLGD[:, layer], replace=layer > 0)
            x_BND, size_BN1 = _run_block(block, x_BND, size_BN1, merged)
        feature_BD: Tensor = self.vit.norm(x_BND)[:, 0]
        return feature_BD

    def _embed(self, image_BCHW: Tensor) -> Tensor:
        vit = self.vit
        x_BND: Tensor = vit.norm_pre(vit.patch_drop(vit._pos_embed(vit.patch_embed(image_BCHW))))
        return x_BND


def _place_prompts(x_BND: Tensor, prompts_BGD: Tensor, replace: bool) -> Tensor:
    """[class, prompts, patches]; the prompts of the layer before are dropped (VPT-deep)."""
    patches_from = 1 + prompts_BGD.shape[1] if replace else 1
    return torch.cat([x_BND[:, :1], prompts_BGD, x_BND[:, patches_from:]], dim=1)


def _run_block(block: Any, x_BND: Tensor, size_BN1: Tensor | None, merged: int) -> tuple[Tensor, Tensor | None]:
    attended_BND, key_BHNE = _attend(block.attn, block.norm1(x_BND), size_BN1)
    x_BND = x_BND + block.ls1(attended_BND)
    count = merged_count(x_BND.shape[1], merged)
    if count:
        if size_BN1 is None:
            size_BN1 = torch.ones_like(x_BND[..., :1])
        x_BND, size_BN1 = merge(x_BND, size_BN1, match(key_BHNE.mean(1), count))
    return x_BND + block.ls2(block.mlp(block.norm2(x_BND))), size_BN1


def _attend(attn: Any, x_BND: Tensor, size_BN1: Tensor | None) -> tuple[Tensor, Tensor]:
    """Attention output and its keys. A merged token counts as often as the tokens it stands for (ToMe, Eq. 1)."""
    batch, tokens, width = x_BND.shape
    qkv = attn.qkv(x_BND).view(batch, tokens, 3, attn.num_heads, width // attn.num_heads).permute(2, 0, 3, 1, 4)
    query, key, value = qkv.unbind(0)
    query, key = attn.q_norm(query), attn.k_norm(key)
    mask = None if size_BN1 is None else size_BN1.log().transpose(1, 2)[:, None]
    out = scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=attn.scale)
    projected: Tensor = attn.proj(out.transpose(1, 2).reshape(batch, tokens, width))
    return projected, key
