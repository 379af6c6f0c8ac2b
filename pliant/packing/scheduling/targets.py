"""Targets of requests: seconds to the first token, seconds a token from then on, and deadlines.

A text keeps its pace if its last token comes no later than `tpot` times the number of tokens behind its first one. So it
may be slow for a while and catch up, and iterations can read prompts meanwhile. How long an iteration takes is what the
profile says, times what recent iterations took over that.

A text with a deadline that starts now has as many iterations as fit before it, at the pace of all that would run with it.
Its chance to be in time is the share of outputs, by its forecast, that need no more. Of those that are as good as sure the
earliest deadline goes first. Behind them go the others by their chance for their expected iterations, whatever their place
in the queue, so that capacity is not spent on what comes too late. A text joins only if what it brings is no less than what
it takes from the chances of those that run, so that no more run together than deadlines bear. The pace is what recent
iterations took, and a factor that is learnt from what became of the texts that were started: as many as expected must be in
time. Nothing is refused by a forecast alone. On an idle device the best one always starts, so no estimate stays wrong for
want of being tested.

Shape suffixes: N running sequences, W waiting ones, G points of a forecast's grid, P paces.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from pliant.packing.scheduling.forecast import Floats, Grid
from pliant.packing.scheduling.iteration_cost import IterationCost
from pliant.packing.scheduling.request import FOREVER, Memory, Prompt
from pliant.packing.scheduling.running import Running
from pliant.packing.scheduling.waiting_queue import Waiting

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


LEARN = 0.05  # by how much one surprise changes the logarithm of `stretch`
STRETCHES = (0.5, 4.0)
LOOKED_AT = 512  # waiting texts that are compared, at most
SURE = 0.95  # chance from which on texts count alike, and the earliest deadline goes first
WORTH = -0.02  # least change of the expected number of texts in time by one more; below 0, so that equals start


class InTime:
    """The deadlines of texts that wait or run on one device, by id, and what became of those that were started.

    Without a `clock` of iterations nothing is known of any.
    """

    def __init__(self, clock: Clock | None, grid: Grid) -> None:
        self.stretch = 1.0  # times what iterations take by the clock
        self.clock, self.grid = clock, grid
        self.widths_G = np.diff(grid.tokens, prepend=0.0)
        self._deadlines: dict[int, float] = {}
        self._chances: dict[int, float] = {}  # of those that run, when they started

    def chances(self, running: Running, now: float, prompt_share: float) -> Chances | None:
        """Return the chances of this moment; None where no text has a deadline."""
        if self.clock is None or not self._deadlines:
            return None
        return Chances(self, self.clock, running, now, prompt_share)

    def deadline(self, id: int) -> float:
        """Return a text's deadline."""
        return self._deadlines.get(id, FOREVER)

    def arrive(self, prompt: Prompt) -> None:
        """Take a text into account."""
        if prompt.deadline < FOREVER:
            self._deadlines[prompt.id] = prompt.deadline

    def start(self, started: Sequence[Waiting], chance_W: Floats) -> None:
        """Note what is expected of texts that start."""
        for waiting, chance in zip(started, chance_W.tolist(), strict=True):
            if waiting.prompt.id in self._deadlines:
                self._chances.setdefault(waiting.prompt.id, chance)

    def leave(self, id: int, now: float | None = None) -> None:
        """Forget a text. `now`: when it ended or its deadline had passed; None: neither did."""
        deadline, chance = self._deadlines.pop(id, FOREVER), self._chances.pop(id, None)
        if chance is not None and now is not None:
            change = np.exp(LEARN * (chance - (now <= deadline)))
            self.stretch = float(np.clip(self.stretch * change, *STRETCHES))


