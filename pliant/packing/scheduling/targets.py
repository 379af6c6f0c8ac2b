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

`Admission` refuses at once the requests whose targets cannot be kept, by a forecast from those that wait and run.

Targets are seconds to the first token, and a token: who names one gets a promise, or is told at once. Who names a deadline
alone is never refused by a forecast: the scheduler starts whom it can still serve in time.

That forecast is a fluid one. As many texts run together as memory, places and their paces allow; each runs for as many
iterations as its forecast output has tokens; prompts are read in the order in which first tokens are due. A request is
accepted if its own first token and those of all that are due later come in time, less a margin that adapts to what was
missed. It never waits for an iteration, so that a refusal takes no time.

Where there are several tenants, those that wait begin in the order in which they will be served (waiting_queue.py), and
texts of tenants that have received much more pause. So what others ask for beyond their shares refuses nobody: a promise to
a tenant beyond its share holds as long as the others leave it what it takes.

Shape suffixes: N running sequences, W waiting ones, G points of a forecast's grid, P paces.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pliant.fairness import Fairness
from pliant.packing.scheduling.forecast import QUANTILES, Floats, Grid, mean, ordered
from pliant.packing.scheduling.iteration_cost import IterationCost
from pliant.packing.scheduling.request import FOREVER, Memory, Prompt
from pliant.packing.scheduling.running import Running
from pliant.packing.scheduling.waiting_queue import SHARING, Waiting, can_pause, in_turn, predicted_of

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
                rows_WG, generated_W, left_W = self._waiting(group)
                chance_W = self._chances(rows_WG, generated_W, left_W, np.array([self._pace(())]))[:, 0]
                steps_W = np.maximum((1.0 - rows_WG) @ self._in_time.widths_G - generated_W, 1.0)
                utility_W = np.array([each.prompt.utility for each in group])
                worth_W = np.minimum(chance_W, SURE) * utility_W / steps_W
                for place, best in zip(places, np.lexsort((left_W, -worth_W)).tolist(), strict=True):
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


FULL = 0.95  # share of the memory that sequences fill
PROBES = 5.0  # usual seconds until a target, after which what was measured is old
PROBE_SECONDS = 1.0  # of these, at most
GROWN = 0.75  # share of its output that a text holds on average, while it and others grow
SELDOM = 2.33  # standard deviations: one in a hundred is beyond
LONG = QUANTILES.index(0.95)  # quantile of the length by which a deadline must be kept
_SHORTEST = (1.0,) * len(QUANTILES)


@dataclass(slots=True)
class _Accepted:
    """A request that waits or runs."""

    prompt: Prompt
    due: float
    output: float  # expected tokens


