"""One frozen vision transformer at any gamma: prompts added (gamma > 0), tokens merged (gamma < 0), or plain (0).

And at any operating point (see points.py): of any size, ending early, merging in a few blocks.

It runs timm's blocks, whose modules stay unchanged. Prompts follow VPT-deep (Jia et al. 2022, Eq. 5): each layer
replaces the prompts of the layer before, so every layer sees n + gamma tokens. Merging follows ToMe (Bolya et al.
2023, section 3 and appendix D): bipartite soft matching between attention and MLP, by the keys averaged over heads. A
batch may mix tasks: prompts and heads are gathered per sample.

Shape suffixes: B batch, C colour, N tokens, D width, H heads, E head width, L layers, G prompts, T tasks, K classes; in
merging A tokens of the even half, M tokens of the odd half, R tokens merged away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import isqrt
from typing import Any, NamedTuple

import timm
import torch
from timm.layers import PatchEmbed, resample_abs_pos_embed
from timm.layers.attention import Attention
from timm.models.vision_transformer import Block
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, scaled_dot_product_attention

from pliant import fallbacks
from pliant.errors import BackboneError, InputError
from pliant.models.execution import PackedLinear, reason_of
from pliant.tokens.points import CLASS, MEAN, Dimensions, Point


def create_vit(architecture: str, options: Mapping[str, Any], pretrained: bool = False) -> Any:
    """Return a timm vision transformer without its classifier.

    `pretrained=True` downloads its weights from the hub (see training/tokens/foundation.py).
    """
    # Any: timm does not declare the attribute types of its modules.
    return timm.create_model(architecture, pretrained=pretrained, num_classes=0, **options)


class AdaptiveViT(nn.Module):
    """The class token's features of a timm ViT, at any gamma.

    Raises `BackboneError` for a net without exactly one class token in front and pooling by it: its features would be
    wrong without any error.
    """

    def __init__(self, vit: Any) -> None:
        super().__init__()
        prefix, pool = getattr(vit, "num_prefix_tokens", 0), getattr(vit, "global_pool", "")
        if (prefix, pool) != (1, "token") or not hasattr(vit, "blocks"):
            raise BackboneError(
                f"{type(vit).__name__} has {prefix} tokens in front of the patches and pools by {pool or 'nothing'!r}, "
                "but must be a vision transformer with a class token alone, pooled by 'token'"
            )
        for block in vit.blocks:
            _check_block(block)
        self.vit = vit
        weights = [weight.numel() for weight in vit.blocks[0].mlp.parameters() if weight.ndim == 2]  # gone when packed
        self._hidden = sum(weights) // (2 * self.width)
        self._positions: dict[tuple[int, torch.device, torch.dtype], tuple[Tensor, Tensor]] = {}

    @property
    def depth(self) -> int:
        """Number of layers."""
        return len(self.vit.blocks)

    @property
    def width(self) -> int:
        """Width of a token, and of the features."""
        return int(self.vit.embed_dim)

    @property
    def dimensions(self) -> Dimensions:
        """What points of this net are made from.

        Raises `BackboneError` for a net that takes no other size than its own: patches that are embedded by more than a
        projection, are not square, or have no positions to resample.
        """
        patches, positions = self.vit.patch_embed, self.vit.pos_embed
        rows = patches.num_patches + (not self.vit.no_embed_class)
        if type(patches) is not PatchEmbed or positions is None or positions.shape[1] != rows:
            raise BackboneError(
                f"{type(self.vit).__name__} embeds patches by {type(patches).__name__} and has position embeddings of shape "
                f"{None if positions is None else tuple(positions.shape)}, but to run at other sizes it must project "
                f"{patches.num_patches} patches and have a position embedding for each"
            )
        (height, width), (patch, across) = patches.img_size, patches.patch_size
        if height != width or patch != across:
            raise BackboneError(
                f"{type(self.vit).__name__} takes pictures of {height} x {width} pixels in patches of {patch} x {across}, "
                "but to run at other sizes both must be square"
            )
        return Dimensions(height, patch, self.width, self._hidden, self.depth)

    def forward(
        self, image_BCHW: Tensor, merged: int = 0, prompts_BLGD: Tensor | None = None, proportional: bool = True
    ) -> Tensor:
        """Return the features [B, D] of normalised images.

        Every layer merges `merged` tokens away, or sees the prompts of its layer in `prompts_BLGD`, or neither. Prompts of
        one layer alone stay as tokens (VPT-shallow). Rows of 4 D in their place are LoRA's (Hu et al. 2022, section 4.1):
        what the layer's tokens are multiplied by, and in what proportion it is added to queries, keys and values. With
        `proportional=False` a merged token counts once in attention, however many it stands for (ToMe has both).
        """
        vit = self.vit
        x_BND: Tensor = vit.norm_pre(vit.patch_drop(vit._pos_embed(vit.patch_embed(image_BCHW))))
        sizes: Sizes | None = None
        for layer, block in enumerate(vit.blocks):
            low_BRE: Tensor | None = None
            if prompts_BLGD is not None and prompts_BLGD.shape[-1] > self.width:
                low_BRE = prompts_BLGD[:, layer]
            elif prompts_BLGD is not None and layer < prompts_BLGD.shape[1]:
                x_BND = _place_prompts(x_BND, prompts_BLGD[:, layer], replace=layer > 0)
            count = merged_count(x_BND.shape[1], merged)
            x_BND, sizes = _run_block(block, x_BND, sizes, count, proportional, low_BRE=low_BRE)
        return _read(vit.norm, x_BND, sizes, CLASS)

    def at(self, point: Point, image_BCHW: Tensor) -> Tensor:
        """Return what a head reads of normalised images of the point's size: [B, D], or [B, 2 D] where it reads both.

        Positions are kept for each size, so the net's must not change. Raises `InputError` for a point that the net cannot
        run or images of another size, and `BackboneError` for a net that takes no other size than its own.
        """
        return self.at_ends(point, image_BCHW, (point.blocks,))[0]

    def at_ends(self, point: Point, image_BCHW: Tensor, ends: Sequence[int]) -> list[Tensor]:
        """Return what a head reads after each of these numbers of blocks, of which the last is the point's.

        Raises as `at`.
        """
        point.check(self.dimensions)
        if image_BCHW.shape[-2:] != (point.size, point.size):
            raise InputError("image", tuple(image_BCHW.shape), f"of {point.size} x {point.size} pixels")
        x_BND: Tensor = self._embed(image_BCHW)
        sizes: Sizes | None = None
        if point.pooled:
            x_BND, sizes = _pool(x_BND)
        merges, last, read = dict(point.merges), point.blocks - 1, list[Tensor]()
        for layer, block in zip(range(point.blocks), self.vit.blocks, strict=False):
            queries = 1 if layer == last and point.reads == CLASS else None
            x_BND, sizes = _run_block(block, x_BND, sizes, merges.get(layer, 0), queries=queries)
            if layer + 1 in ends:
                read.append(_read(self.vit.norm, x_BND, sizes, point.reads))
        return read

    def _embed(self, image_BCHW: Tensor) -> Tensor:
        """Return the tokens before the first block, of images of any size."""
        vit = self.vit
        patch_BND = vit.patch_embed.norm(vit.patch_embed.proj(image_BCHW).flatten(2).transpose(1, 2))
        class_11D, position_1ND = self._positions_at(image_BCHW.shape[-1], patch_BND)
        tokens = torch.cat([class_11D.expand(len(patch_BND), -1, -1), patch_BND + position_1ND], dim=1)
        x_BND: Tensor = vit.norm_pre(tokens)
        return x_BND

    def _positions_at(self, size: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return the class token at its position and the positions of the patches, resampled once a size."""
        key = size, like.device, like.dtype
        if key not in self._positions:
            vit, front = self.vit, int(not self.vit.no_embed_class)
            side = size // vit.patch_embed.patch_size[0]
            # An ordinary tensor, wherever the first call of a size comes from.
            with torch.inference_mode(False), torch.no_grad():
                position_1ND = resample_abs_pos_embed(
                    vit.pos_embed, [side, side], list(vit.patch_embed.grid_size), num_prefix_tokens=front
                ).to(like.dtype)
                class_11D = vit.cls_token + position_1ND[:, :front].sum(1, keepdim=True)
                self._positions[key] = class_11D, position_1ND[:, front:].contiguous()
        return self._positions[key]


