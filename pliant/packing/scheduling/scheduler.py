"""The state machine of packing: who waits, who runs, what they hold and what is reserved, one decision an iteration.

Knows no clock, no model and no device: an engine (pliant/packing/engine/runtime.py) or the simulator calls `handle` before
every iteration with what happened since, and carries the decision out. The choices themselves are policy.py's. After
`handle` the books stand as they will when the iteration has run.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import replace

import numpy as np

from pliant.errors import InputError
from pliant.packing.scheduling import policy
from pliant.packing.scheduling.forecast import Grid
from pliant.packing.scheduling.policy import Rules, View
from pliant.packing.scheduling.recalibrate import Calibration
from pliant.packing.scheduling.request import FOREVER, Chunk, Memory, Prompt, StepInput, StepPlan, sound
from pliant.packing.scheduling.running import Ints, Running
from pliant.packing.scheduling.waiting_queue import Waiting, WaitingQueue

EVERY = 16  # iterations after which admission is looked at again although nothing has happened
GAIN = 0.1  # of the level of confidence, a preemption that is read again
LEVELS = (-2.0, 4.0)  # below 0 more is admitted than is expected to fit: where preempting costs little
RECENT = 0.02  # weight of one arrival in what is typical


class PackingScheduler:
    """Not thread-safe: one caller."""

    def __init__(self, rules: Rules, memory: Memory) -> None:
        self.rules, self.memory = rules, memory
        self.calibration = Calibration()
        self.level = rules.level
        self.host_used = 0  # pages
        self.discarded = self.swapped = self.restored = 0  # tokens: freed to be read again, to the host, and back
        self._grid = Grid(rules.context)
        self._line, self._running = WaitingQueue(), Running()
        self._prompts: dict[int, Waiting] = {}  # of those that run: as they were admitted
        self._deadlines: list[tuple[float, int]] = []
        self._pages = 0
        self._turn = 0
        self._typical = self._delay = 0.0
        self._since = EVERY

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
        """Raises `InputError` for a prompt that can never run. Any thread may ask."""
        sound(prompt)
        policy.reserve(self.rules, prompt)
        whole = prompt.tokens + prompt.limit
        if whole > self.rules.context:
            raise InputError("prompt and max_tokens", f"{whole} tokens", f"at most the context, {self.rules.context}")
        if self.memory.need(whole) > self.memory.pages:
            most = self.memory.pages * self.memory.page_tokens
            raise InputError("prompt and max_tokens", f"{whole} tokens", f"at most what the cache holds, {most}")

    def handle(self, round: StepInput, now: float) -> StepPlan:
        """What the next iteration does. `now` never goes back.

        Raises `InputError`, nothing changed, from `refuse` and for an id that is still waiting or running.
        """
        for prompt in round.arrived:
            self.refuse(prompt)
        self._distinct(round)
        self._end(round)
        for prompt in round.arrived:
            self._arrive(prompt)
        self._since += 1
        if round.arrived or round.finished or round.cancelled:
            self._since = EVERY
        dropped = self._late(now)
        if dropped or not self._running.count:
            self._since = EVERY
        offloaded, discarded = self._make_room()
        admitted = [] if offloaded or discarded else self._admit(now)
        chunks, idle = self._read()
        return StepPlan(dropped, offloaded, discarded, tuple(admitted), chunks, idle)

    def quiet(self) -> int:
        """So many further iterations `handle` would decide nothing, if nothing happened (deadlines aside)."""
        if (self._running.column("unread") > 0).any():
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
        return set(self._running.column("id")[self._running.column("unread") == 0].tolist())

    def cached_tokens(self) -> int:
        """Of all that run."""
        return int(self._running.column("cached").sum())

    def check(self) -> None:
        """Raises AssertionError where the books do not balance."""
        running, memory = self._running, self.memory
        assert self._pages == self._running.held(self.memory.page_tokens), "pages of the running sequences"
        assert 0 <= self._pages <= int(self._needed(0).sum()) <= memory.pages, f"{self._pages} of {memory.pages} pages"
        assert running.count <= min(memory.sequences, memory.step_tokens)  # so whoever generates has its query
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

    def _distinct(self, round: StepInput) -> None:
        """An id may come again with the round that ends its sequence."""
        free = {*round.finished, *round.cancelled}
        for id, often in Counter(prompt.id for prompt in round.arrived).items():
            if often > 1 or (id not in free and self._known(id)):
                raise InputError("id", id, "one that neither waits nor runs")

    def _known(self, id: int) -> Waiting | None:
        return self._line[id] if id in self._line else self._prompts.get(id)

    def _end(self, round: StepInput) -> None:
        for id in round.finished:
            values, waiting = self._leave(id), self._prompts.pop(id)
            if self.rules.recalibrate:
                # Judged by what would be said now: a forecast from before a long wait would go on moving the shifts.
                said = self.calibration.apply(waiting.prompt.forecast, values["limit"])
                self.calibration = self.calibration.after(said, values["made"], values["limit"])
            if len(self._line):  # else the level is not what holds anybody back
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
        size = policy.size(prompt, forecast)
        self._typical += (RECENT if self._typical else 1.0) * (size - self._typical)
        where = policy.place(self.rules, prompt, forecast, reserved, self._typical, self._delay)
        row = self._grid.row(forecast, prompt.limit)
        self._line.add(Waiting(prompt, where, row, reserved, unread=prompt.tokens))
        if prompt.deadline < FOREVER:
            heapq.heappush(self._deadlines, (prompt.deadline, prompt.id))

    def _late(self, now: float) -> tuple[tuple[int, str], ...]:
        dropped = []
        while self._deadlines and self._deadlines[0][0] < now:
            id = heapq.heappop(self._deadlines)[1]
            known = self._known(id)  # an id may have ended before its deadline, and may be another prompt's by now
            if known is not None and known.prompt.deadline < now:
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
        made, pages = values["made"], self.memory.need(values["cached"])
        kept = 0 < pages <= self.memory.host_pages - self.host_used
        cached, unread = (values["cached"], values["unread"]) if kept else (0, waiting.prompt.tokens + made)
        if kept:
            self.host_used += pages
            self.swapped += cached
        else:
            self.discarded += values["cached"]
        where, reserved = waiting.place, waiting.reserve
        if self.rules.policy == "s3":
            reserved = policy.doubled(self.rules, waiting.prompt, reserved)
            where = (0, -float(reserved), id)
        self._line.add(replace(waiting, place=where, reserve=reserved, made=made, cached=cached, unread=unread))
        self._steer(GAIN * (self.rules.hosted if kept else 1.0))
        return kept

    def _admit(self, now: float) -> list[int]:
        if self._since < EVERY or not len(self._line):
            return []
        self._since = 0
        running = self._running
        queries = self.memory.step_tokens - int(np.maximum(running.column("unread"), 1).sum())
        free = self.memory.pages - int(self._needed(1).sum())
        view = View(self.memory, free, self._reserved(), queries, self.level, running, self._grid)
        taken = policy.admit(self.rules, self._line, view)
        for waiting in taken:
            if not waiting.turn and not waiting.prompt.offline:
                self._delay += RECENT * (now - waiting.prompt.arrival - self._delay)
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
        group, key, _ = waiting.place
        values = (id, waiting.made, waiting.cached, waiting.unread, prompt.limit, waiting.reserve, waiting.turn)
        self._running.add((*values, prompt.tokens, group), key, waiting.row)

    def _read(self) -> tuple[tuple[Chunk, ...], tuple[int, ...]]:
        """One token of each that generates, then prompts by turn, as far as the queries go; the books follow."""
        running = self._running
        unread, cached, made = (running.column(name) for name in ("unread", "cached", "made"))
        going = unread == 0
        reading = [] if going.all() else running.by_turn(~going).tolist()
        cached[going] += 1
        made[going] += 1
        queries, chunks, idle = self.memory.step_tokens - int(going.sum()), [], []
        for at in reading:
            id, tokens = int(running.column("id")[at]), min(int(unread[at]), queries)
            if tokens == 0:
                idle.append(id)
                continue
            chunks.append(Chunk(id, tokens))
            cached[at] += tokens
            unread[at] -= tokens
            queries -= tokens
            made[at] += int(unread[at] == 0)
        self._pages = self._running.held(self.memory.page_tokens)
        return tuple(chunks), tuple(idle)
