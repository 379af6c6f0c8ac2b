"""Token merging by bipartite soft matching (ToMe, Bolya et al. 2023, section 3 and appendix D).

Functions of tensors only. Shape suffixes: B batch, N tokens, D width, H heads, E head width, A tokens of the even half,
M tokens of the odd half, R tokens merged away.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


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
    best_BA[:, 0] = -torch.inf
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
    rows = _row_numbers(x_BND, torch.cat([matching.kept_BK, matching.source_BR], dim=1))
    even_BAD, even_size_BA1 = _rows(x_BND, rows), _rows(size_BN1, rows)  # those that stay first
    gone_BRD, gone_size_BR1 = even_BAD[:, stay:], even_size_BA1[:, stay:]
    odd_size_BM1 = size_BN1[:, 1::2]
    target_BR1 = matching.target_BR[..., None]
    sum_BMD = x_BND[:, 1::2] * odd_size_BM1
    sum_BMD = sum_BMD.scatter_add_(1, target_BR1.expand(-1, -1, sum_BMD.shape[-1]), gone_BRD * gone_size_BR1)
    new_size_BM1 = odd_size_BM1.scatter_add(1, target_BR1, gone_size_BR1)
    mean_BMD = (sum_BMD / new_size_BM1).to(x_BND.dtype)
    return torch.cat([even_BAD[:, :stay], mean_BMD], dim=1), torch.cat([even_size_BA1[:, :stay], new_size_BM1], dim=1)


def _row_numbers(x_BND: Tensor, even_BA: Tensor) -> Tensor:
    """Return the positions of these even tokens among all rows of the batch, [B * A]."""
    batch, tokens, _ = x_BND.shape
    return (2 * even_BA + torch.arange(0, batch * tokens, tokens, device=x_BND.device)[:, None]).flatten()


def _rows(x_BND: Tensor, rows: Tensor) -> Tensor:
    """Return these rows as [B, A, D]. Selecting whole rows is twice as fast as `gather`, which indexes every value."""
    batch, tokens, width = x_BND.shape
    return x_BND.reshape(batch * tokens, width).index_select(0, rows).view(batch, -1, width)
