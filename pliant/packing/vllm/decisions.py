"""Connects the scheduler of packing with an engine that names its requests, and that may do otherwise than planned.

The engine says who came and who ended, gets a step to carry out, and reports what it did with it. Where that differs, the
scheduler's books are corrected before the next decision: a sequence that the engine left out or read differently by
`Correction`, one that it did not admit or preempted by itself as one that leaves and comes again. So every decision stands
in the journal with all that it was made from. Knows no engine; vLLM's is in adapter.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pliant.packing.scheduling.forecast import ordered
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Correction, Memory, Prompt, StepInput, StepPlan
from pliant.packing.scheduling.scheduler import PackingScheduler

Journal = Callable[[float, StepInput, StepPlan], None]


@dataclass(frozen=True, slots=True)
class Step:
    """What the next step of the engine is to do. Requests have their names."""

    preempted: tuple[str, ...]
    admitted: tuple[str, ...]  # in this order
    reading: Mapping[str, int]  # tokens to read of those that do not generate yet, in this order
    dropped: tuple[str, ...]  # their deadline has passed
    paused: frozenset[str] = frozenset()  # running, but out of this step for others


@dataclass(frozen=True, slots=True)
class State:
    """What a running request holds after a step, as the engine counts. `total`: tokens of its prompt and output, one that
    is being computed included; `cached`: those whose keys and values are computed.
    """

    cached: int
    total: int


@dataclass(slots=True)
class _Entry:
    """A request. `prompt`: as the scheduler last got it; `first`: its prompt's tokens before any came again."""

    name: str
    prompt: Prompt
    first: Prompt


