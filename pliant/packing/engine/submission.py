"""What an engine takes for one text, and what it reports of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pliant.errors import InputError
from pliant.packing.scheduling.request import Prompt


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. Temperature 0 takes the likeliest one; `top_p` 1 and `top_k` 0 exclude nothing.

    The noise depends on the seed and the token's position alone, so the same seed gives the same text whatever else
    runs or is preempted, as far as the model's scores are the same: their last bits vary with the shape of the batch.
    Raises `InputError` for a value outside its limits.
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
    """A text to generate. `ids`: the tokens of its prompt, then the `generated` ones from before a crash of the engine.

    `force` above 0: generate exactly so many tokens in all, whatever they are (for measurements). Raises `InputError`
    for counts that do not fit together.
    """

    prompt: Prompt
    ids: tuple[int, ...]
    sampling: Sampling = Sampling()
    generated: int = 0
    force: int = 0

    def __post_init__(self) -> None:
        if self.generated < 0 or len(self.ids) != self.prompt.tokens + self.generated:
            raise InputError(
                "ids", f"{len(self.ids)} tokens", f"the prompt's {self.prompt.tokens} and {self.generated} made"
            )
        if not self.generated < self.max_tokens <= self.prompt.limit:
            raise InputError(
                "tokens to make", self.max_tokens, f"above {self.generated} and at most {self.prompt.limit}"
            )

    @property
    def max_tokens(self) -> int:
        """The most tokens of the output, those from before a crash included."""
        return self.force or self.prompt.limit

    def remaining(self) -> Prompt:
        """Return the prompt as a scheduler sees it after a crash: longer by what was generated, with less to come."""
        prompt, generated = self.prompt, self.generated
        if not generated:
            return prompt
        forecast = tuple(max(tokens - generated, 1.0) for tokens in prompt.forecast)
        bucket, exact = (max(tokens - generated, 1) if tokens else 0 for tokens in (prompt.bucket, prompt.exact))
        left = prompt.limit - generated
        return replace(prompt, tokens=len(self.ids), limit=left, forecast=forecast, bucket=bucket, exact=exact)


@dataclass(frozen=True, slots=True)
class Progress:
    """What happened to a text since the last report."""

    id: int
    tokens: tuple[int, ...]  # the new ones
    finished: str  # "" while it goes on; stop | length | cancelled | late | failed
    queued: float  # seconds from submission to the first iteration that read it, or until now
    preemptions: int
    recomputed: int  # tokens read again because their pages were discarded
    generated: int  # tokens in all, those before a crash included
    seconds: float = 0.0  # of the device since the last report, an iteration shared equally among its texts


@dataclass(frozen=True, slots=True)
class Status:
    """The state of an engine. `error`: why it died; empty while it lives. Seconds and counts are since its start."""

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
    deciding: float  # seconds of `busy` that the scheduler took
    out_of_memory: bool = False  # whether it died for lack of the device's memory
    shared: int = 0  # tokens of prompts that were not read, since others that begin alike had read them
