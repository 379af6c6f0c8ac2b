"""What of a policy follows from a profile: how many sequences an iteration may hold, and what a preemption costs.

More sequences share an iteration's fixed cost, but each one's tokens cost the others too. Where attention reads every pair
of a query and a cached token (an engine on a CPU), an iteration's seconds grow with the square of the batch, and beyond some
size a larger one makes fewer tokens a second. Where it does not (a GPU), memory is the limit and this one does not bind.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pliant.packing.artifact import Packing
from pliant.packing.scheduling.iteration_cost import IterationCost, LinearSteps
from pliant.packing.scheduling.policy import Rules

WORTH = 0.98  # of the most tokens a second: a smaller batch that makes as many gives each of them sooner


def sequences(steps: IterationCost, prompt_tokens: Sequence[int], output_tokens: Sequence[int], most: int) -> int:
    """The smallest batch that makes WORTH of the most tokens a second that any batch up to `most` makes.

    The requests are observed ones: a sequence holds its prompt and half of its output on average over its life, and for
    every token that it makes it has read its share of a prompt.
    """
    prompts, outputs = np.asarray(prompt_tokens, float), np.asarray(output_tokens, float)
    held = float(((prompts + outputs / 2) * outputs).sum() / outputs.sum())  # weighted by how long each one lives
    read = float(prompts.sum() / outputs.sum())
    batches = np.arange(1, most + 1)
    rates = np.array([n / float(steps.seconds(round(n * (1 + read)), int(n), round(n * held))) for n in batches])
    return int(batches[np.argmax(rates >= WORTH * rates.max())])


def hosted(steps: LinearSteps) -> float:
    """What a preemption costs whose pages go to the host and come back, over one whose tokens are read again; at most 1."""
    return min(2 * steps.swap / steps.query, 1.0) if steps.query > 0 else 1.0


def rules_of(packing: Packing, context: int, policy: str = "default") -> Rules:
    """What a generator of that context is scheduled by, live and simulated. Raises `InputError` for an unknown policy."""
    return Rules(policy, context, level=packing.level, hosted=hosted(packing.steps), patience=packing.patience)
