"""What an engine takes for one text, and what it reports of it, log-probabilities included."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pliant.errors import InputError
from pliant.packing.scheduling.request import Prompt
from pliant.pickled import pickled_by_fields


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """A token's log-probability by the model, and the likeliest tokens in its place with theirs, the likeliest first."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class PackedLogprobs:
    """The log-probabilities of many tokens as bytes, which a process can pass on and keep without making the objects.

    `pieces`: pickled tuples of `TokenLogprobs`, each of some thousand numbers; `count`: of the tokens.
    """

    pieces: tuple[bytes, ...]
    count: int

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[TokenLogprobs]:
        for piece in self.pieces:
            yield from pickle.loads(piece)


PIECE = 2048  # numbers: what takes some milliseconds to make or to write


def piece_tokens(top: int) -> int:
    """Return how many tokens, each with `top` likeliest ones, are a piece."""
    return max(1, PIECE // (max(top, 0) + 1))


def packed(logprobs: Sequence[TokenLogprobs]) -> PackedLogprobs:
    """Return log-probabilities as bytes."""
    size = piece_tokens(len(logprobs[0].top)) if logprobs else 1
    pieces = [pickle.dumps(tuple(logprobs[at : at + size]), 5) for at in range(0, len(logprobs), size)]
    return PackedLogprobs(tuple(pieces), len(logprobs))


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. Temperature 0 takes the likeliest one; `top_p` 1 and `top_k` 0 exclude nothing.

    The noise depends on the seed and the token's position alone, so the same seed gives the same text whatever else
    runs or is preempted, as far as the model's scores are the same: their last bits vary with the shape of the batch.
    `min_p` above 0 excludes tokens with less than this share of the likeliest one's probability. Penalties and `logit_bias`
    are those of sampling.py. Before `min_tokens` tokens none ends the output; `stop_tokens` end it besides the model's own,
    which `ignore_eos` takes away. `logprobs` and `prompt_logprobs`: how many of the likeliest tokens are reported with the
    log-probability of each token of the output, or of the prompt; -1: no log-probabilities. `grammar`, in llguidance's
    dialect of Lark: the output keeps to it (grammar.py); it alone says when an end token may come.
    Raises `InputError` for a value outside its limits.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    min_tokens: int = 0
    stop_tokens: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int = -1
    prompt_logprobs: int = -1
    grammar: str = ""

    @property
    def changes(self) -> bool:
        """Whether anything changes the model's scores before a token is drawn."""
        penalties = self.repetition_penalty != 1 or self.frequency_penalty or self.presence_penalty
        return bool(penalties or self.logit_bias or self.min_tokens)

    @property
    def usual_length(self) -> bool:
        """Whether an output ends where the model would end it."""
        return not (self.changes or self.stop_tokens or self.ignore_eos or self.grammar)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise InputError("temperature", self.temperature, "at least 0 and finite")
        if not 0 < self.top_p <= 1:
            raise InputError("top_p", self.top_p, "above 0 and at most 1")
        if self.top_k < 0:
            raise InputError("top_k", self.top_k, "at least 0")
        if not 0 <= self.min_p <= 1:
            raise InputError("min_p", self.min_p, "from 0 to 1")
        if not 0 < self.repetition_penalty < math.inf:
            raise InputError("repetition_penalty", self.repetition_penalty, "above 0 and finite")
        for name, value in (("frequency_penalty", self.frequency_penalty), ("presence_penalty", self.presence_penalty)):
            if not math.isfinite(value):
                raise InputError(name, value, "finite")
        if self.grammar and (self.ignore_eos or self.min_tokens):
            name, value = ("ignore_eos", self.ignore_eos) if self.ignore_eos else ("min_tokens", self.min_tokens)
            raise InputError(name, value, "left out where the output's form is given, which says when it ends")


@pickled_by_fields
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

    def ends(self, usual: tuple[int, ...]) -> tuple[int, ...]:
        """Return the tokens that end the output. `usual`: those of the model."""
        if self.force:
            return ()
        return (*(() if self.sampling.ignore_eos else usual), *self.sampling.stop_tokens)

    def remaining(self) -> Prompt:
        """Return the prompt as a scheduler sees it after a crash: longer by what was generated, with less to come."""
        prompt, generated = self.prompt, self.generated
        if not generated:
            return prompt
        forecast = tuple(max(tokens - generated, 1.0) for tokens in prompt.forecast)
        bucket, exact = (max(tokens - generated, 1) if tokens else 0 for tokens in (prompt.bucket, prompt.exact))
        left = prompt.limit - generated
        return replace(prompt, tokens=len(self.ids), limit=left, forecast=forecast, bucket=bucket, exact=exact)


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class Progress:
    """What happened to a text since the last report."""

    id: int
    tokens: tuple[int, ...]  # the new ones
    finished: str  # "" while it goes on; stop | length | cancelled | late | failed | grammar: it says nothing more
    queued: float  # seconds from submission to the first iteration that read it, or until now
    preemptions: int
    recomputed: int  # tokens read again because their pages were discarded
    generated: int  # tokens in all, those before a crash included
    seconds: float = 0.0  # of the device since the last report, an iteration shared equally among its texts
    logprobs: tuple[TokenLogprobs, ...] = ()  # of each of `tokens`, where requested
    prompt_logprobs: tuple[TokenLogprobs, ...] | PackedLogprobs = ()  # of the prompt's from its second on, once


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
    slowness: float = 1.0  # measured seconds of recent iterations over those of the profile