class Sizes(NamedTuple):
    """How many tokens each token stands for, and what attention adds to its scores for that (ToMe, Eq. 1)."""

    size_BN1: Tensor  # float32
    mask_B11N: Tensor | None  # logarithms of the sizes in the tokens' type; None where each token counts once


def _pool(x_BND: Tensor) -> tuple[Tensor, Sizes]:
    """Average each square of four patches; the class token stays."""
    side = isqrt(x_BND.shape[1] - 1)
    grid_BDHW = x_BND[:, 1:].transpose(1, 2).unflatten(2, (side, side))
    x_BND = torch.cat([x_BND[:, :1], avg_pool2d(grid_BDHW, 2).flatten(2).transpose(1, 2)], dim=1)
    size_BN1 = torch.full_like(x_BND[..., :1], 4, dtype=torch.float32)
    size_BN1[:, 0].fill_(1)
    return x_BND, Sizes(size_BN1, size_BN1.log().transpose(1, 2)[:, None].to(x_BND.dtype))


def _check_block(block: Any) -> None:
    """Raise `BackboneError` unless `_run_block` computes all that this block does.

    Relative positions, gates and parallel branches would be left out silently.
    """
    attn: Any = getattr(block, "attn", None)
    gated = getattr(attn, "gate", None) is not None  # timm up to 1.0.24 has no such attribute
    plain = type(block) is Block and type(attn) is Attention and isinstance(attn.norm, nn.Identity)
    if gated or not plain:
        raise BackboneError(
            f"blocks of type {type(block).__name__} with {type(attn).__name__}, but must be timm's plain transformer blocks"
        )


