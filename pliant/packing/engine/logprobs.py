"""Log-probabilities of a token, as an engine reports them."""

from __future__ import annotations

from dataclasses import dataclass

from pliant.pickled import pickled_by_fields


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """A token's log-probability by the model, and the likeliest tokens in its place with theirs, the likeliest first."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()
