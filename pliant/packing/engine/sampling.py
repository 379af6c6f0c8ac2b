"""How a row of scores becomes a token: scores are changed request by request, Gumbel noise is added, the largest is taken.

The order of changes is vLLM's, so that both engines mean the same: biases and the tokens that must not come yet, then the
penalties for repetition, frequency and presence. Log-probabilities are those of the model itself, before any change.

The argmax of log-probabilities with independent Gumbel noise is a draw from them (Gumbel-max). The noise of a
vocabulary entry is a hash of (seed, position of the new token, entry) without any state, so a draw does not depend on
what else is in the batch, on its order, or on preemptions in between.

Shape suffixes: B requests with a new token (rows of the engine's batch), V vocabulary, N rows of scores whose next token is
known, K likeliest tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from pliant.packing.engine.submission import Sampling, TokenLogprobs

MASK = 0xFFFFFFFF
MASK64 = 0xFFFFFFFFFFFFFFFF
FIRST, SECOND = 0x7FEB352D, 0x846CA68B  # of the 32-bit finaliser "lowbias32" (C. Wellons, 2018)
STRIDE = 0x9E3779B1  # odd, so that entries of the vocabulary have different counters
BITS = 23  # of a uniform number strictly between 0 and 1: as many as float32 can hold


def key(seed: int, position: int) -> int:
    """Return a hash as a signed 32-bit number that is never 0, which stands for no noise."""
    mixed = (seed * 0x9E3779B97F4A7C15 + position * 0xD1B54A32D192ED03 + 1) & MASK64  # then splitmix64's finaliser
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK64
    low = (mixed ^ (mixed >> 31)) & MASK
    return (low or 1) - (1 << 32) * (low > 0x7FFFFFFF)


def gumbel(keys_B: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """[B, V] float32 standard Gumbel noise; integers are 64-bit, of which the low 32 bits count."""
    entries_V = torch.arange(vocabulary, device=keys_B.device, dtype=torch.int64) * STRIDE
    x_BV = ((keys_B.to(torch.int64) & MASK)[:, None] + entries_V) & MASK
    x_BV = ((x_BV ^ (x_BV >> 16)) * FIRST) & MASK
    x_BV = ((x_BV ^ (x_BV >> 15)) * SECOND) & MASK
    x_BV = x_BV ^ (x_BV >> 16)
    uniform_BV = ((x_BV >> (32 - BITS)).to(torch.float32) + 0.5) / (1 << BITS)
    return -torch.log(-torch.log(uniform_BV))


def draw(scores_BV: torch.Tensor, settings: Sequence[tuple[Sampling, int]] = ()) -> list[int]:
    """Return the next token of each row: of the largest score, or drawn where its request has a temperature.

    `settings`: for each row how its request samples, and the position of the new token; none where all rows are
    greedy, which costs one argmax. Sampled rows are changed in the order of transformers' `generate`: temperature,
    top-k, top-p; then noise is added. Between temperature and top-k stands min-p, as in vLLM.
    """
    tokens_B = scores_BV.argmax(-1)
    sampled = [row for row, (sampling, _) in enumerate(settings) if sampling.temperature > 0]
    if not sampled:
        return list(map(int, tokens_B.tolist()))
    rows = torch.tensor(sampled, device=scores_BV.device)
    chosen = [settings[row] for row in sampled]
    warped_BV = _warped(scores_BV[rows].float(), [sampling for sampling, _ in chosen])
    keys_B = torch.tensor([key(sampling.seed, position) for sampling, position in chosen], device=scores_BV.device)
    tokens_B[rows] = (warped_BV + gumbel(keys_B, scores_BV.shape[1])).argmax(-1)
    return list(map(int, tokens_B.tolist()))


def _warped(scores_BV: torch.Tensor, settings: Sequence[Sampling]) -> torch.Tensor:
    """Divide by the temperatures, and exclude what the rows' top-k and top-p exclude."""
    device, vocabulary = scores_BV.device, scores_BV.shape[1]
    values = [[float(each) for each in (s.temperature, s.top_p, s.min_p)] for s in settings]
    temperature_B, top_p_B, min_p_B = torch.tensor(values, device=device).unbind(1)
    top_k = [min(sampling.top_k or vocabulary, vocabulary) for sampling in settings]
    scores_BV = scores_BV / temperature_B[:, None]
    if any(sampling.min_p for sampling in settings):
        logs_BV = scores_BV - scores_BV.amax(-1, keepdim=True)
        scores_BV = scores_BV.masked_fill(logs_BV < min_p_B.log()[:, None], -torch.inf)
    if min(top_k) < vocabulary:
        best_BK = scores_BV.topk(max(k for k in top_k if k < vocabulary)).values
        least_B = best_BK.gather(1, (torch.tensor(top_k, device=device).clamp(max=best_BK.shape[1]) - 1)[:, None])
        limited_B = torch.tensor([k < vocabulary for k in top_k], device=device)
        scores_BV = scores_BV.masked_fill(limited_B[:, None] & (scores_BV < least_B), -torch.inf)
    if any(sampling.top_p < 1 for sampling in settings):
        ascending_BV, order_BV = scores_BV.sort(dim=-1)
        out_BV = ascending_BV.softmax(-1).cumsum(-1) <= (1 - top_p_B)[:, None]
        out_BV &= (top_p_B < 1)[:, None]
        out_BV[:, -1] = False  # the likeliest stays
        scores_BV = scores_BV.masked_fill(out_BV.scatter(1, order_BV, out_BV), -torch.inf)
    return scores_BV


def logprobs_of(scores_NV: Tensor, tokens: Sequence[int], top: Sequence[int]) -> list[TokenLogprobs]:
    """Return each row's log-probability of its token; `top`: how many of the likeliest tokens come with each."""
    logs_NV = scores_NV.to(torch.float32).log_softmax(-1)
    chosen = torch.tensor(tokens, device=logs_NV.device)[:, None]
    own = logs_NV.gather(1, chosen)[:, 0].tolist()
    best_NK = logs_NV.topk(min(max(top, default=0), logs_NV.shape[1]))
    likeliest = zip(best_NK.indices.tolist(), best_NK.values.tolist(), strict=True)
    pairs = [tuple(zip(ids[:k], logs[:k], strict=True)) for (ids, logs), k in zip(likeliest, top, strict=True)]
    return [TokenLogprobs(*each) for each in zip(own, pairs, strict=True)]


def change_logits(
    scores_V: Tensor, sampling: Sampling, tokens: Sequence[int], prompt: int, ends: Collection[int]
) -> None:
    """Change one text's float32 scores [V] in place, as its request says.

    `tokens`: those so far, of which the first `prompt` are the prompt's; `ends`: those that end an output.
    """
    device, output, repetition = scores_V.device, list(tokens[prompt:]), sampling.repetition_penalty
    if sampling.logit_bias:
        ids, biases = zip(*sampling.logit_bias, strict=True)
        scores_V[list(ids)] += torch.tensor(biases, device=device)
    if len(output) < sampling.min_tokens:
        scores_V[list(ends)] = -torch.inf
    if repetition != 1:  # as in CTRL (Keskar et al., 2019, section 4.1)
        seen = torch.tensor(sorted(set(tokens)), device=device)
        old = scores_V[seen]
        scores_V[seen] = torch.where(old > 0, old / repetition, old * repetition)
    if output and (sampling.frequency_penalty or sampling.presence_penalty):
        seen, counts = torch.tensor(output, device=device).unique(return_counts=True)
        scores_V[seen] -= sampling.frequency_penalty * counts + sampling.presence_penalty