class Admission:
    """Accepts requests for one engine. Times are seconds on the driver's clock."""

    def __init__(self, cost: IterationCost, memory: Memory) -> None:
        self.clock, self.margin, self._memory = Clock(cost), Margin(), memory
        self._waiting: dict[int, _Accepted] = {}  # without a first token yet
        self._running: dict[int, _Accepted] = {}
        self._fairness = Fairness(SHARING)  # as the engine's scheduler counts it
        self._learned_at = -FOREVER
        self._within = PROBE_SECONDS  # usual seconds until a target
        self._prompt = self._output = 0.0  # mean tokens of recent requests

    def offer(self, prompt: Prompt, now: float) -> float | None:
        """Accept a request and return None, or return the seconds after which it might be accepted."""
        output = mean(ordered(prompt.forecast, prompt.limit))
        accepted = _Accepted(prompt, due(prompt), output)
        weight = SHARE if self._output else 1.0
        self._prompt += weight * (prompt.tokens - self._prompt)
        self._output += weight * (output - self._output)
        seconds = self._refusal(accepted, now)
        if seconds is None:
            self._join(accepted)
        return seconds

    def _join(self, accepted: _Accepted) -> None:
        prompt, fairness = accepted.prompt, self._fairness
        contended, self._waiting[prompt.id] = fairness.contended, accepted
        fairness.join(prompt.id, prompt.tenant, prompt.weight)
        if fairness.contended and not contended:
            for id, running in self._running.items():
                fairness.charge(id, running.prompt.tenant, self._service(running))

    def _service(self, accepted: _Accepted) -> float:
        """Return the service that a request needs, as sharing counts it."""
        return predicted_of(self._memory, accepted.prompt)

    def hopeless(self, prompt: Prompt, now: float) -> float | None:
        """Return the seconds after which a request might be accepted, if now it cannot be, however short its output is.

        None: it depends on its forecast, which is not read: `offer` it with one.
        """
        return self._refusal(_Accepted(replace(prompt, forecast=_SHORTEST), due(prompt), 1.0), now)

    def _refusal(self, accepted: _Accepted, now: float) -> float | None:
        prompt = accepted.prompt
        if min(prompt.ttft, prompt.tpot) == FOREVER:
            return None
        within = min(prompt.ttft, prompt.deadline - prompt.arrival, PROBE_SECONDS)
        self._within += SHARE * (within - self._within)
        # An idle engine that was not measured recently accepts one, to find out how fast it is.
        if not self._waiting and not self._running and now - self._learned_at > PROBES * self._within:
            return None
        late = self._lateness(accepted, now)
        return late if late > 0 else None

    def learn(self, slowness: float, now: float) -> None:
        """Take over how long iterations take over what the profile says."""
        self.clock.ratio, self._learned_at = slowness, now

    def wait(self) -> float:
        """Return the seconds after which those that wait now have probably begun."""
        ahead = self._in_turn(self._waiting.values())
        if not ahead:
            return 0.0
        sequences = self._together(FOREVER)
        return float(self._first_tokens(ahead, sequences, self._iteration(sequences))[-1])

    def began(self, id: int, now: float) -> None:
        """Note that a request has its first token."""
        accepted = self._waiting.pop(id, None)
        if accepted is not None:
            tenant, behind = accepted.prompt.tenant, self._fairness.behind()
            self._running[id] = accepted
            self._fairness.launch(id, (id,), self._service(accepted) if self._fairness.contended else 0.0)
            if accepted.prompt.ttft < FOREVER and (behind is None or tenant in behind):
                self.margin.note(now <= accepted.prompt.arrival + accepted.prompt.ttft)

    def ended(self, id: int) -> None:
        """Forget a request."""
        if self._waiting.pop(id, None) is not None:
            self._fairness.leave(id)
        elif self._running.pop(id, None) is not None:
            self._fairness.ended(id)

    def _lateness(self, accepted: _Accepted, now: float) -> float:
        """Return by how many seconds the worst target would be missed if the request was accepted; 0 or less: by none."""
        prompt = accepted.prompt
        ahead = self._in_turn([*self._waiting.values(), accepted])
        place, sequences = ahead.index(accepted), self._together(prompt.tpot)
        iteration = self._iteration(sequences)
        if prompt.tpot < FOREVER and self.clock.seconds(1, 1, prompt.tokens) > prompt.tpot:
            return max(prompt.tpot, 1.0)  # not even alone
        first_W = self._first_tokens(ahead, sequences, iteration)
        left_W = (np.array([each.prompt.arrival + each.prompt.ttft for each in ahead]) - now) * (1 - self.margin.value)
        # Behind it come those that it delays, of whom those of other tenants have received more.
        delayed = [at for at in range(place, len(ahead)) if ahead[at].prompt.tenant == prompt.tenant]
        late = float((first_W - left_W)[delayed].max())
        if prompt.deadline < FOREVER:
            beside = self._iteration(min(sequences, len(self._running) + len(ahead)))
            end = float(first_W[place]) + beside * min(prompt.forecast[LONG], prompt.limit)
            late = max(late, end - (prompt.deadline - now))
        return late

    def _in_turn(self, waiting: Iterable[_Accepted]) -> list[_Accepted]:
        """Return them in the order in which they begin."""
        ahead = sorted(waiting, key=lambda each: (each.prompt.priority, each.due, each.prompt.id))
        return list(in_turn(ahead, self._fairness, self._service)) if self._fairness.contended else ahead

    def _most(self) -> int:
        """Return how many texts memory and places let run together."""
        memory, held = self._memory, max(self._held(), 1.0)
        return int(max(min(FULL * memory.pages * memory.page_tokens / held, memory.sequences, memory.step_tokens), 1))

    def _together(self, tpot: float) -> int:
        """Return how many texts run together where all are full."""
        most = self._most()
        targets = [tpot, *(each.prompt.tpot for each in (*self._running.values(), *self._waiting.values()))]
        tightest = min(targets)
        return max(bisect_right(range(1, most + 1), tightest, key=self._iteration), 1) if tightest < FOREVER else most

    def _iteration(self, sequences: float) -> float:
        """Return the seconds of an iteration of so many texts, with its share of prompts."""
        share = 1 + self._prompt / max(self._output, 1.0)
        return self.clock.seconds(sequences * share, sequences, sequences * self._held())

    def _held(self) -> float:
        """Return the tokens that a text holds on average: those that run, and for the rest of recent ones."""
        usual = self._prompt + GROWN * self._output
        running = [each.prompt.tokens + GROWN * each.output for each in self._running.values()]
        return max(sum(running) / len(running), usual) if running else usual

    def _first_tokens(self, ahead: list[_Accepted], sequences: int, iteration: float) -> Floats:
        """Return [W] the seconds until the first token of each, in this order."""
        tokens_W = np.array([each.prompt.tokens for each in ahead], float)
        wait_W = self._ends_before(ahead, sequences) * max(self._output, 1.0) * iteration / sequences
        read_W, alone_W = self._reading(np.cumsum(tokens_W), sequences), self._reading(tokens_W, sequences)
        first_W: Floats = np.maximum(read_W, wait_W + alone_W) + iteration
        return first_W

    def _ends_before(self, ahead: list[_Accepted], sequences: int) -> Floats:
        """Return [W] how many texts must end before each can run: so many that it seldom takes longer.

        Ends come one by one and at random, so that the time of k of them varies by about that of the square root of k.
        """
        held_W = np.array([each.prompt.tokens + GROWN * each.output for each in ahead])
        held = sum(each.prompt.tokens + GROWN * each.output for each in self._running.values())
        full = FULL * self._memory.pages * self._memory.page_tokens
        by_memory_W = (np.cumsum(held_W) + held - full) * sequences / full
        by_places_W = len(self._running) + 1.0 + np.arange(len(ahead)) - sequences
        if self._fairness.contended and sequences == self._most():  # else it is no place that is lacking
            owners = Counter(each.prompt.tenant for each in self._running.values())
            paused = {each.prompt.tenant: can_pause(each.prompt.tenant, owners, self._fairness) for each in ahead}
            by_places_W -= np.array([paused[each.prompt.tenant] for each in ahead])
        ends_W = np.maximum(np.maximum(by_memory_W, by_places_W), 0.0)
        seldom_W: Floats = ends_W + SELDOM * np.sqrt(ends_W)
        return seldom_W

    def _reading(self, tokens_W: Floats, sequences: int) -> Floats:
        """Return [W] the seconds in which so many tokens of prompts are read, beside the texts that run."""
        running = min(len(self._running), sequences)
        cached = running * (self._prompt + self._output / 2)
        tightest = min((each.prompt.tpot for each in self._running.values()), default=FOREVER)
        room = self._memory.step_tokens - running
        if tightest < FOREVER:
            seconds = tightest * (1 - self.margin.value)
            room = min(room, self.clock.most_queries(seconds, running, round(cached), running + room) - running)
        room = max(room, self._memory.page_tokens)
        whole_W, rest_W = np.divmod(tokens_W, room)
        full = self.clock.seconds(running + room, running, cached + room)
        last_W: Floats = self.clock.ratio * self.clock.cost.seconds(running + rest_W, running, cached + rest_W)  # type: ignore[arg-type]
        return whole_W * full + last_W
