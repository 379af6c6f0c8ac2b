"""The input and the output of packing's scheduler, and the memory that it shares out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite, isnan

from pliant.errors import InputError
from pliant.memory import gib
from pliant.packing.scheduling.forecast import QUANTILES
from pliant.pickled import pickled_by_fields

FOREVER = inf
MAX_PRIORITY = 1000
GPU_SHARE, CPU_SHARE = 0.9, 0.5
"""Shares of the free memory that pages may take by default: the rest is for what an iteration computes, and on a CPU for
the other processes of the machine."""


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class Prompt:
    """A text to continue. Times are seconds on the driver's clock."""

    id: int
    arrival: float
    tokens: int  # of the prompt
    limit: int  # most new tokens
    forecast: tuple[float, ...]  # quantiles of the output's tokens at pliant.packing.scheduling.forecast.QUANTILES
    bucket: int = 0  # upper bound in tokens of the predicted class of length (S3); 0: not predicted
    deadline: float = FOREVER
    utility: float = 1.0
    offline: bool = False  # part of a batch whose client waits for the whole
    exact: int = 0  # tokens of the output, for the policy `oracle` alone; 0: not known
    tenant: str = ""  # who pays for it; empty: nobody is named
    weight: float = 1.0  # the tenant's share of the device relative to the other tenants'
    beginnings: tuple[int, ...] = ()  # what its first pages hold (common_pages.py); empty: it shares none
    priority: int = 0  # lower goes first, whatever else; of those with the same one the policy decides
    ttft: float = FOREVER  # target of the seconds from arrival to its first token
    tpot: float = FOREVER  # target of the seconds a token from then on


def validate(prompt: Prompt) -> None:
    """Raises `InputError` for a field outside its limits, such as a deadline that is not a number."""
    wrong = (
        ("id", prompt.id, prompt.id >= 0, "at least 0"),
        ("prompt", f"{prompt.tokens} tokens", prompt.tokens >= 1, "at least 1 token"),
        ("max_tokens", prompt.limit, prompt.limit >= 1, "at least 1"),
        ("arrival", prompt.arrival, isfinite(prompt.arrival), "finite"),
        ("deadline", prompt.deadline, not isnan(prompt.deadline), "a number of seconds"),
        ("priority", prompt.priority, abs(prompt.priority) <= MAX_PRIORITY, f"from -{MAX_PRIORITY} to {MAX_PRIORITY}"),
        ("ttft", prompt.ttft, prompt.ttft > 0, "above 0 seconds"),
        ("tpot", prompt.tpot, prompt.tpot > 0, "above 0 seconds a token"),
        ("utility", prompt.utility, 0 <= prompt.utility < inf, "at least 0 and finite"),
        ("bucket", prompt.bucket, prompt.bucket >= 0, "at least 0"),
        ("weight", prompt.weight, 0 < prompt.weight < inf, "above 0 and finite"),
        ("forecast", prompt.forecast, len(prompt.forecast) == len(QUANTILES), f"{len(QUANTILES)} quantiles"),
        ("forecast", prompt.forecast, all(map(isfinite, prompt.forecast)), "finite"),
    )
    for name, value, right, limit in wrong:
        if not right:
            raise InputError(name, value, limit)


