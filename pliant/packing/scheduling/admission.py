"""Refuses at once the requests whose targets cannot be kept, by a forecast from those that wait and run.

Targets are seconds to the first token, and a token: who names one gets a promise, or is told at once. Who names a deadline
alone is never refused by a forecast: the scheduler starts whom it can still serve in time (targets.py).

The forecast is a fluid one. As many texts run together as memory, places and their paces allow; each runs for as many
iterations as its forecast output has tokens; prompts are read in the order in which first tokens are due. A request is
accepted if its own first token and those of all that are due later come in time, less a margin that adapts to what was
missed. It never waits for an iteration, so that a refusal takes no time.

Where there are several tenants, those that wait begin in the order in which they will be served (waiting_queue.py), and
texts of tenants that have received much more pause. So what others ask for beyond their shares refuses nobody: a promise to
a tenant beyond its share holds as long as the others leave it what it takes.

Shape suffix: W waiting requests.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from pliant.fairness import Fairness
from pliant.packing.scheduling.forecast import QUANTILES, Floats, mean, ordered
from pliant.packing.scheduling.iteration_cost import IterationCost
from pliant.packing.scheduling.request import FOREVER, Memory, Prompt
from pliant.packing.scheduling.targets import SHARE, Clock, Margin, due
from pliant.packing.scheduling.waiting_queue import SHARING, can_pause, in_turn, predicted_of

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
        if self._probes(now):
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

    def _probes(self, now: float) -> bool:
        """Whether a request is accepted to find out how fast the engine is: it is idle, and was not measured recently."""
        return not self._waiting and not self._running and now - self._learned_at > PROBES * self._within

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
        ahead = sorted(waiting, key=_order)
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


def _order(accepted: _Accepted) -> tuple[int, float, int]:
    return accepted.prompt.priority, accepted.due, accepted.prompt.id
