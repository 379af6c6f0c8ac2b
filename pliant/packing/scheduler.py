"""The state machine of packing: who waits, who runs, what they hold and what is reserved, one decision an iteration.

Knows no clock, no model and no device: an engine (pliant/packing/runtime.py) or the simulator calls `handle` before every
iteration with what happened since, and carries the decision out. The choices themselves are policy.py's. After `handle`
the books stand as they will when the iteration has run.
"""

from __future__ import annotations

import heapq
from dataclasses import replace

import numpy as np

from pliant.errors import InputError
from pliant.packing import policy
from pliant.packing.forecast import Grid, mean
from pliant.packing.line import Line, Waiting
from pliant.packing.policy import Rules, View
from pliant.packing.recalibrate import Calibration
from pliant.packing.request import FOREVER, Chunk, Decision, Memory, Prompt, Round
from pliant.packing.running import Ints, Running

EVERY = 16  # iterations after which admission is looked at again although nothing has happened
GAIN = 0.1  # of the level of confidence, a preemption
LEVELS = (-2.0, 4.0)
RECENT = 0.02  # weight of one arrival in what is typical


class Packer:
    """Not thread-safe: one caller."""

    def __init__(self, rules: Rules, memory: Memory) -> None:
        self.rules, self.memory = rules, memory
        self.calibration = Calibration()
        self.level = rules.level
        self.host_used = 0  # pages
        self.discarded = self.swapped = self.restored = 0  # tokens: freed to be read again, to the host, and back
        self._grid = Grid(rules.context)
        self._line, self._running = Line(), Running()
        self._prompts: dict[int, Waiting] = {}  # of those that run: as they were admitted
        self._deadlines: list[tuple[float, int]] = []
        self._pages = 0
        self._turn = 0
        self._typical = 0.0
        self._since = EVERY
        self._idle: frozenset[int] = frozenset()
        self._reserves: list[tuple[int, int]] = []  # a heap over the line, with ids that may have left

    @property
    def waiting(self) -> int:
        return len(self._line)

    @property
    def running(self) -> int:
        return self._running.count

    @property
    def pages_used(self) -> int:
        return self._pages

    def held(self, id: int) -> int:
        """Pages of one sequence; 0 for one that does not run."""
        if id not in self._running:
            return 0
        return self.memory.need(int(self._running.column("cached")[self._running.at(id)]))

    def refuse(self, prompt: Prompt) -> None:
        """Raises `InputError` for a prompt that can never run."""
        if prompt.tokens < 1:
            raise InputError("prompt", f"{prompt.tokens} tokens", "at least 1 token")
        if prompt.limit < 1:
            raise InputError("max_tokens", prompt.limit, "at least 1")
        whole = prompt.tokens + prompt.limit
        if whole > self.rules.context:
            raise InputError("prompt and max_tokens", f"{whole} tokens", f"at most the context, {self.rules.context}")
        if self.memory.need(whole) > self.memory.pages:
            most = self.memory.pages * self.memory.page_tokens
            raise InputError("prompt and max_tokens", f"{whole} tokens", f"at most what the cache holds, {most}")

    def handle(self, round: Round, now: float) -> Decision:
        """What the next iteration does. `now` never goes back. Raises `InputError` from `refuse`, nothing changed."""
        for prompt in round.arrived:
            self.refuse(prompt)
        self._end(round)
        for prompt in round.arrived:
            self._arrive(prompt)
        self._since += 1
        if round.arrived or round.finished or round.cancelled:
            self._since = EVERY
        dropped = self._late(now)
        offloaded, discarded = self._make_room()
        admitted = [] if offloaded or discarded else self._admit()
        chunks, idle = self._read()
        return Decision(dropped, offloaded, discarded, tuple(admitted), chunks, idle)

    def quiet(self) -> int:
        """So many further iterations `handle` would decide nothing, if nothing happened (deadlines aside)."""
        if (self._running.column("unread") > 0).any() or self._running.count > self.memory.step_tokens:
            return 0
        most = EVERY - 1 - self._since if len(self._line) else 1 << 20
        if self.rules.policy == "s3" and self._running.count:
            spare = self._running.column("reserved") - self._running.column("cached")
            most = min(most, int(spare.min()))
        return self._fitting(max(most, 0))

    def advance(self, iterations: int) -> None:
        """As many calls of `handle` with an empty round as `quiet` allows, at once."""
        assert iterations <= self.quiet()
        self._since += iterations
        self._running.column("cached")[:] += iterations
        self._running.column("made")[:] += iterations
        self._pages = self._running.held(self.memory.page_tokens)

    @property
    def next_deadline(self) -> float:
        return self._deadlines[0][0] if self._deadlines else FOREVER

    def making(self) -> set[int]:
        """Those that make a token in the coming iteration."""
        read = self._running.column("unread") == 0
        return set(self._running.column("id")[read].tolist()) - self._idle

    def cached_tokens(self) -> int:
        """Of all that run."""
        return int(self._running.column("cached").sum())

    def check(self) -> None:
        """Raises AssertionError where the books do not balance."""
        running, memory = self._running, self.memory
        assert self._pages == self._running.held(self.memory.page_tokens), "pages of the running sequences"
        assert 0 <= self._pages <= int(self._needed(0).sum()) <= memory.pages, f"{self._pages} of {memory.pages} pages"
        assert running.count <= memory.sequences
        assert not [id for id in running.ids() if id in self._line], "both waiting and running"
        assert set(running.ids()) == set(self._prompts)
        hosted = sum(memory.need(waiting.cached) for waiting in self._line if waiting.cached)
        assert hosted == self.host_used <= memory.host_pages, "pages on the host"
        held = running.column("cached") + running.column("unread")
        assert (held <= running.column("prompt") + running.column("made")).all(), "more cached than there is"
        if self.rules.policy in policy.RESERVING:
            assert self._reserved() <= memory.pages, "more reserved than there is"
            assert (running.column("cached") <= running.column("reserved")).all(), "beyond what is reserved"

    def _needed(self, more: int) -> Ints:
        return self._running.needed(more, self.memory.page_tokens)

    def _fitting(self, most: int) -> int:
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            if int(self._needed(middle).sum()) <= self.memory.pages:
                low = middle
            else:
                high = middle - 1
        return low

    def _end(self, round: Round) -> None:
        for id in round.finished:
            values, waiting = self._leave(id), self._prompts.pop(id)
            if self.rules.recalibrate:
                self.calibration = self.calibration.after(waiting.forecast, values["made"])
            self._steer(-GAIN * self.rules.target)
        for id in round.cancelled:
            self._forget(id)

    def _forget(self, id: int) -> None:
        if id in self._line:
            self.host_used -= self.memory.need(self._line.remove(id).cached)
        elif id in self._running:
            self._leave(id)
            del self._prompts[id]

    def _leave(self, id: int) -> dict[str, int]:
        values = self._running.remove(id)
        self._pages -= self.memory.need(values["cached"])
        return values

    def _steer(self, by: float) -> None:
        self.level = min(max(self.level + by, LEVELS[0]), LEVELS[1])

    def _arrive(self, prompt: Prompt) -> None:
        forecast = self.calibration.apply(prompt.forecast, prompt.limit)
        reserved = policy.reserve(self.rules, prompt)
        holds = prompt.tokens + 0.5 * mean(forecast)
        self._typical += (RECENT if self._typical else 1.0) * (holds - self._typical)
        where = policy.place(self.rules, prompt, forecast, reserved, self._typical)
        self._wait(Waiting(prompt, where, forecast, reserved, unread=prompt.tokens))
        if prompt.deadline < FOREVER:
            heapq.heappush(self._deadlines, (prompt.deadline, prompt.id))

    def _wait(self, waiting: Waiting) -> None:
        self._line.add(waiting)
        if self.rules.policy in policy.RESERVING:
            heapq.heappush(self._reserves, (waiting.reserve, waiting.prompt.id))

    def _smallest(self) -> int:
        while self._reserves and self._reserves[0][1] not in self._line:
            heapq.heappop(self._reserves)
        return self._reserves[0][0] if self._reserves else 0

    def _late(self, now: float) -> tuple[tuple[int, str], ...]:
        dropped = []
        while self._deadlines and self._deadlines[0][0] < now:
            id = heapq.heappop(self._deadlines)[1]
            if id in self._line or id in self._running:
                dropped.append((id, "late"))
                self._forget(id)
        return tuple(dropped)

    def _make_room(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        chosen = policy.outgrown(self.rules, self._running)
        if not chosen:
            chosen = policy.victims(self.rules, self._running, self._needed(1), self.memory.pages)
        offloaded = [id for id in chosen if self._preempt(id)]
        return tuple(offloaded), tuple(id for id in chosen if id not in offloaded)

    def _preempt(self, id: int) -> bool:
        """Back into the line; whether its pages go to the host."""
        values, waiting = self._leave(id), self._prompts.pop(id)
        pages = self.memory.need(values["cached"])
        kept = 0 < pages <= self.memory.host_pages - self.host_used
        reserved = waiting.reserve
        if self.rules.policy == "s3":
            reserved = policy.doubled(self.rules, waiting.prompt, reserved)
        whole = waiting.prompt.tokens + values["made"]
        cached, unread = (values["cached"], values["unread"]) if kept else (0, whole)
        if kept:
            self.host_used += pages
            self.swapped += cached
        else:
            self.discarded += values["cached"]
        where = waiting.place
        if self.rules.policy == "s3":
            where = (0, -float(reserved), id)
        self._wait(replace(waiting, place=where, reserve=reserved, made=values["made"], cached=cached, unread=unread))
        self._steer(GAIN)
        return kept

    def _admit(self) -> list[int]:
        if self._since < EVERY or not len(self._line):
            return []
        self._since = 0
        running = self._running
        queries = self.memory.step_tokens - int(np.maximum(running.column("unread"), 1).sum())
        free = self.memory.pages - int(self._needed(1).sum())
        view = View(self.memory, free, self._reserved(), queries, self.level, running, self._grid)
        taken = policy.admit(self.rules, self._line, self._smallest(), view)
        for waiting in taken:
            self._start(waiting)
        if sum(max(waiting.unread, 1) for waiting in taken) >= queries:
            self._since = EVERY  # the queries ended it, not the pages
        return [waiting.prompt.id for waiting in taken]

    def _reserved(self) -> int:
        if self.rules.policy not in policy.RESERVING:
            return 0
        return int((-(-self._running.column("reserved") // self.memory.page_tokens)).sum())

    def _start(self, waiting: Waiting) -> None:
        id, prompt = waiting.prompt.id, waiting.prompt
        self._line.remove(id)
        if not waiting.turn:
            self._turn += 1
            waiting = replace(waiting, turn=self._turn)
        self.host_used -= self.memory.need(waiting.cached)
        self.restored += waiting.cached
        self._prompts[id] = waiting
        values = (id, waiting.made, waiting.cached, waiting.unread, prompt.limit, waiting.reserve, waiting.turn)
        self._running.add((*values, prompt.tokens), waiting.place[1], self._grid.row(waiting.forecast, prompt.limit))

    def _read(self) -> tuple[tuple[Chunk, ...], tuple[int, ...]]:
        """One token of each that generates, then prompts by turn, as far as the queries go; the books follow."""
        running = self._running
        unread, cached, made = (running.column(name) for name in ("unread", "cached", "made"))
        going, reading = running.by_turn(unread == 0), running.by_turn(unread > 0)
        now, idle = going[: self.memory.step_tokens], going[self.memory.step_tokens :].tolist()
        cached[now] += 1
        made[now] += 1
        queries, chunks = self.memory.step_tokens - len(now), []
        for at in reading.tolist():
            tokens = min(int(unread[at]), queries)
            if tokens == 0:
                idle.append(at)
                continue
            chunks.append(Chunk(int(running.column("id")[at]), tokens))
            cached[at] += tokens
            unread[at] -= tokens
            queries -= tokens
            made[at] += int(unread[at] == 0)
        self._pages = self._running.held(self.memory.page_tokens)
        left = tuple(int(running.column("id")[at]) for at in idle)
        self._idle = frozenset(left)
        return tuple(chunks), left