@dataclass(frozen=True, slots=True)
class Memory:
    """The key-value cache of a device, in pages, and the limits of one iteration."""

    pages: int
    page_tokens: int
    host_pages: int = 0  # on the host, for preempted sequences; 0: they are computed again
    step_tokens: int = 512  # tokens that one iteration reads: one a generating sequence, the rest of prompts
    sequences: int = 1024  # most in one iteration

    def __post_init__(self) -> None:
        for name, least in (("pages", 1), ("page_tokens", 1), ("host_pages", 0), ("step_tokens", 1), ("sequences", 1)):
            if getattr(self, name) < least:
                raise InputError(name, getattr(self, name), f"at least {least}")

    def need(self, tokens: int) -> int:
        """Return the pages that hold `tokens` tokens of one sequence."""
        return -(-tokens // self.page_tokens)


@dataclass(frozen=True, slots=True)
class Correction:
    """What a running sequence holds after the last iteration, where the engine did otherwise than was planned.

    An engine with a prefix cache of its own reads less of a prompt than was expected, or leaves a sequence out.
    """

    id: int
    cached: int  # tokens whose keys and values are in the cache
    unread: int  # tokens still to read before its next one; 0: it generates
    generated: int  # tokens, the one that it reads next included


@dataclass(frozen=True, slots=True)
class StepInput:
    """What happened since the last decision, besides what that decided."""

    arrived: tuple[Prompt, ...] = ()
    finished: tuple[int, ...] = ()  # sequences whose last token came in the last iteration
    cancelled: tuple[int, ...] = ()  # waiting or running
    corrected: tuple[Correction, ...] = ()  # running, possibly among those that finished; taken over first


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens of one sequence that this iteration reads. After the last one of its prompt it generates its next token.

    Generating sequences have no chunk: every running sequence without one generates one token, unless it is stalled or
    has generated as many as it may (an engine that works ahead reports its end later).
    Pages have numbers by what they hold (common_pages.py), so that several sequences may use the same ones.
    """

    id: int
    tokens: int
    taken: tuple[int, ...] = ()  # numbers of known pages that it uses from now on, before these tokens
    kept: tuple[tuple[int, int], ...] = ()  # pages that these tokens fill and that are known then: place and number


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What the next iteration does, in this order. Ids are those of prompts."""

    dropped: tuple[tuple[int, str], ...] = ()  # with the reason; waiting or running
    offloaded: tuple[int, ...] = ()  # preempted: its pages go to the host
    discarded: tuple[int, ...] = ()  # preempted: its pages are freed, to be computed again
    admitted: tuple[int, ...] = ()  # waiting ones that run now; what was offloaded comes back with its pages
    prefill_chunks: tuple[Chunk, ...] = ()  # of sequences that do not generate yet
    stalled: tuple[int, ...] = ()  # running, but left out of this iteration: it has no more tokens or places
    forgotten: tuple[int, ...] = ()  # numbers of pages that nobody uses, whose space is needed


def check_distinct(step_input: StepInput, known: Callable[[int], bool]) -> None:
    """Raise `InputError` for an id in use. An id may come again together with the end of its former sequence.

    `known`: whether a sequence of this id waits or runs.
    """
    free = {*step_input.finished, *step_input.cancelled}
    for id, times in Counter(prompt.id for prompt in step_input.arrived).items():
        if times > 1 or (id not in free and known(id)):
            raise InputError("id", id, "one that neither waits nor runs")


def check_length(prompt: Prompt, context: int, memory: Memory) -> None:
    """Raise `InputError` for a prompt that, with its longest output, exceeds the context or the whole cache."""
    total, longest = prompt.tokens + prompt.limit, memory.pages * memory.page_tokens
    if total > context:
        raise InputError("prompt and max_tokens", f"{total} tokens", f"at most the context, {context}")
    if memory.need(total) > memory.pages:
        raise InputError("prompt and max_tokens", f"{total} tokens", f"at most what the cache holds, {longest}")


def pages_within(free: int, weights: int, page: int, on_gpu: bool) -> int:
    """Return the number of pages that fit into the free memory beside the weights; 0 where none does.

    `page`: the bytes of one page.
    """
    return max(int((GPU_SHARE if on_gpu else CPU_SHARE) * (free - weights) // page), 0)


def check_fits(memory: Memory, token_bytes: int, weights: int, free: int, device: str) -> None:
    """Raise `InputError` where a model's weights and its pages need more than the device has free.

    `token_bytes`: of one token's keys and values. On a CPU the pages of preempted sequences are beside the others.
    """
    pages = memory.pages + (memory.host_pages if device == "cpu" else 0)
    cache = pages * memory.page_tokens * token_bytes
    if weights + cache > free:
        raise InputError(
            "memory",
            f"{pages} pages of {memory.page_tokens} tokens ({gib(cache)}) beside {gib(weights)} of weights",
            f"at most {gib(free)} in all, which {device} has free: ask for fewer pages (memory.pages, memory.megabytes), "
            "or for none, and they follow from what is free",
        )
