"""What one load at one contender gave, in figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.packing.vllm.load import Reply

WITHIN = (2.0, 4.0)
"""Times the unloaded time within which an answer is good."""


@dataclass(frozen=True, slots=True)
class Unloaded:
    """The seconds of a text that has the engine for itself: base + prompt * its prompt's tokens + token * its own."""

    base: float
    prompt: float
    token: float

    def seconds(self, replies: Sequence[Reply]) -> NDArray[np.float64]:
        """Return the seconds [N] that each would have taken alone."""
        prompts = np.array([reply.prompt for reply in replies], float)
        tokens = np.array([len(reply.tokens) for reply in replies], float)
        return self.base + self.prompt * prompts + self.token * tokens


def fit(replies: Sequence[Reply]) -> Unloaded:
    """Return the non-negative least squares fit to texts that were measured alone; errors are relative."""
    from scipy.optimize import nnls

    rows = np.array([[1.0, reply.prompt, len(reply.tokens)] for reply in replies])
    seconds = np.array([reply.seconds for reply in replies])
    base, prompt, token = nnls(rows / seconds[:, None], np.ones(len(replies)))[0]
    return Unloaded(float(base), float(prompt), float(token))


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a load. Seconds count from the planned arrival; rates from the first arrival to the last end."""

    mean: float  # seconds to the last token
    p99: float
    first: float  # mean seconds to the first token
    tokens: float  # of outputs, a second
    rate: float  # answers a second
    good: tuple[float, ...]  # answers a second within each of WITHIN
    sustained: float = (
        0.0  # answers a second from the first tenth of the ends to the last: without the emptying at the end
    )


def figures(replies: Sequence[Reply], unloaded: Unloaded) -> Figures:
    """Return the figures of replies that all ended."""
    seconds = np.array([reply.seconds for reply in replies])
    lasted = max(reply.ended for reply in replies) - min(reply.arrival for reply in replies)
    limits = unloaded.seconds(replies)
    return Figures(
        mean=float(seconds.mean()),
        p99=float(np.quantile(seconds, 0.99)),
        first=float(np.mean([reply.first for reply in replies])),
        tokens=sum(len(reply.tokens) for reply in replies) / lasted,
        rate=len(replies) / lasted,
        good=tuple(float((seconds <= times * limits).sum()) / lasted for times in WITHIN),
        sustained=sustained([reply.ended for reply in replies]) or len(replies) / lasted,
    )


def sustained(ends: Sequence[float]) -> float:
    """Return the answers a second between the first tenth of the ends and the last; 0 where those coincide."""
    low, high = np.quantile(ends, (0.1, 0.9))
    between = sum(low < end <= high for end in ends)
    return float(between / (high - low)) if high > low else 0.0


def differing(replies: Sequence[Reply], reference: Sequence[Sequence[int]]) -> int:
    """Count the texts that are not those of the reference, which may be longer or shorter than these."""
    return sum(tuple(text) != reply.tokens for reply, text in zip(replies, reference, strict=False))
