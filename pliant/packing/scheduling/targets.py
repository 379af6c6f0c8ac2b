"""Targets of requests: seconds to the first token, and seconds a token from then on. Keeps the pace of running texts.

A text keeps its pace if its last token comes no later than `tpot` times the number of tokens behind its first one. So it
may be slow for a while and catch up, and iterations can read prompts meanwhile. How long an iteration takes is what the
profile says, times what recent iterations took over that.

Shape suffix: N running sequences.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from pliant.packing.scheduling.iteration_cost import IterationCost
from pliant.packing.scheduling.request import FOREVER, Memory, Prompt
from pliant.packing.scheduling.running import Running

LAX = 30.0  # seconds after its arrival that a request without a target counts as due
RECENT = 0.05  # weight of the latest iteration in the ratio of measured to predicted seconds
AT_ONCE = 4.0  # times the ratio so far that one iteration counts, and over it at least: what it exceeds was a pause
KEPT = 0.995  # share of the targets that are to be kept
STEP = 0.02  # by which a margin grows for each target that is missed
MARGINS = (0.1, 0.8)  # share of a target that is kept free, at least and at most
STARVED = 8  # iterations in a row that read of no prompt, after which the next one does
SHARE = 0.02  # weight of the latest request in the mean tokens of prompts and outputs


def due(prompt: Prompt) -> float:
    """Return when a request's first token is due, in seconds on the driver's clock."""
    return prompt.arrival + min(prompt.ttft, LAX)


class Margin:
    """The share of targets that is kept free, which adapts until `KEPT` of the targets are kept."""

    def __init__(self) -> None:
        self.value = MARGINS[0]

    def note(self, kept: bool) -> None:
        """Take into account whether a target has been kept."""
        self.value = min(max(self.value + STEP * ((not kept) - (1 - KEPT)), MARGINS[0]), MARGINS[1])


class Clock:
    """Predicts the seconds of iterations. `ratio`: of measured seconds to those of the profile, recently."""

    def __init__(self, cost: IterationCost) -> None:
        self.cost, self.ratio = cost, 1.0
        self._began = self._predicted = 0.0

    def seconds(self, queries: float, sequences: float, cached: float) -> float:
        """Return the seconds of an iteration, with the arguments of `IterationCost.seconds`."""
        return self.ratio * float(self.cost.seconds(queries, sequences, cached))  # type: ignore[arg-type]

    def again(self, tokens: int, from_host: bool, sequences: int, cached: int) -> float:
        """Return the seconds that it takes to bring back so many tokens of a preempted text, beside those that run."""
        if from_host:
            return self.ratio * 2 * self.cost.swap_seconds(tokens)
        return self.seconds(sequences + tokens, sequences, cached) - self.seconds(sequences, sequences, cached)

    def begin(self, now: float, queries: int, sequences: int, cached: int) -> None:
        """Note the iteration that begins; without `queries` there is none."""
        self._began = now
        self._predicted = float(self.cost.seconds(queries, sequences, cached)) if queries else 0.0

    def end(self, now: float) -> None:
        """Learn from the iteration that began last, if there was one."""
        if self._predicted > 0:
            measured = (now - self._began) / self._predicted
            ratio = min(max(measured, self.ratio / AT_ONCE), self.ratio * AT_ONCE)
            self.ratio += RECENT * (ratio - self.ratio)
        self._predicted = 0.0

    def most_queries(self, seconds: float, sequences: int, cached: int, most: int) -> int:
        """Return the largest number of tokens, up to `most`, that an iteration reads in so many seconds."""
        return bisect_right(range(1, most + 1), seconds, key=lambda n: self.seconds(n, sequences, cached + n))


class Pace:
    """The targets of one scheduler's requests. Without a `cost` of iterations nothing is known of any."""

    def __init__(self, cost: IterationCost | None) -> None:
        self.clock = Clock(cost) if cost is not None else None
        self.margin = Margin()
        self.prompt_share = 0.0  # tokens of prompts read for each token of an output, on average
        self._watched: set[int] = set()  # those with targets that wait or run
        self._first: dict[int, float] = {}  # when those with a pace got their first token
        self._targets: dict[int, float] = {}  # the paces of those that run
        self._generating: tuple[int, ...] = ()  # in the planned iteration
        self._without = 0  # iterations in a row that read of no prompt

    @property
    def binds(self) -> bool:
        """Whether any request has a target."""
        return bool(self._watched)

    @property
    def slowness(self) -> float:
        """Return how long iterations take over what the profile says, recently; 1 where it says nothing."""
        return self.clock.ratio if self.clock is not None else 1.0

    def arrive(self, prompt: Prompt, output: float) -> None:
        """Take a request into account; `output`: expected tokens of its output."""
        if self.clock is not None:
            share = prompt.tokens / max(output, 1.0)
            self.prompt_share += (SHARE if self.prompt_share else 1.0) * (share - self.prompt_share)
            if min(prompt.ttft, prompt.tpot) < FOREVER:
                self._watched.add(prompt.id)

    def start(self, prompt: Prompt) -> None:
        """Have a text run."""
        if prompt.tpot < FOREVER and prompt.id in self._watched:
            self._targets[prompt.id] = prompt.tpot

    def preempt(self, id: int) -> None:
        """Have a text wait again; the time of its first token stays."""
        self._targets.pop(id, None)

    def leave(self, id: int, generated: int = 0, now: float = 0.0) -> None:
        """Forget a request. `generated`: tokens of one that has ended, which says whether its pace was kept."""
        self._watched.discard(id)
        target, first = self._targets.pop(id, FOREVER), self._first.pop(id, FOREVER)
        if generated > 1 and first < FOREVER and target < FOREVER:
            self.margin.note((now - first) / (generated - 1) <= target)

    def begin(self, now: float, generating: Collection[int], of_prompts: int, of_begun: int, cached: int) -> None:
        """Note the iteration that begins: which texts get a token, and the tokens of prompts that it reads.

        `of_begun`: texts that get their token by what they read.
        """
        self._without = 0 if of_prompts else self._without + 1
        self._generating = tuple(generating) if self._watched else ()
        if self.clock is not None:
            self.clock.begin(now, len(generating) - of_begun + of_prompts, len(generating), cached)

    def end(self, now: float) -> None:
        """Note that the iteration that began last has ended, and every text that was to has its token."""
        if self.clock is not None:
            self.clock.end(now)
        for id in self._generating:
            if id in self._targets:
                self._first.setdefault(id, now)
        self._generating = ()

    def skip(self) -> None:
        """Note that iterations follow of which nothing is said."""
        if self.clock is not None:
            self.clock.begin(0.0, 0, 0, 0)

    def most_tokens(self, running: Running, decoding_N: NDArray[np.bool_], now: float, memory: Memory) -> int:
        """Return how many tokens the next iteration may read so that all texts keep their pace.

        A token for each that generates is always among them, and now and then a page's worth of tokens of prompts.
        """
        most, slack = memory.step_tokens, FOREVER
        if self.clock is None or not self._first:
            return most
        ids, generated = (running.column(name)[decoding_N].tolist() for name in ("id", "generated"))
        for id, tokens in zip(ids, generated, strict=True):
            if id in self._first and id in self._targets:
                slack = min(slack, self._first[id] + self._targets[id] * (1 - self.margin.value) * tokens - now)
        if slack == FOREVER:
            return most
        within = self.clock.most_queries(slack, len(ids), int(running.column("cached").sum()), most)
        return min(max(within, len(ids) + (memory.page_tokens if self._without >= STARVED else 0)), most)

    def allows(self, sequences: int, cached: int, tpot: float) -> bool:
        """Whether so many texts, with so many tokens in the cache and one with the target `tpot`, keep their pace."""
        tightest = min([tpot, *self._targets.values()])
        if self.clock is None or tightest == FOREVER:
            return True
        queries = sequences * (1 + self.prompt_share)
        return self.clock.seconds(queries, sequences, cached) <= tightest * (1 - self.margin.value)
