"""The attention that every token receives (the importance of Tabi, section 4.2), summed over heads and layers.

Plain scaled-dot-product attention never shows its weights, and asking transformers for them (`output_attentions=True`)
makes and keeps the whole matrix of every head of every layer. Here a model's attention is replaced by a function that, where
it is asked for importance, goes through texts, heads and queries in blocks of bounded size and takes from each block both
the output and its column sums; where it is not asked, plain attention runs. Works for every model that uses transformers'
attention interface.

Shape suffixes: B batch, H heads, N queries, M keys, D width of a head, G the attention matrices of a block (texts x heads).
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
"""Weights in one block: 1 MiB, which stays in the cache (12 heads up to 147 tokens at once)."""
_ON_GPU = 2**24
"""The same where a launch costs more than memory does: 64 MiB."""


class Received:
    """Attention received so far by every token of one batch: `total_BM`, float32, 0 for padding.

    `valid_BN` is True at tokens and False at padding, which gives no attention; None: nothing is padded. Belongs to one run
    of one model, which is told of it as `model(..., received=...)`. `limit`: of the weights in a block.
    """

    def __init__(self, valid_BN: Tensor | None = None, limit: int | None = None) -> None:
        self.total_BM: Tensor | None = None  # None: no layer has run yet
        self.valid_BN, self.limit = valid_BN, limit

    def add(self, sums_BM: Tensor) -> None:
        self.total_BM = sums_BM if self.total_BM is None else self.total_BM.add_(sums_BM)


def watch(model: nn.Module) -> None:
    """Let the model's attention run `attend`, from when on it takes `received=`; without it nothing changes."""
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
    **told: Any,
) -> tuple[Tensor, None]:
    """Attention under transformers' interface: [B, H, N, D] each, the output [B, N, H, D]. Adds to `received`."""
    if received is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **told)
    groups = getattr(module, "num_key_value_groups", 1)
    key, value = repeat_kv(key, groups), repeat_kv(value, groups)
    causal = told.get("is_causal")
    if attention_mask is None and (getattr(module, "is_causal", True) if causal is None else causal):
        attention_mask = _causal(query, key)
    if scaling is None:
        scaling = query.shape[-1] ** -0.5
    biases = tuple(bias for bias in (attention_mask, told.get("position_bias")) if bias is not None)
    return _in_blocks(query * scaling, key, value, biases, received), None


def _in_blocks(query: Tensor, key: Tensor, value: Tensor, biases: tuple[Tensor, ...], received: Received) -> Tensor:
    """The output [B, N, H, D], its inputs [B, H, N or M, D]."""
    batch, heads, queries, _ = query.shape
    limit, keys = received.limit or (_ON_GPU if query.is_cuda else _ON_CPU), key.shape[2]
    if batch * heads * queries * keys <= limit:
        out_BHND, sums_BM = _block(query, key, value, biases, received.valid_BN)
        received.add(sums_BM)
        return out_BHND.transpose(1, 2).contiguous()
    out_BNHD = query.new_empty((batch, queries, heads, value.shape[-1]))
    total_BM = torch.zeros(batch, keys, device=query.device)
    for at in blocks(batch, heads, queries, keys, limit):
        texts, some, rows = at
        parts, valid_BN = tuple(_part(bias, at) for bias in biases), received.valid_BN
        valid = None if valid_BN is None else valid_BN[texts, rows]
        out_BHND, sums_BM = _block(query[at], key[texts, some], value[texts, some], parts, valid)
        out_BNHD[texts, rows, some] = out_BHND.transpose(1, 2)
        total_BM[texts] += sums_BM
    received.add(total_BM)
    return out_BNHD


def blocks(batch: int, heads: int, queries: int, keys: int, limit: int) -> Iterator[tuple[slice, slice, slice]]:
    """Which texts, heads and queries go together: at most `limit` weights, or one query's. Every weight once."""
    rows = min(queries, max(1, limit // keys))
    some = min(heads, max(1, limit // (rows * keys)))
    texts = min(batch, max(1, limit // (some * rows * keys)))
    for text in range(0, batch, texts):
        for head in range(0, heads, some):
            for row in range(0, queries, rows):
                yield slice(text, text + texts), slice(head, head + some), slice(row, row + rows)


def _block(
    query: Tensor, key: Tensor, value: Tensor, biases: Sequence[Tensor], valid_BN: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Output [B, H, N, D] and column sums [B, M] of some texts, heads and (scaled) queries."""
    score_BHNM = torch.matmul(query, key.transpose(2, 3))
    for bias in biases:
        if bias.dtype is torch.bool:  # added, since filling takes four times as long; not -inf: a row of none is no NaN
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
    """Of a bias [B or 1, H or 1, N or 1, M]: True where attention goes, or a number to add."""
    axes = zip(bias.shape, block, strict=False)
    return bias[tuple(slice(None) if size == 1 else where for size, where in axes)]


def _causal(query: Tensor, key: Tensor) -> Tensor:
    return torch.ones(1, 1, query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).tril()
