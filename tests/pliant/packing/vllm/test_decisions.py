"""The scheduler's books follow an engine that does otherwise than planned, and every request ends."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.packing.scheduling.journal import decode, encode, replay
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import FOREVER, Memory
from pliant.packing.scheduling.scheduler import PackingScheduler
from pliant.packing.vllm.decisions import Decisions, State, Step
from tests.fixtures.packing.samples import policies, prompt, seeds


@dataclass
class Sequence:
    """A request in the engine, which knows its limit and does not know its length."""

    prompt: int
    limit: int
    length: int  # tokens that it generates
    output: int = 0  # tokens that have come
    computed: int = 0
    coming: int = 0  # tokens on their way that count; 0 after a preemption, though they come yet
    stale: int = 0  # tokens on their way from before a preemption

    @property
    def total(self) -> int:
        return self.prompt + self.output + self.coming


@dataclass(frozen=True)
class Deviations:
    """How often the engine does otherwise: shares of the admitted, or of the steps."""

    refuse: float = 0.0
    find: float = 0.0  # beginnings of prompts in the cache
    chunk: float = 0.0  # a prompt is read in smaller pieces than there are tokens for
    pause: float = 0.0  # steps without new requests and without a decision
    reset: float = 0.0  # all running requests are preempted between two steps
    ahead: int = 0  # steps that are scheduled before the tokens of the last one have come
    short: int = 0  # pages fewer than the scheduler believes


class DeviatingEngine:
    """Runs requests by the decisions, and reports what it did. Raises AssertionError where the decisions cannot be."""

    def __init__(self, decisions: Decisions, memory: Memory, deviations: Deviations, rng: np.random.Generator) -> None:
        self._decisions, self._memory, self._deviations, self._rng = decisions, memory, deviations, rng
        self._pages = memory.pages - deviations.short
        self.requests: dict[str, Sequence] = {}
        self.running: list[str] = []
        self.ended: dict[str, str] = {}
        self.preempted = 0
        self._flying: deque[list[str]] = deque()  # who gets a token, by steps
        self._held: dict[str, int] = {}  # pages of the running ones
        self._late: list[str] = []

    def step(self, now: float) -> None:
        if self._rng.random() < self._deviations.pause:
            self._run(Step((), (), {}, ()))
            self._receive()
            self._decisions.review(self.running, self._state)
        elif self._rng.random() < self._deviations.reset:
            names, self.running = self.running, []
            self._preempt(names)
            self._decisions.came_back(names, self._state)
        step = self._decisions.decide(now)
        self._decisions.scheduler.check()
        stopped = {*step.preempted, *step.dropped}
        self._preempt([name for name in self.running if name in stopped])
        self.running = [name for name in self.running if name not in stopped]
        self._late += step.dropped
        place = {name: at for at, name in enumerate(step.reading)}
        self.running.sort(key=lambda name: place.get(name, -1))
        self._decisions.report(step, self.running, self._run(step), self._state)
        self._receive()

    def end(self, name: str, how: str) -> None:
        """Remove a request, wherever it is."""
        sequence = self.requests.pop(name)
        if name in self.running:
            self.running.remove(name)
        self._held.pop(name, None)
        self.ended[name] = how
        self._decisions.end(name, sequence.output, how == "finished")

    def _state(self, name: str) -> State:
        return State(self.requests[name].computed, self.requests[name].total)

    def _run(self, step: Step) -> dict[str, int]:
        budget, tokens, before = self._memory.step_tokens, {}, self.preempted
        for name in list(self.running):
            wanted = min(self._wanted(name), budget) if name in self.running else 0
            if wanted > 0 and self._make_room(name, wanted, tokens):
                tokens[name] = wanted
                budget -= wanted
        if self.preempted == before:  # else there is no room for anybody
            self._admit(step, tokens, budget)
        assert sum(tokens.values()) <= self._memory.step_tokens
        assert len(self.running) <= self._memory.sequences
        self._flying.append([name for name, count in tokens.items() if self._compute(name, count)])
        return tokens

    def _admit(self, step: Step, tokens: dict[str, int], budget: int) -> None:
        for name in step.admitted:
            sequence = self.requests[name]
            if sequence.stale or self._rng.random() < self._deviations.refuse:
                continue
            if self._rng.random() < self._deviations.find:
                pages = (sequence.total - 1) // self._memory.page_tokens
                sequence.computed = int(self._rng.integers(0, pages + 1)) * self._memory.page_tokens
            wanted = min(self._wanted(name), budget)
            if wanted <= 0 or len(self.running) == self._memory.sequences or not self._fits(name, wanted):
                sequence.computed = 0
                return
            self.running.append(name)
            tokens[name] = wanted
            budget -= wanted
            self._held[name] = self._memory.need(sequence.computed + wanted)

    def _wanted(self, name: str) -> int:
        sequence = self.requests[name]
        if sequence.output + sequence.coming == sequence.limit and sequence.total - sequence.computed <= 1:
            return 0  # its last token comes yet
        wanted = sequence.total - sequence.computed
        return int(self._rng.integers(1, wanted + 1)) if self._rng.random() < self._deviations.chunk else wanted

    def _fits(self, name: str, tokens: int) -> bool:
        needed = self._memory.need(self.requests[name].computed + tokens)
        others = sum(held for other, held in self._held.items() if other != name)
        return others + max(needed, self._held.get(name, 0)) <= self._pages

    def _make_room(self, name: str, wanted: int, tokens: dict[str, int]) -> bool:
        """Preempt the last one until there is room. Returns whether there is."""
        while not self._fits(name, wanted):
            last = self.running.pop()
            assert last not in tokens, "those that got tokens stand before"
            self._preempt([last])
            self.preempted += 1
            if last == name:
                return False
        self._held[name] = self._memory.need(self.requests[name].computed + wanted)
        return True

    def _preempt(self, names: list[str]) -> None:
        for name in names:
            sequence = self.requests[name]
            sequence.stale += sequence.coming
            sequence.coming = sequence.computed = 0
            self._held.pop(name, None)

    def _compute(self, name: str, count: int) -> bool:
        """Return whether a token comes of it."""
        sequence = self.requests[name]
        sequence.computed += count
        makes = sequence.computed == sequence.total
        sequence.coming += makes
        return makes

    def _receive(self) -> None:
        late, self._late = self._late, []
        for name in late:
            if name in self.requests:
                self.end(name, "late")
        while len(self._flying) > self._deviations.ahead:
            for name in self._flying.popleft():
                sequence = self.requests.get(name)
                if sequence is None:
                    continue  # aborted meanwhile
                if sequence.stale:
                    sequence.stale -= 1
                else:
                    sequence.coming -= 1
                sequence.output += 1
                if sequence.output == sequence.length:
                    self.end(name, "finished")


MOST = 4000  # steps
WHIMS = st.builds(
    Deviations,
    refuse=st.sampled_from((0.0, 0.3)),
    find=st.sampled_from((0.0, 0.5)),
    chunk=st.sampled_from((0.0, 0.3)),
    pause=st.sampled_from((0.0, 0.1)),
    reset=st.sampled_from((0.0, 0.05)),
    ahead=st.integers(0, 2),
    short=st.sampled_from((0, 3)),
)


def play(
    seed: int, policy: str, deviations: Deviations, aborts: float = 0.0, deadlines: float = 0.0, prefixes: bool = False
):
    """Return the engine, the decisions and the journal when every request has ended."""
    rng = np.random.default_rng(seed)
    context, page = int(rng.integers(16, 80)), int(rng.integers(1, 9))
    memory = Memory(
        -(-context // page) + deviations.short + int(rng.integers(0, 40)), page, 0, *rng.integers(4, 40, 2).tolist()
    )
    rules, journal = Rules(policy, context), []
    decisions = Decisions(rules, memory, lambda *entry: journal.append(entry))
    engine, coming, now, steps = DeviatingEngine(decisions, memory, deviations, rng), int(rng.integers(1, 30)), 0.0, 0
    while coming or engine.requests:
        while coming and rng.random() < 0.4:
            coming -= 1
            _arrive(engine, decisions, f"r{coming}", now, context, rng, deadlines, prefixes)
        engine.step(now)
        now, steps = now + 0.25, steps + 1
        if engine.requests and rng.random() < aborts:
            engine.end(str(rng.choice(list(engine.requests))), "aborted")
        assert steps < MOST, "no end of it"
    decisions.decide(now)
    decisions.scheduler.check()
    return engine, decisions, journal, PackingScheduler(rules, memory)


def _arrive(engine, decisions, name, now, context, rng, deadlines, prefixes):
    tokens = int(rng.integers(1, context))
    limit = int(rng.integers(1, context - tokens + 1))
    length = int(rng.integers(1, limit + 1))
    beginnings = ()
    if prefixes:
        pages = (tokens - 1) // decisions.scheduler.memory.page_tokens
        own = 100 * len(engine.requests)
        beginnings = (*range(min(pages, 4)), *range(own + 100, own + 96 + pages))
    request = prompt(
        0,
        tokens,
        limit,
        sorted(map(float, rng.integers(1, context, 8))),
        arrival=now,
        bucket=int(rng.integers(0, limit + 1)),
        exact=length,
        deadline=now + float(rng.exponential(5)) if rng.random() < deadlines else FOREVER,
        beginnings=beginnings,
    )
    engine.requests[name] = Sequence(tokens, limit, length)
    decisions.arrive(name, request)


@given(seeds, policies, WHIMS)
def test_whatever_the_engine_does_every_request_ends_and_the_journal_decides_the_same_again(seed, policy, deviations):
    engine, decisions, journal, fresh = play(seed, policy, deviations)
    assert set(engine.ended.values()) == {"finished"}
    assert (len(decisions), decisions.scheduler.running, decisions.scheduler.waiting) == (0, 0, 0)
    assert replay(fresh, journal) == journal
    assert [decode(encode(*entry)) for entry in journal] == journal


@given(seeds, policies, WHIMS)
def test_aborts_deadlines_and_common_beginnings_leave_nothing_behind(seed, policy, deviations):
    engine, decisions, journal, fresh = play(seed, policy, deviations, aborts=0.1, deadlines=0.3, prefixes=True)
    assert set(engine.ended.values()) <= {"finished", "aborted", "late"}
    assert (len(decisions), decisions.scheduler.running, decisions.scheduler.waiting) == (0, 0, 0)
    assert replay(fresh, journal) == journal


@given(seeds, policies, st.integers(0, 2))
def test_an_engine_that_does_as_planned_is_not_corrected(seed, policy, ahead):
    """Unless it works ahead, or one comes back: that one reads first in the books, and behind the running ones there."""
    _, decisions, journal, _ = play(seed, policy, Deviations(ahead=ahead))
    if not ahead and not any(plan.discarded for _, _, plan in journal):
        assert decisions.deviations == 0
        assert not any(step_input.corrected for _, step_input, _ in journal)


def engaged(policy: str = "paged", **rest):
    """Return decisions with one running request of 10 tokens that has just read them all."""
    decisions = Decisions(Rules(policy, 64), Memory(16, 4, **rest))
    decisions.arrive("a", prompt(0, 10, 20, exact=9))
    step = decisions.decide(0.0)
    assert step.admitted == ("a",) and step.reading == {"a": 10}
    decisions.report(step, ["a"], {"a": 10}, lambda name: State(10, 11))
    return decisions


def test_there_is_plenty_of_room_while_nobody_waits_and_half_the_pages_stay_free():
    decisions = engaged()  # three of 16 pages
    assert decisions.roomy([8, 12]) and not decisions.roomy([8, 13])
    decisions.arrive("b", prompt(1, 10, 20))
    assert not decisions.roomy([1]), "one has come, and nothing is decided yet"
    crowded = Decisions(Rules("paged", 64), Memory(16, 4, sequences=1))
    for name in "ab":
        crowded.arrive(name, prompt(0, 4, 4))
    crowded.decide(0.0)
    assert not crowded.roomy([1]), "one waits"


def test_a_late_request_is_dropped_once_and_forgotten():
    decisions = Decisions(Rules("paged", 64), Memory(16, 4))
    decisions.arrive("a", prompt(0, 10, 20, deadline=0.5))
    decisions.report(decisions.decide(0.0), ["a"], {"a": 10}, lambda name: State(10, 11))
    assert decisions.decide(0.6).dropped == ("a",)
    assert "a" not in decisions
    decisions.end("a", 1, False)
    assert decisions.decide(0.7).dropped == ()


def test_a_request_that_can_never_run_is_refused_and_leaves_no_trace():
    decisions = Decisions(Rules("oracle", 64), Memory(16, 4))
    with pytest.raises(InputError, match="exact"):
        decisions.arrive("a", prompt(0, 10, 20))
    assert "a" not in decisions and not decisions.decide(0.0).admitted


def test_the_limit_fits_into_context_and_memory():
    decisions = Decisions(Rules("paged", 100), Memory(16, 4))
    assert decisions.longest(10, 30) == 30
    assert decisions.longest(10, 99) == 54  # 64 tokens of memory
    assert Decisions(Rules("paged", 32), Memory(16, 4)).longest(10, 99) == 22
    assert decisions.longest(64, 5) == 1


@pytest.mark.parametrize("seen", [False, True])
def test_a_forecast_that_comes_late_counts_for_who_has_not_run(seen):
    journal = []
    decisions = Decisions(
        Rules("default", 64, reorder_patience=9.0), Memory(8, 4), lambda *entry: journal.append(entry)
    )
    decisions.arrive("runs", prompt(0, 12, 16, 16.0))
    decisions.decide(0.0)
    for name in ("long", "short"):
        decisions.arrive(name, prompt(0, 12, 16, 16.0, arrival=0.1))
    if seen:
        decisions.decide(0.1)
    decisions.reforecast("short", (2.0,) * 8, 3)
    decisions.reforecast("runs", (2.0,) * 8, 3)  # it runs already
    decisions.reforecast("nobody", (2.0,) * 8, 3)
    decisions.decide(0.2)
    arrived = journal[-1][1].arrived
    assert [(each.id, each.forecast[0], each.bucket) for each in arrived if each.id == 2] == [(2, 2.0, 3)]
    assert journal[-1][1].cancelled == ((2,) if seen else ())
    decisions.end("runs", 3, finished=True)
    decisions.end("long", 0, finished=False)
    assert decisions.decide(0.3).admitted == ("short",)
    decisions.reforecast("short", (9.0,) * 8, 0)
    assert decisions.decide(0.4).admitted == () and journal[-1][1].arrived == ()
    decisions.scheduler.check()
