"""What a scheduler of generation is told and what it decides, and the memory that it decides over."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite, isnan

from pliant.errors import InputError
from pliant.packing.scheduling.forecast import LEVELS

FOREVER = inf


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text to be continued. Times are seconds on the driver's clock."""

    id: int
    arrival: float
    tokens: int  # of the prompt
    limit: int  # new tokens at most
    forecast: tuple[float, ...]  # quantiles of the output's tokens at pliant.packing.scheduling.forecast.LEVELS
    bucket: int = 0  # the published predictor's class: its upper bound in tokens; 0: not predicted
    deadline: float = FOREVER
    utility: float = 1.0
    offline: bool = False  # one of a batch that somebody waits for as a whole
    exact: int = 0  # the output's tokens, for the policy `oracle` alone; 0: not known


def sound(prompt: Prompt) -> None:
    """Raises `InputError` for numbers that mean nothing, or by which nobody could be put in order."""
    wrong = (
        ("id", prompt.id, prompt.id >= 0, "at least 0"),
        ("prompt", f"{prompt.tokens} tokens", prompt.tokens >= 1, "at least 1 token"),
        ("max_tokens", prompt.limit, prompt.limit >= 1, "at least 1"),
        ("arrival", prompt.arrival, isfinite(prompt.arrival), "finite"),
        ("deadline", prompt.deadline, not isnan(prompt.deadline), "a number of seconds"),
        ("utility", prompt.utility, 0 <= prompt.utility < inf, "at least 0 and finite"),
        ("bucket", prompt.bucket, prompt.bucket >= 0, "at least 0"),
        ("forecast", prompt.forecast, len(prompt.forecast) == len(LEVELS), f"{len(LEVELS)} quantiles"),
        ("forecast", prompt.forecast, all(map(isfinite, prompt.forecast)), "finite"),
    )
    for name, value, right, limit in wrong:
        if not right:
            raise InputError(name, value, limit)


@dataclass(frozen=True, slots=True)
class Memory:
    """The key-value cache of a device and the limits of one iteration."""

    pages: int
    page_tokens: int
    host_pages: int = 0  # on the host, for what is preempted; 0: it is recomputed
    step_tokens: int = 512  # queries in one iteration: one a running sequence, the rest prompts
    sequences: int = 1024  # in one iteration

    def __post_init__(self) -> None:
        for name, least in (("pages", 1), ("page_tokens", 1), ("host_pages", 0), ("step_tokens", 1), ("sequences", 1)):
            if getattr(self, name) < least:
                raise InputError(name, getattr(self, name), f"at least {least}")

    def need(self, tokens: int) -> int:
        """Pages that hold so many tokens of one sequence."""
        return -(-tokens // self.page_tokens)


@dataclass(frozen=True, slots=True)
class StepInput:
    """What happened since the last decision: everything that was decided then, and this."""

    arrived: tuple[Prompt, ...] = ()
    finished: tuple[int, ...] = ()  # sequences whose last token came in the last iteration
    cancelled: tuple[int, ...] = ()  # waiting or running


@dataclass(frozen=True, slots=True)
class Chunk:
    """So many tokens of the sequence are read in this iteration; with the last of them it makes its next token.

    One token of a sequence that already generates is not told as a chunk: every running one without a chunk does that.
    """

    id: int
    tokens: int


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What the next iteration does, in this order. Ids are prompts'."""

    dropped: tuple[tuple[int, str], ...] = ()  # with the reason; waiting or running
    offloaded: tuple[int, ...] = ()  # preempted: its pages go to the host
    discarded: tuple[int, ...] = ()  # preempted: its pages are freed, to be computed again
    admitted: tuple[int, ...] = ()  # from the line; what was offloaded comes back with its pages
    chunks: tuple[Chunk, ...] = ()  # of those that are not generating yet
    idle: tuple[int, ...] = ()  # running, but not in this iteration: the queries are used up

    @property
    def quiet(self) -> bool:
        """Nothing but one more token of each running sequence."""
        return not (self.dropped or self.offloaded or self.discarded or self.admitted or self.chunks or self.idle)
