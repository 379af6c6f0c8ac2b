"""Parameters of a policy that follow from a profile, the largest batch above all.

More sequences share an iteration's fixed cost, but the tokens of each cost the others time. Where an engine's attention
pairs every query with every cached token, an iteration's seconds grow with the square of the batch, so that beyond some
size a larger batch generates fewer tokens a second. Pliant's engine reads each sequence's own tokens alone: there the
memory is the limit, and this one does not bind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pliant.packing.artifact import Packing
from pliant.packing.scheduling.iteration_cost import IterationCost
from pliant.packing.scheduling.policy import TURNOVER, Rules

WORTH = 0.98  # share of the best rate that suffices: in a smaller batch each token comes sooner


def best_batch(cost: IterationCost, prompt_tokens: Sequence[int], output_tokens: Sequence[int], limit: int) -> int:
    """Return the smallest batch that generates WORTH of the most tokens a second that any batch up to `limit` does.

    `prompt_tokens` and `output_tokens` are of observed requests. On average a sequence holds its prompt and half of its
    output, and for every token that it generates it has read its share of a prompt.
    """
    prompts, outputs = np.asarray(prompt_tokens, float), np.asarray(output_tokens, float)
    held = float(((prompts + outputs / 2) * outputs).sum() / outputs.sum())  # weighted by how long each sequence runs
    prompt_share = float(prompts.sum() / outputs.sum())
    batches = np.arange(1, limit + 1)
    rates = np.array([n / float(cost.seconds(round(n * (1 + prompt_share)), int(n), round(n * held))) for n in batches])
    return int(batches[np.argmax(rates >= WORTH * rates.max())])


def rules_of(packing: Packing, context: int, policy: str = "default", engine: str = "") -> Rules:
    """Return the rules by which this generator is scheduled, live and simulated; `context`: its most tokens.

    `engine`: that runs it; by default the one that it was measured with. Raises `InputError` for an unknown policy.
    """
    rules = Rules(policy, context, safety=packing.level, reorder_patience=packing.patience, cost=packing.steps)
    if (engine or packing.engine) != "vllm":
        return rules
    return replace(rules, preemption_target=0.0, turnover_preemptions=TURNOVER)