class Decisions:
    """One engine's decisions. Not thread-safe."""

    def __init__(self, rules: Rules, memory: Memory, journal: Journal | None = None) -> None:
        self.scheduler, self._journal = PackingScheduler(rules, memory), journal
        self._by_name: dict[str, _Entry] = {}
        self._by_id: dict[int, _Entry] = {}
        self._next = 0
        self._arrived: dict[int, Prompt] = {}
        self._finished: list[int] = []
        self._cancelled: list[int] = []
        self._corrected: dict[int, Correction] = {}
        self._begun: set[int] = set()  # requests that have run
        self._expected: dict[str, int] = {}  # tokens of this step, where they are not one
        self.deviations = 0  # requests so far that the engine treated otherwise than planned

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __len__(self) -> int:
        return len(self._by_name)

    def longest(self, tokens: int, limit: int) -> int:
        """Return `limit`, or the most tokens that can follow a prompt of `tokens` within the context and the memory."""
        memory = self.scheduler.memory
        room = min(self.scheduler.rules.context, memory.pages * memory.page_tokens) - tokens
        return max(min(limit, room), 1)

    def roomy(self, prompts: Sequence[int]) -> bool:
        """Return whether prompts of so many tokens begin at once whatever is forecast: nobody waits, and half stays free."""
        scheduler = self.scheduler
        pages = scheduler.pages_used + sum(scheduler.memory.need(tokens) for tokens in prompts)
        return not scheduler.waiting and not self._arrived and 2 * pages <= scheduler.memory.pages

    def arrive(self, name: str, prompt: Prompt) -> None:
        """Add a request, whose prompt gets an id here. Raises `InputError` for one that can never run."""
        prompt = replace(prompt, id=self._next)
        self.scheduler.validate(prompt)
        self._next += 1
        entry = self._by_name[name] = self._by_id[prompt.id] = _Entry(name, prompt, prompt)
        self._arrived[prompt.id] = entry.prompt

    def reforecast(self, name: str, forecast: tuple[float, ...], bucket: int) -> None:
        """Give a request that has not run yet a forecast that came late: it leaves and comes again with that."""
        entry = self._by_name.get(name)
        if entry is None or entry.prompt.id in self._begun:
            return
        limit, id = entry.first.limit, entry.prompt.id
        new = replace(entry.first, forecast=ordered(forecast, limit), bucket=min(bucket, limit))
        if id not in self._arrived:
            self._cancelled.append(id)
        entry.first = entry.prompt = self._arrived[id] = new

    def end(self, name: str, generated: int, finished: bool) -> None:
        """Remove a request. `generated`: tokens of its output; `finished`: it has ended, and was not cancelled."""
        entry = self._by_name.pop(name, None)
        if entry is None:
            return
        id = entry.prompt.id
        del self._by_id[id]
        self._begun.discard(id)
        self._corrected.pop(id, None)
        if self._arrived.pop(id, None) is not None:
            return  # the scheduler never knew of it, or it came back and is cancelled already
        held = self.scheduler.held(id)
        if not finished or held is None:
            self._cancelled.append(id)
            return
        generated_here = entry.first.tokens + generated - entry.prompt.tokens
        if 0 < generated_here < held.generated:  # the engine had worked ahead
            self._corrected[id] = Correction(id, entry.prompt.tokens + generated_here - 1, 0, generated_here)
        self._finished.append(id)

    def decide(self, now: float) -> Step:
        """Return what the next step does. `now`, in seconds, never goes back."""
        news = tuple(self._arrived.values()), tuple(self._finished), tuple(self._cancelled)
        step_input = StepInput(*news, tuple(self._corrected.values()))
        plan = self.scheduler.handle(step_input, now)
        if self._journal is not None:
            self._journal(now, step_input, plan)
        for waiting in (self._arrived, self._finished, self._cancelled, self._corrected):
            waiting.clear()
        self._begun.update(plan.admitted)
        dropped = tuple(self._by_id[id].name for id, _ in plan.dropped)
        self._begun.difference_update(id for id, _ in plan.dropped)
        for name in dropped:
            del self._by_id[self._by_name.pop(name).prompt.id]
        reading = {self._by_id[chunk.id].name: chunk.tokens for chunk in plan.prefill_chunks}
        self._expected = dict.fromkeys((self._by_id[id].name for id in plan.stalled), 0) | reading
        preempted = tuple(self._by_id[id].name for id in plan.discarded)
        paused = frozenset(self._by_id[id].name for id in self.scheduler.paused)
        return Step(preempted, tuple(self._by_id[id].name for id in plan.admitted), reading, dropped, paused)

    def report(
        self,
        step: Step,
        running: Collection[str],
        tokens: Mapping[str, int],
        state: Callable[[str], State],
    ) -> None:
        """Take in what the engine did with a step.

        `running`: the names of those that run now; `tokens`: those of each in this step; `state` tells what one holds.
        """
        expected, doubtful = self._expected, list(step.admitted)
        if len(running) != self.scheduler.running:
            doubtful = list(self._by_name)
        else:
            doubtful += [name for name in running if tokens.get(name, 0) != expected.get(name, 1)]
        if doubtful:
            held = set(running)
            for name in dict.fromkeys(doubtful):
                self._compare(name, name in held, state)

    def review(self, running: Collection[str], state: Callable[[str], State]) -> None:
        """Take in what the engine did without a decision, such as steps while no requests are to begin."""
        for name in list(self._by_name):
            self._compare(name, name in running, state)

    def came_back(self, names: Iterable[str], state: Callable[[str], State]) -> None:
        """Note that the engine has preempted requests between two steps."""
        for name in names:
            self._compare(name, False, state)

    def _compare(self, name: str, runs: bool, state: Callable[[str], State]) -> None:
        entry = self._by_name.get(name)
        if entry is None or entry.prompt.id in self._arrived:
            return
        held = self.scheduler.held(entry.prompt.id)
        if held is None:
            assert not runs, f"{name} runs, but was not admitted"
            return
        now = state(name)
        if not runs:
            self._again(entry, now)
            return
        left, generated = now.total - now.cached, now.total - entry.prompt.tokens
        unread = left if left > 1 or not generated else 0
        real = Correction(entry.prompt.id, now.cached, unread, generated)
        if real != held:
            self.deviations += 1
            self._corrected[real.id] = real

    def _again(self, entry: _Entry, state: State) -> None:
        """Let a request that does not run, though the scheduler let it, leave and come again with what it has."""
        self.deviations += 1
        first, id = entry.first, entry.prompt.id
        done = state.total - first.tokens
        left = max(first.limit - done, 1)
        forecast = tuple(max(tokens - done, 1.0) for tokens in first.forecast)
        bucket, exact = (max(tokens - done, 1) if tokens else 0 for tokens in (first.bucket, first.exact))
        entry.prompt = replace(
            first, tokens=first.tokens + done, limit=left, forecast=forecast, bucket=bucket, exact=exact
        )
        self._cancelled.append(id)
        self._corrected.pop(id, None)
        self._arrived[id] = entry.prompt
