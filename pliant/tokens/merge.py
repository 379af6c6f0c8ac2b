"""Token merging by bipartite soft matching (ToMe, Bolya et al. 2023, section 3 and appendix D).

Knows tensors only: no model, no task, no schedule. Shape suffixes: B batch, N tokens, D width, H heads, E head width,
A tokens of the even half, M tokens of the odd half, R tokens merged away.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


def merged_count(tokens: int, wanted: int, protected: int = 1) -> int:
    """How many tokens one layer really merges: at most half of those that are not protected (ToMe, section 3).

    A 12-layer ViT of 197 tokens therefore ends at 137, 77, 17 and 4 tokens when 5, 10, 15 and 20 are wanted.
    """
    return max(0, min(wanted, (tokens - protected) // 2))


def tokens_per_layer(tokens: int, gamma: int, depth: int) -> tuple[int, ...]:
    """Token count inside the MLP of every layer for one gamma: merged away if negative, prompts added if positive."""
    counts = []
    for _ in range(depth):
        if gamma < 0:
            tokens -= merged_count(tokens, -gamma)
        counts.append(tokens + max(gamma, 0))
    return tuple(counts)


@dataclass(frozen=True, slots=True)
class Matching:
    """Which even tokens go (`source_BR`), into which odd tokens (`target_BR`), and which even tokens stay (`kept_BK`)."""

    source_BR: Tensor
    target_BR: Tensor
    kept_BK: Tensor


def match(metric_BNE: Tensor, merged: int) -> Matching:
    """Pair each even token with its most similar odd token and take the `merged` most similar pairs.

    `metric_BNE` is the attention keys averaged over heads. Token 0 (the class token) never goes. No full sort:
    a top-k chooses the pairs; kept tokens stay in their order.
    """
    metric_BNE = metric_BNE / metric_BNE.norm(dim=-1, keepdim=True).clamp_min(1e-6)
    score_BAM = metric_BNE[:, ::2] @ metric_BNE[:, 1::2].transpose(1, 2)
    best_BA, target_BA = score_BAM.max(dim=-1)
    best_BA[:, 0] = -torch.inf
    source_BR = best_BA.topk(merged, dim=-1, sorted=False).indices
    kept_BA = torch.ones_like(best_BA, dtype=torch.bool).scatter_(1, source_BR, False)
    kept_BK = kept_BA.nonzero()[:, 1].view(best_BA.shape[0], -1)
    return Matching(source_BR, target_BA.gather(1, source_BR), kept_BK)


def merge(x_BND: Tensor, size_BN1: Tensor, matching: Matching) -> tuple[Tensor, Tensor]:
    """Average the matched tokens, weighted by how many tokens each already stands for.

    Returns tokens and sizes after merging, kept even tokens first (the class token at index 0), odd tokens behind.
    """
    weighted_BND = x_BND * size_BN1
    merged_BND = _reduce(weighted_BND, matching)
    merged_size_BN1 = _reduce(size_BN1, matching)
    return merged_BND / merged_size_BN1, merged_size_BN1


def _reduce(x_BND: Tensor, matching: Matching) -> Tensor:
    even_BAD, odd_BMD = x_BND[:, ::2], x_BND[:, 1::2]
    width = x_BND.shape[-1]
    kept = even_BAD.gather(1, matching.kept_BK[..., None].expand(-1, -1, width))
    gone = even_BAD.gather(1, matching.source_BR[..., None].expand(-1, -1, width))
    target = matching.target_BR[..., None].expand(-1, -1, width)
    return torch.cat([kept, odd_BMD.scatter_add(1, target, gone)], dim=1)
