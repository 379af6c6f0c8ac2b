"""What a request changes of the model's scores before a token is chosen, and the log-probabilities that it gets.

The order is vLLM's, so that both engines mean the same: biases and the tokens that must not come yet, then the penalties
for repetition, frequency and presence. Log-probabilities are those of the model itself, before any change.

Shape suffixes: N rows of scores whose next token is known, V vocabulary, K likeliest tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pliant.packing.engine.logprobs import TokenLogprobs


@dataclass(frozen=True, slots=True)
class LogitChanges:
    """Changes of one request's scores. The defaults change nothing."""

    repetition_penalty: float = 1.0
    """Positive scores of tokens in the prompt or the output are divided by it, negative ones multiplied (Keskar et al.,
    CTRL, 2019, section 4.1).
    """
    frequency_penalty: float = 0.0  # taken off a token's score for each time that the output has it
    presence_penalty: float = 0.0  # taken off once for a token that the output has
    logit_bias: tuple[tuple[int, float], ...] = ()  # token, and what is added to its score
    min_tokens: int = 0  # of the output, before which none of `ends` may come
    ends: tuple[int, ...] = ()
    prompt_tokens: int = 0


def logprobs_of(scores_NV: Tensor, tokens: Sequence[int], top: Sequence[int]) -> list[TokenLogprobs]:
    """Return each row's log-probability of its token; `top`: how many of the likeliest tokens come with each."""
    logs_NV = scores_NV.to(torch.float32).log_softmax(-1)
    chosen = torch.tensor(tokens, device=logs_NV.device)[:, None]
    own = logs_NV.gather(1, chosen)[:, 0].tolist()
    best_NK = logs_NV.topk(min(max(top, default=0), logs_NV.shape[1]))
    likeliest = zip(best_NK.indices.tolist(), best_NK.values.tolist(), strict=True)
    pairs = [tuple(zip(ids[:k], logs[:k], strict=True)) for (ids, logs), k in zip(likeliest, top, strict=True)]
    return [TokenLogprobs(*each) for each in zip(own, pairs, strict=True)]


def change_logits(scores_V: Tensor, changes: LogitChanges, tokens: Sequence[int]) -> None:
    """Change one text's float32 scores [V] in place. `tokens`: those so far, the prompt's first."""
    device, output = scores_V.device, list(tokens[changes.prompt_tokens :])
    if changes.logit_bias:
        ids, biases = zip(*changes.logit_bias, strict=True)
        scores_V[list(ids)] += torch.tensor(biases, device=device)
    if len(output) < changes.min_tokens:
        scores_V[list(changes.ends)] = -torch.inf
    if changes.repetition_penalty != 1:
        seen = torch.tensor(sorted(set(tokens)), device=device)
        old = scores_V[seen]
        scores_V[seen] = torch.where(old > 0, old / changes.repetition_penalty, old * changes.repetition_penalty)
    if output and (changes.frequency_penalty or changes.presence_penalty):
        seen, counts = torch.tensor(output, device=device).unique(return_counts=True)
        scores_V[seen] -= changes.frequency_penalty * counts + changes.presence_penalty
