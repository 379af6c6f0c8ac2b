"""The contract of a policy: whom to admit, in which order, and whom to preempt. policies.py has all of them.

A policy is asked by the scheduler, reads no clock and changes nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError
from pliant.packing.scheduling.common_pages import CommonPages, missing
from pliant.packing.scheduling.forecast import Grid, Past
from pliant.packing.scheduling.iteration_cost import IterationCost
from pliant.packing.scheduling.request import Memory, Prompt
from pliant.packing.scheduling.running import Running
from pliant.packing.scheduling.targets import Chances, Clock, Pace
from pliant.packing.scheduling.waiting_queue import Priority, Waiting, WaitingQueue

POLICIES = {
    "default": "predicted peak of the pages, adaptive confidence, shortest predicted first with ageing",
    "paged": "pages on demand, first come, first served",
    "s3": "predicted class reserved, decreasing first fit, doubled on preemption (S3 as published)",
    "edf": "pages on demand, the earliest deadline first",
    "past-future": "peak of the pages by lengths drawn from past outputs, first come, first served (LightLLM)",
    "orca": "the longest possible output reserved, first come, first served (ORCA)",
    "oracle": "exact lengths reserved, decreasing first fit; only where they are known",
}

SERVED = {name: summary for name, summary in POLICIES.items() if name != "oracle"}
"""The policies that a service can follow: it knows no output's length before it has ended."""

TURNOVER = 2.0
"""`Rules.turnover_preemptions` on vLLM, where preempted sequences read their tokens again: of 1 to 4 the best in simulations
with measured steps, in memories of 7 to 60 sequences. The best number for each finished one fell there from 0.5 to 0.05."""