class Chances:
    """The chances to be in time at one moment: of the running texts, and of waiting ones that join them."""

    def __init__(self, in_time: InTime, clock: Clock, running: Running, now: float, prompt_share: float) -> None:
        self._in_time, self._clock = in_time, clock
        self._running, self._now, self._prompt_share = running, now, prompt_share
        deadlines = [in_time.deadline(id) for id in running.column("id").tolist()]
        self._left_N = np.array(deadlines, float) - now
        self._cached = float((running.column("cached") + running.column("unread")).sum())

    def best_first(self, queue: Iterable[Waiting]) -> list[Waiting]:
        """Return the waiting texts, those with deadlines alone in the order of chance and worth for their iterations.

        They take the places of their group that they have among them; all others keep theirs.
        """
        order = list(queue)
        by_group: dict[int, list[int]] = {}
        for place, waiting in enumerate(order[:LOOKED_AT]):
            if waiting.prompt.deadline < FOREVER == waiting.prompt.ttft and not waiting.prompt.offline:
                by_group.setdefault(waiting.priority[0], []).append(place)
        for places in by_group.values():
            if len(places) > 1:
                group = [order[place] for place in places]
                for place, best in zip(places, self._worst_last(group), strict=True):
                    order[place] = group[best]
        return order

    def gain(self, taken: Sequence[Waiting], waiting: Waiting) -> bool:
        """Whether one more text is worth what it takes from the chances of those that run."""
        if not self._running.count and not taken:
            return True
        state_NG = self._together([*taken, waiting])
        chance_NP = self._chances(*state_NG, np.array([self._pace(taken), self._pace([*taken, waiting])]))
        return float(chance_NP[:, 1].sum() - chance_NP[:-1, 0].sum()) >= WORTH

    def of_started(self, taken: Sequence[Waiting]) -> Floats:
        """Return [W] the chances of texts that start together."""
        return self._chances(*self._waiting(taken), np.array([self._pace(taken)]))[:, 0] if taken else np.zeros(0)

    def _worst_last(self, group: Sequence[Waiting]) -> list[int]:
        """Return the places of these texts, the one that is worth most for its iterations first."""
        rows_WG, generated_W, left_W = self._waiting(group)
        pace = self._pace(())
        chance_W = self._chances(rows_WG, generated_W, left_W, np.array([pace]))[:, 0]
        tokens_W = (1.0 - rows_WG) @ self._in_time.widths_G - generated_W
        steps_W = np.maximum(tokens_W, 1.0)
        utility_W = np.array([each.prompt.utility for each in group])
        worth_W = np.minimum(chance_W, SURE) * utility_W / steps_W
        order: list[int] = np.lexsort((left_W, -worth_W)).tolist()
        return order

    def _pace(self, together: Sequence[Waiting]) -> float:
        """Return the seconds of an iteration if these run, too."""
        sequences = max(self._running.count + len(together), 1)
        cached = self._cached + sum(each.first_tokens for each in together)
        return self._in_time.stretch * self._clock.seconds(sequences * (1 + self._prompt_share), sequences, cached)

    def _waiting(self, waiting: Sequence[Waiting]) -> tuple[Floats, Floats, Floats]:
        """Return the distributions [W, G], the tokens so far [W] and the seconds left [W] of waiting texts."""
        rows_WG = np.array([each.row for each in waiting])
        generated_W = np.array([float(each.generated) for each in waiting])
        return rows_WG, generated_W, np.array([each.prompt.deadline for each in waiting]) - self._now

    def _together(self, waiting: Sequence[Waiting]) -> tuple[Floats, Floats, Floats]:
        """Return the same of the running texts and of these behind them."""
        rows_WG, generated_W, left_W = self._waiting(waiting)
        generated_N = np.concatenate([self._running.column("generated"), generated_W])
        return np.concatenate([self._running.rows, rows_WG]), generated_N, np.concatenate([self._left_N, left_W])

    def _chances(self, rows_NG: Floats, generated_N: Floats, left_N: Floats, paces_P: Floats) -> Floats:
        """Return [N, P] the chances to end within the seconds left, at each pace."""
        grid = self._in_time.grid
        steps_NP = np.floor(np.minimum(np.maximum(left_N[:, None] / paces_P, 0.0), float(grid.longest)))
        ends_NP = np.concatenate([np.zeros((len(left_N), 1)), steps_NP], axis=1) + generated_N[:, None]
        over_NP = 1.0 - grid.below(rows_NG, ends_NP)
        alive_N1 = over_NP[:, :1]
        chance_NP = np.where(alive_N1 > 1e-6, 1.0 - over_NP[:, 1:] / np.maximum(alive_N1, 1e-6), steps_NP >= 1.0)
        chance_NP[np.isinf(left_N)] = 1.0
        return chance_NP
