"""The attention that every token receives (the importance of Tabi, section 4.2), summed over heads and layers.

Plain scaled-dot-product attention does not return its weights, and transformers' `output_attentions=True` keeps the
whole matrix of every head of every layer. Here a model's attention is replaced by a function that computes texts, heads
and queries in blocks of bounded size and takes both the output and the column sums from each block. It does so only
where importance is asked for; elsewhere plain attention runs. Works for every model that uses transformers' attention
interface.

Shape suffixes: B batch, H heads, N queries, M keys, D width of a head, G the attention matrices of a block (texts x
heads).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

_NAME = "pliant"
_ON_CPU = 2**18
"""Attention weights in one block: 1 MiB, which stays in the processor's cache (12 heads of up to 147 tokens)."""
_ON_GPU = 2**24
"""The same on a GPU, where launches cost more than memory: 64 MiB."""


class Received:
    """The attention that every token of one batch has received so far: `total_BM`, float32, 0 for padding.

    `valid_BN` is True at tokens and False at padding, whose attention does not count; None: nothing is padded. `limit`:
    the most weights in a block. Each run of a model needs one of its own, passed as `model(..., received=...)`.
    """

    def __init__(self, valid_BN: Tensor | None = None, limit: int | None = None) -> None:
        self.total_BM: Tensor | None = None  # None: no layer has run yet
        self.valid_BN, self.limit = valid_BN, limit

    def add(self, sums_BM: Tensor) -> None:
        """Add a layer's column sums."""
        self.total_BM = sums_BM if self.total_BM is None else self.total_BM.add_(sums_BM)


def watch(model: nn.Module) -> None:
    """Let the model's attention run `attend`, so that it takes `received=`. Without that argument nothing changes."""
    AttentionInterface.register(_NAME, attend)
    AttentionMaskInterface.register(_NAME, sdpa_mask)
    model.set_attn_implementation(_NAME)  # type: ignore[operator]


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    received: Received | None = None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attend under transformers' interface: inputs [B, H, N or M, D], output [B, N, H, D]. Adds to `received`."""
    if received is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **options)
    groups = getattr(module, "num_key_value_groups", 1)
    key, value = repeat_kv(key, groups), repeat_kv(value, groups)
    causal = options.get("is_causal")
    if attention_mask is None and (getattr(module, "is_causal", True) if causal is None else causal):
        size = query.shape[2], key.shape[2]
        attention_mask = torch.ones(1, 1, *size, dtype=torch.bool, device=query.device).tril()
    if scaling is None:
        scaling = query.shape[-1] ** -0.5
    biases = tuple(bias for bias in (attention_mask, options.get("position_bias")) if bias is not None)
    return _in_blocks(query * scaling, key, value, biases, received), None


def _in_blocks(query: Tensor, key: Tensor, value: Tensor, biases: tuple[Tensor, ...], received: Received) -> Tensor:
    """Attend block by block: inputs [B, H, N or M, D], output [B, N, H, D]."""
    batch, heads, queries, _ = query.shape
    limit, keys = received.limit or (_ON_GPU if query.is_cuda else _ON_CPU), key.shape[2]
    if batch * heads * queries * keys <= limit:
        out_BHND, sums_BM = _block(query, key, value, biases, received.valid_BN)
        received.add(sums_BM)
        return out_BHND.transpose(1, 2).contiguous()
    out_BNHD = query.new_empty((batch, queries, heads, value.shape[-1]))
    total_BM = torch.zeros(batch, keys, device=query.device)
    for block in blocks(batch, heads, queries, keys, limit):
        text_slice, head_slice, query_slice = block
        block_biases, valid_BN = tuple(_part(bias, block) for bias in biases), received.valid_BN
        valid = None if valid_BN is None else valid_BN[text_slice, query_slice]
        out_BHND, sums_BM = _block(
            query[block], key[text_slice, head_slice], value[text_slice, head_slice], block_biases, valid
        )
        out_BNHD[text_slice, query_slice, head_slice] = out_BHND.transpose(1, 2)
        total_BM[text_slice] += sums_BM
    received.add(total_BM)
    return out_BNHD


def blocks(batch: int, heads: int, queries: int, keys: int, limit: int) -> Iterator[tuple[slice, slice, slice]]:
    """Yield blocks of texts, heads and queries that cover every weight once: at most `limit` weights, or one query."""
    rows = min(queries, max(1, limit // keys))
    heads_together = min(heads, max(1, limit // (rows * keys)))
    texts = min(batch, max(1, limit // (heads_together * rows * keys)))
    for text in range(0, batch, texts):
        for head in range(0, heads, heads_together):
            for row in range(0, queries, rows):
                yield slice(text, text + texts), slice(head, head + heads_together), slice(row, row + rows)


def _block(
    query: Tensor, key: Tensor, value: Tensor, biases: Sequence[Tensor], valid_BN: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the output [B, H, N, D] and the column sums [B, M] of one block, whose queries are scaled."""
    score_BHNM = torch.matmul(query, key.transpose(2, 3))
    for bias in biases:
        if bias.dtype is torch.bool:  # added, as filling takes four times as long; not -inf, or an empty row is NaN
            bias = torch.where(bias, 0.0, torch.finfo(score_BHNM.dtype).min)
        score_BHNM.add_(bias)
    if score_BHNM.dtype is torch.float32 and not score_BHNM.is_cuda:
        weight_BHNM = torch.softmax(score_BHNM, -1, out=score_BHNM)
    else:
        weight_BHNM = torch.softmax(score_BHNM, -1, dtype=torch.float32)
    out_BHND = torch.matmul(weight_BHNM.to(value.dtype), value)
    if valid_BN is None:
        return out_BHND, weight_BHNM.sum((1, 2))
    return out_BHND, weight_BHNM.sum(1).mul_(valid_BN[:, :, None]).sum(1)


def _part(bias: Tensor, block: tuple[slice, slice, slice]) -> Tensor:
    """Return a block of a bias [B or 1, H or 1, N or 1, M], which is True where attention goes, or a number to add."""
    axes = zip(bias.shape, block, strict=False)
    return bias[tuple(slice(None) if size == 1 else where for size, where in axes)]
