"""The wealth of the bets, observation by observation in plain floats: slow, and written apart from pliant/watch/betting."""

from __future__ import annotations

import math


def evidence(log_factors, weights, blocks, pace: float) -> list[float]:
    """Return the evidence after each block; `blocks`: of each the bins of its observations, in any order."""
    wealth, seen, result = [0.0] * len(weights), 0, []
    for block in blocks:
        before, seen = seen, seen + len(block)
        fresh = 1 / (1 + math.log1p(before / pace)) - 1 / (1 + math.log1p(seen / pace))
        wealth = [each + fresh * weight for each, weight in zip(wealth, weights, strict=True)]
        for bin in block:
            wealth = [each * math.exp(log_factors[bin][bet]) for bet, each in enumerate(wealth)]
        result.append(sum(wealth) + 1 / (1 + math.log1p(seen / pace)))
    return result