@dataclass(frozen=True, slots=True)
class Rules:
    """A policy and its parameters. `context`: the most tokens of a prompt and its output together."""

    policy: str | Callable[[Rules], Policy] = "default"  # a name of `POLICIES`; in simulations also an own one
    context: int = 2048
    safety: float = 1.0  # where the adaptive safety starts, in standard deviations of the predicted pages
    preemption_target: float = 0.05  # preemptions of usual cost (`Safety`), per finished sequence, where it settles
    reorder_patience: float = 1.5  # times the recent delay by which a request of typical size is put back
    recalibrate: bool = True  # correct forecasts by the outputs that have finished
    share: bool = True  # let prompts that begin alike share pages, where the policy does
    cost: IterationCost | None = None  # of iterations, to keep targets by; None: nobody has any
    turnover_preemptions: float = 0.0  # added to `preemption_target`, while as many sequences finish as run at once

    def __post_init__(self) -> None:
        if isinstance(self.policy, str) and self.policy not in POLICIES:
            raise InputError("policy", self.policy, f"one of {', '.join(POLICIES)}")
        if self.context < 2:
            raise InputError("context", self.context, "at least 2 tokens")
        if not isfinite(self.safety):
            raise InputError("safety", self.safety, "finite")
        for name in ("preemption_target", "reorder_patience", "turnover_preemptions"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise InputError(name, getattr(self, name), "at least 0 and finite")


@dataclass(frozen=True, slots=True)
class View:
    """What admission decides by: the state before the next iteration."""

    memory: Memory
    free: int  # pages, besides those that the running sequences need for the next iteration; known unused ones are free
    reserved: int  # pages, by the running sequences
    queries: int  # tokens that the iteration can still read
    room: int  # sequences that may join
    safety: float  # standard deviations
    running: Running
    grid: Grid
    common: CommonPages = field(default_factory=CommonPages)
    at_once: bool = False  # whether those that are admitted share pages in the next iteration, since they read in it
    past: Past | None = None  # lengths of the latest outputs; None: none are known
    pace: Pace | None = None  # of the running sequences; None: nobody has one to keep
    chances: Chances | None = None  # to be in time; None: nobody has a deadline

    def new_pages(self, waiting: Waiting, coming: Collection[int] = ()) -> int:
        """Return the pages that a waiting sequence needs for all that is unread, besides those that others use.

        `coming`: the numbers of the pages that those use which are admitted before it (`joined`).
        """
        return self.memory.need(waiting.first_tokens) - self.in_use(waiting, coming)

    def in_use(self, waiting: Waiting, coming: Collection[int] = ()) -> int:
        """Return the pages that a waiting sequence would share with running ones and with those before it."""
        return self._known(waiting, coming, in_use=True)

    def to_read(self, waiting: Waiting, coming: Collection[int] = ()) -> int:
        """Return the tokens that a waiting sequence has to read itself, at least one."""
        return max(waiting.unread - self._known(waiting, coming) * self.memory.page_tokens, 1)

    def of_beginning(self, waiting: Waiting) -> int:
        """Return the pages of a waiting sequence that will be common ones, which stay as long as any sequence uses them."""
        return len(self._beginnings(waiting))

    def joined(self, waiting: Waiting, coming: Collection[int]) -> list[int]:
        """Return the numbers of the pages that those admitted behind this sequence share with it.

        There are none where it comes back from the host: it may read before or behind the others, as it was admitted
        before, and does not share the pages that it brings.
        """
        return [] if waiting.cached else self.common.used_by(self._beginnings(waiting), coming)

    def all_to_read(self, admitted: Sequence[Waiting]) -> int:
        """Return the tokens that sequences have to read which are admitted together, in this order."""
        tokens, coming = 0, set[int]()
        for waiting in admitted:
            tokens += self.to_read(waiting, coming)
            coming.update(self.joined(waiting, coming))
        return tokens

    def _beginnings(self, waiting: Waiting) -> tuple[int, ...]:
        return missing(waiting.prompt, waiting.cached, self.memory.page_tokens) if self.at_once else ()

    def _known(self, waiting: Waiting, coming: Collection[int], in_use: bool = False) -> int:
        return self.common.known(self._beginnings(waiting), in_use, () if waiting.cached else coming)


@dataclass(frozen=True, slots=True)
class Recent:
    """What recent requests were like, on average. `delay` is that of the tenant whose request is looked at."""

    size: float  # tokens held, summed over the iterations
    delay: float  # seconds from arrival to admission


class Policy(ABC):
    """The defaults are those of a policy that is first come, first served and reserves nothing."""

    by_priority: ClassVar[bool] = False  # whether the last in priority is preempted first, not the one admitted last
    reserves: ClassVar[bool] = False  # whether it keeps pages for tokens to come
    shares: ClassVar[bool] = False  # whether prompts that begin alike share the pages of their beginnings
    targets: ClassVar[bool] = False  # whether it keeps the targets of requests
    fair: ClassVar[bool] = False  # whether tenants are admitted in the order of what they have received
    needs_exact: ClassVar[bool] = False  # whether it must know the outputs' exact lengths, which only a simulation does

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def longest(self, prompt: Prompt) -> int:
        """Return the most tokens that the output may have."""
        return min(prompt.limit, self.rules.context - prompt.tokens)

    def reserve(self, prompt: Prompt) -> int:
        """Return the tokens of prompt and output to reserve, where the policy reserves. Raises `InputError`."""
        return prompt.tokens + self.longest(prompt)

    def priority(self, prompt: Prompt, forecast: tuple[float, ...], reserved: int, recent: Recent) -> Priority:  # noqa: ARG002
        """Return the request's place in the order of admission; smaller goes first."""
        return 0, prompt.arrival, prompt.id

    def admit(self, queue: WaitingQueue, view: View) -> list[Waiting]:
        """Return the waiting sequences that run from the next iteration on."""
        return self.choose(queue, view, view.room) if view.room > 0 and view.queries > 0 else []

    @abstractmethod
    def choose(self, queue: WaitingQueue, view: View, room: int) -> list[Waiting]:
        """Return the waiting sequences that fit, `room` at most."""

    def outgrown(self, running: Running) -> list[int]:  # noqa: ARG002
        """Return the ids to preempt because their next token exceeds the reservation."""
        return []

    def steps_until_outgrown(self, running: Running) -> int | None:  # noqa: ARG002
        """Return for how many iterations `outgrown` would return nothing; None for ever."""
        return None

    def preempted(self, waiting: Waiting) -> tuple[Priority, int]:
        """Return priority and reserved tokens of a sequence that goes back into the queue, with what it holds by then."""
        return waiting.priority, waiting.reserve

    def last_first(self, running: Running) -> NDArray[np.int64]:
        """Return the rows of the running sequences, the first to preempt first."""
        turn = running.column("turn")
        order = np.lexsort((turn, running.key, running.column("group"))) if self.by_priority else np.argsort(turn)
        return order[::-1]

    def victims(self, running: Running, needed: NDArray[np.int64], pages: int) -> list[int]:
        """Return the ids to preempt so that the next iteration fits into `pages`; `needed` [N]: the pages of each alone.

        One sequence always stays, since a request too large for the whole cache has been rejected on arrival.
        """
        excess = int(needed.sum()) - pages
        if excess <= 0:
            return []
        chosen: list[int] = []
        for row in self.last_first(running):
            if excess <= 0 or len(chosen) == running.count - 1:
                break
            chosen.append(int(running.column("id")[row]))
            excess -= int(needed[row])
        return chosen


GAIN = 0.1  # standard deviations that one preemption adds which costs `USUAL`
BOUNDS = (-2.0, 4.0)  # below 0 more is admitted than is expected to fit, for where preemptions cost little
USUAL = 1 / 3  # of the time between two ends: what it takes to bring back a sequence whose preemption counts as one
MOST = 2.0  # as so many a preemption counts at most
RECENT = 0.05  # weight of the latest end in the mean time between two


class Safety:
    """The safety of admission: the standard deviations of the predicted pages that must fit, by what preemptions have cost.

    It settles where preemptions take a certain share of the device's time. One that is brought back in a small part of the
    time between two ends is cheap, and more of them are worth the texts that run meanwhile. `clock`: of iterations; None:
    every preemption counts as one.
    """

    def __init__(self, rules: Rules, clock: Clock | None) -> None:
        self.value = rules.safety
        self._rules = rules
        # With `turnover_preemptions` their number has been chosen by what they cost.
        self._clock = None if rules.turnover_preemptions else clock
        self._ended = self._between = 0.0

    def end(self, running: int, now: float) -> None:
        """Note that a sequence has ended while others wait, whom the safety might hold back. `running`: the others."""
        allowed = self._rules.preemption_target + self._rules.turnover_preemptions / (running + 1)
        self._add(-GAIN * allowed)
        if self._ended:
            self._between += (RECENT if self._between else 1.0) * (now - self._ended - self._between)
        self._ended = now

    def preempt(self, tokens: int, to_host: bool, sequences: int, cached: int) -> None:
        """Note that a sequence of so many tokens is preempted, beside `sequences` with `cached` tokens."""
        if self._clock is None or not self._between:
            self._add(GAIN)
        else:
            seconds = self._clock.again(tokens, to_host, sequences, cached)
            self._add(GAIN * min(seconds / (USUAL * self._between), MOST))

    def _add(self, change: float) -> None:
        self.value = min(max(self.value + change, BOUNDS[0]), BOUNDS[1])
