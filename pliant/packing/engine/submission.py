"""What an engine is given for one text and what it reports of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pliant.errors import InputError
from pliant.packing.scheduling.request import Prompt


@dataclass(frozen=True, slots=True)
class Sampling:
    """Temperature 0 takes the likeliest token; `top_p` 1 and `top_k` 0 leave nothing out.

    The noise is a function of the seed and the token's position alone, so the same seed gives the same text whatever else
    runs and whatever is preempted (as far as the model's scores are the same: their last bits follow the batch's shape).
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise InputError("temperature", self.temperature, "at least 0 and finite")
        if not 0 < self.top_p <= 1:
            raise InputError("top_p", self.top_p, "above 0 and at most 1")
        if self.top_k < 0:
            raise InputError("top_k", self.top_k, "at least 0")


@dataclass(frozen=True, slots=True)
class Submission:
    """`ids`: the prompt's tokens, and behind them the `made` that were generated before a crash of an engine.

    `force` above 0: exactly so many tokens are made in all, whatever they are; for measurements.
    """

    prompt: Prompt
    ids: tuple[int, ...]
    sampling: Sampling = Sampling()
    made: int = 0
    force: int = 0

    def __post_init__(self) -> None:
        if self.made < 0 or len(self.ids) != self.prompt.tokens + self.made:
            raise InputError(
                "ids", f"{len(self.ids)} tokens", f"the prompt's {self.prompt.tokens} and {self.made} made"
            )
        if not self.made < self.most <= self.prompt.limit:
            raise InputError("tokens to make", self.most, f"above {self.made} and at most {self.prompt.limit}")

    @property
    def most(self) -> int:
        """Tokens of the output, those made before included."""
        return self.force or self.prompt.limit

    def remaining(self) -> Prompt:
        """As a scheduler sees it: what was made before a crash is read again like a prompt, and so much less is to come."""
        prompt, made = self.prompt, self.made
        if not made:
            return prompt
        forecast = tuple(max(tokens - made, 1.0) for tokens in prompt.forecast)
        bucket, exact = (max(tokens - made, 1) if tokens else 0 for tokens in (prompt.bucket, prompt.exact))
        left = prompt.limit - made
        return replace(prompt, tokens=len(self.ids), limit=left, forecast=forecast, bucket=bucket, exact=exact)


@dataclass(frozen=True, slots=True)
class Progress:
    """What became of a text since the last report."""

    id: int
    tokens: tuple[int, ...]  # new ones
    finished: str  # "" while it goes on; stop | length | cancelled | late | failed
    queued: float  # seconds from submission to the first iteration that read it; so far, where it still waits
    preemptions: int
    recomputed: int  # tokens read again because their pages were given up
    made: int  # tokens in all, those before a crash included


@dataclass(frozen=True, slots=True)
class Status:
    """`error`: why the engine died; empty while it lives. Seconds and counts are since its start."""

    alive: bool
    error: str
    running: int
    waiting: int
    pages: int
    pages_used: int
    host_pages_used: int
    iterations: int
    tokens: int  # generated
    preemptions: int
    recomputed: int  # tokens
    sequences: int  # summed over iterations
    busy: float  # seconds in iterations
    deciding: float  # seconds of those that the scheduler took