def _place_prompts(x_BND: Tensor, prompts_BGD: Tensor, replace: bool) -> Tensor:
    """Return [class, prompts, patches]; with `replace` the prompts take the place of the former layer's (VPT-deep)."""
    if not replace:
        return torch.cat([x_BND[:, :1], prompts_BGD, x_BND[:, 1:]], dim=1)
    # In place: between two layers nothing else holds these tokens, and the patches need not be copied.
    x_BND[:, 1 : 1 + prompts_BGD.shape[1]] = prompts_BGD
    return x_BND


def _run_block(
    block: Any,
    x_BND: Tensor,
    sizes: Sizes | None,
    merged: int,
    proportional: bool = True,
    queries: int | None = None,
    low_BRE: Tensor | None = None,
) -> tuple[Tensor, Sizes | None]:
    """Return the tokens after one block, the first `queries` of them, and their sizes: None as long as none merged."""
    mask_B11N = None if sizes is None else sizes.mask_B11N
    attended_BND, key_BHNE = _attend(block.attn, block.norm1(x_BND), mask_B11N, queries, low_BRE)
    attended_BND = block.ls1(attended_BND)
    if merged:
        size_BN1 = None if sizes is None else sizes.size_BN1
        x_BND, size_BN1, log_BN1 = _merging(x_BND, key_BHNE)(x_BND, attended_BND, size_BN1, key_BHNE, merged)
        sizes = Sizes(size_BN1, log_BN1.transpose(1, 2)[:, None] if proportional else None)
    else:
        x_BND = x_BND[:, :queries] + attended_BND
    return x_BND + block.ls2(block.mlp(block.norm2(x_BND))), sizes


def _merge_in_torch(
    x_BND: Tensor, attended_BND: Tensor, size_BN1: Tensor | None, key_BHNE: Tensor, merged: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Add what was attended to and merge `merged` tokens away, by their keys; `size_BN1` None: each is a token alone.

    Returns the tokens, their sizes (float32) and the logarithms of these in the tokens' type.
    """
    x_BND = x_BND + attended_BND
    if size_BN1 is None:
        size_BN1 = torch.ones_like(x_BND[..., :1], dtype=torch.float32)
    x_BND, size_BN1 = merge(x_BND, size_BN1, match(_over_heads(key_BHNE), merged))
    return x_BND, size_BN1, size_BN1.log().to(x_BND.dtype)


Merging = Callable[[Tensor, Tensor, Tensor | None, Tensor, int], tuple[Tensor, Tensor, Tensor]]


def _merging(x_BND: Tensor, key_BHNE: Tensor) -> Merging:
    """Return what merges these tokens fastest: two launches on a GPU, unless gradients are asked for."""
    if not x_BND.is_cuda or x_BND.requires_grad:
        return _merge_in_torch
    _, heads, tokens, width = key_BHNE.shape
    return _compared(x_BND.device, x_BND.dtype, heads, 1 << (tokens - 1).bit_length(), width)


@cache
def _triton() -> Merging | None:
    try:
        from pliant.tokens.triton_merge import merge_in_two_launches
    except ImportError as error:
        fallbacks.note("package", f"tokens are merged by torch's operators, which takes longer on a GPU: {error}")
        return None
    return merge_in_two_launches


@cache
def _compared(device: torch.device, dtype: torch.dtype, heads: int, tokens: int, width: int) -> Merging:
    """Return Triton's kernels for this shape where they compile and agree with torch, which is noted once if not."""
    if (fused := _triton()) is None:
        return _merge_in_torch
    random = torch.Generator().manual_seed(0)
    x_BND, attended_BND = (torch.randn(2, tokens, heads * width, generator=random).to(dtype) for _ in range(2))
    key_BHNE = torch.randn(2, heads, tokens, width, generator=random).to(dtype)
    expected = _merge_in_torch(x_BND, attended_BND, None, key_BHNE, tokens // 4)
    try:
        results = fused(x_BND.to(device), attended_BND.to(device), None, key_BHNE.to(device), tokens // 4)
        torch.testing.assert_close(tuple(result.cpu() for result in results), expected, atol=0.05, rtol=0.02)
    except Exception as error:  # whatever a compiler raises, or two results that differ
        fallbacks.note(
            "package",
            f"up to {tokens} tokens of an image are merged by torch's operators, since the kernels fail: {reason_of(error)}",
        )
        return _merge_in_torch
    return fused


def _read(norm: nn.Module, x_BND: Tensor, sizes: Sizes | None, reads: str) -> Tensor:
    """Return the class token [B, D], the mean of the patches that the other tokens stand for, or both [B, 2 D]."""
    if reads == CLASS:
        class_BD: Tensor = norm(x_BND[:, 0])
        return class_BD
    x_BND = norm(x_BND)
    if sizes is None:
        mean_BD = x_BND[:, 1:].mean(1)
    else:  # of patches: no token merges into the class token
        size_B1N = sizes.size_BN1[:, 1:].transpose(1, 2)
        mean_BD = ((size_B1N / size_B1N.sum(-1, keepdim=True)) @ x_BND[:, 1:].float())[:, 0].to(x_BND.dtype)
    return mean_BD if reads == MEAN else torch.cat([x_BND[:, 0], mean_BD], dim=-1)


def _over_heads(key_BHNE: Tensor) -> Tensor:
    """Return the keys summed over heads, in float32; their direction is that of the mean.

    Adding the heads one by one is up to five times faster on a CPU than one sum.
    """
    if key_BHNE.device.type != "cpu":
        return key_BHNE.sum(1, dtype=torch.float32)
    first, *rest = key_BHNE.unbind(1)
    return sum(rest, start=first.float())


def _attend(
    attn: Any, x_BND: Tensor, mask_B11N: Tensor | None, queries: int | None, low_BRE: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the attention output of the first `queries` tokens (of all where None), and the keys of all."""
    batch, tokens, width = x_BND.shape
    qkv_BNE = attn.qkv(x_BND)
    if low_BRE is not None:
        qkv_BNE = qkv_BNE + (x_BND @ low_BRE[..., :width].transpose(1, 2)) @ low_BRE[..., width:]
    qkv = qkv_BNE.view(batch, tokens, 3, attn.num_heads, width // attn.num_heads).permute(2, 0, 3, 1, 4)
    query, key, value = qkv.unbind(0)
    query, key = attn.q_norm(query[:, :, :queries]), attn.k_norm(key)
    fast = (
        _attend_in_half
        if query.dtype == torch.bfloat16 and query.device.type == "cpu"
        else scaled_dot_product_attention
    )
    out = fast(query, key, value, attn_mask=mask_B11N, scale=attn.scale)
    projected: Tensor = attn.proj(out.transpose(1, 2).reshape(batch, -1, width))
    return projected, key


def _attend_in_half(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, scale: float) -> Tensor:
    """Attention in bfloat16 on a CPU, written out: torch's fused attention takes more than twice the time there."""
    score = (query * scale) @ key.transpose(-2, -1)
    return (score if attn_mask is None else score + attn_mask).softmax(-1) @ value


def pack(model: AdaptiveViT) -> None:
    """Replace the linear layers of every block by packed ones, in place; an MLP's exact GELU is computed by its first."""
    for block in model.vit.blocks:
        block.attn.qkv, block.attn.proj = PackedLinear(block.attn.qkv), PackedLinear(block.attn.proj)
        mlp = block.mlp
        fused = type(mlp.act) is nn.GELU and mlp.act.approximate == "none"
        mlp.fc1, mlp.fc2 = PackedLinear(mlp.fc1, "gelu" if fused else "none"), PackedLinear(mlp.fc2)
        if fused:
            mlp.act = nn.Identity()


def merged_count(tokens: int, wanted: int, protected: int = 1) -> int:
    """Return how many tokens one layer merges: `wanted`, but at most half of the unprotected ones (ToMe, section 3).

    A 12-layer ViT of 197 tokens therefore ends at 137, 77, 17 and 4 tokens when 5, 10, 15 and 20 are wanted.
    """
    return max(0, min(wanted, (tokens - protected) // 2))


@dataclass(frozen=True, slots=True)
class Matching:
    """Which even tokens are merged away (`source_BR`), into which odd ones (`target_BR`), and which stay (`kept_BK`)."""

    source_BR: Tensor
    target_BR: Tensor
    kept_BK: Tensor


def match(metric_BNE: Tensor, merged: int) -> Matching:
    """Pair each even token with its most similar odd token, and take the `merged` most similar pairs.

    `metric_BNE` holds the attention keys averaged over heads, at any scale: only directions count. Token 0 (the class
    token) is never merged away. There is no full sort: one top-k chooses the pairs, a second one lists the tokens that
    stay, in their order (as fast as `nonzero`, which would have to wait for the device).
    """
    metric_BNE = metric_BNE / metric_BNE.norm(dim=-1, keepdim=True).clamp_min(1e-6)
    score_BAM = metric_BNE[:, ::2] @ metric_BNE[:, 1::2].transpose(1, 2)
    best_BA, target_BA = score_BAM.max(dim=-1)
    best_BA[:, 0].fill_(-torch.inf)
    source_BR = best_BA.topk(merged, dim=-1, sorted=False).indices
    even = best_BA.shape[1]
    earliness_BA = torch.arange(even, 0, -1, device=best_BA.device).expand_as(best_BA).scatter(1, source_BR, 0)
    return Matching(source_BR, target_BA.gather(1, source_BR), earliness_BA.topk(even - merged, dim=-1).indices)


def merge(x_BND: Tensor, size_BN1: Tensor, matching: Matching) -> tuple[Tensor, Tensor]:
    """Average the matched tokens, weighted by how many tokens each stands for.

    Returns tokens and sizes: the even tokens that stay first (the class token at index 0), odd tokens behind. Sums are
    computed in the type of `size_BN1` where it is the wider one. Tokens that stay are copied unchanged.
    """
    stay = matching.kept_BK.shape[1]
    batch, tokens, width = x_BND.shape
    even_BA = torch.cat([matching.kept_BK, matching.source_BR], dim=1)  # those that stay first
    # Positions among all rows of the batch: selecting whole rows is twice as fast as `gather`, which indexes every value.
    start_B = torch.arange(0, batch * tokens, tokens, device=x_BND.device)
    rows = torch.add(start_B[:, None], even_BA, alpha=2).flatten()
    even_BAD = x_BND.reshape(batch * tokens, width).index_select(0, rows).view(batch, -1, width)
    even_size_BA1 = size_BN1.reshape(batch * tokens, 1).index_select(0, rows).view(batch, -1, 1)
    gone_BRD, gone_size_BR1 = even_BAD[:, stay:], even_size_BA1[:, stay:]
    odd_size_BM1 = size_BN1[:, 1::2]
    target_BR1 = matching.target_BR[..., None]
    sum_BMD = x_BND[:, 1::2] * odd_size_BM1
    sum_BMD = sum_BMD.scatter_add_(1, target_BR1.expand(-1, -1, sum_BMD.shape[-1]), gone_BRD * gone_size_BR1)
    new_size_BM1 = odd_size_BM1.scatter_add(1, target_BR1, gone_size_BR1)
    mean_BMD = (sum_BMD / new_size_BM1).to(x_BND.dtype)
    return torch.cat([even_BAD[:, :stay], mean_BMD], dim=1), torch.cat([even_size_BA1[:, :stay], new_size_BM1], dim=1)
