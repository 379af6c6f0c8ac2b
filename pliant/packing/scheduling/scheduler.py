"""The scheduler of packing: a state machine of waiting and running sequences that plans one iteration at a time.

An engine (pliant/packing/engine/runtime.py) or the simulator calls `handle` before every iteration with what happened
since the last one, and carries out the plan that it gets. The choices themselves are made in policies.py. After `handle`
the state is the one that will hold when the iteration has run. Knows no clock, no model and no device.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pliant.fairness import Fairness
from pliant.packing.scheduling.common_pages import CommonPages
from pliant.packing.scheduling.forecast import Calibration, Grid, Past, mean
from pliant.packing.scheduling.policies import make, size
from pliant.packing.scheduling.policy import Recent, Rules, Safety, View
from pliant.packing.scheduling.request import (
    Chunk,
    Correction,
    Memory,
    Prompt,
    StepInput,
    StepPlan,
    check_distinct,
    check_length,
    validate,
)
from pliant.packing.scheduling.running import Ints, Reading, Running
from pliant.packing.scheduling.targets import InTime, Pace
from pliant.packing.scheduling.waiting_queue import (
    SHARING,
    Deadlines,
    Delays,
    InOrder,
    Waiting,
    WaitingQueue,
    beyond_places,
    predicted,
    received,
    with_places,
)

ADMIT_EVERY = 16  # iterations after which admission is tried again although nothing has happened
RECENT = 0.02  # weight of the latest request in the recent means of size and delay


class PackingScheduler:
    """Plans iterations within `memory` by the policy of `rules`. Not thread-safe."""

    def __init__(self, rules: Rules, memory: Memory) -> None:
        self.rules, self.memory, self._policy = rules, memory, make(rules)
        self.calibration = Calibration()
        self.host_used = 0  # pages
        self.discarded = 0  # tokens so far whose pages were freed, to be read again
        self.swapped = 0  # tokens so far that went to the host
        self.restored = 0  # tokens so far that came back from it
        self._grid = Grid(rules.context)
        self._queue, self._running, self._common = WaitingQueue(), Running(), CommonPages()
        self._past = Past(self._grid)
        self._prompts: dict[int, Waiting] = {}  # the running ones, as they were when admitted
        self._paused: set[int] = set()  # running ones that have no place in the coming iteration
        self._places = min(memory.sequences, memory.step_tokens)  # so that every one can read its token
        self._shares = self._policy.shares and rules.share
        self._fairness = Fairness(SHARING)
        self._deadlines = Deadlines()
        self._pace = Pace(rules.cost if self._policy.targets else None)
        self._in_time = InTime(self._pace.clock, self._grid)
        self._safety = Safety(rules, self._pace.clock)
        self._reading = Reading(memory, self._running, self._common, self._shares)
        self._pages = 0
        self._turn = 0
        self._typical = 0.0
        self._delays = Delays(RECENT)
        self._since = ADMIT_EVERY

    @property
    def safety(self) -> float:
        """Return the standard deviations of the predicted pages that must fit."""
        return self._safety.value

    @property
    def slowness(self) -> float:
        """Return how long iterations take over what the rules' cost says, recently; 1 where it says nothing."""
        return self._pace.slowness

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def running(self) -> int:
        return self._running.count

    @property
    def pages_used(self) -> int:
        """Return the pages of the running sequences, each counted once."""
        return self._pages

    @property
    def tokens_taken(self) -> int:
        """Return the tokens so far that sequences did not read, since others had."""
        return self._reading.taken

    def pages_used_without(self, ids: Sequence[int]) -> int:
        """Return what `pages_used` will be when these sequences have ended."""
        running = self._running
        alone = {id: self.pages_of(id) - int(running.column("common")[running.at(id)]) for id in ids if id in running}
        return self._pages - sum(alone.values()) - self._common.used + self._common.used_without(ids)

    def pages_of(self, id: int) -> int:
        """Return the pages of one sequence, those that others use too included; 0 if it does not run."""
        if id not in self._running:
            return 0
        return self.memory.need(int(self._running.column("cached")[self._running.at(id)]))

    @property
    def paused(self) -> frozenset[int]:
        """Return the running sequences that have no place in the coming iteration."""
        return frozenset(self._paused)

    def held(self, id: int) -> Correction | None:
        """Return what a running sequence holds after the planned iteration; None if it does not run."""
        return self._reading.held(id) if id in self._running else None

    def validate(self, prompt: Prompt) -> None:
        """Raises `InputError` for a prompt that can never run. Any thread may call this."""
        validate(prompt)
        self._policy.reserve(prompt)
        check_length(prompt, self.rules.context, self.memory)

    def handle(self, step_input: StepInput, now: float) -> StepPlan:
        """Return the plan of the next iteration. `now`, in seconds, never goes back.

        Raises `InputError` as `validate` does, for an id that still waits or runs, and for a correction of a sequence that
        does not run or of more tokens than it can have; nothing has changed then.
        """
        for prompt in step_input.arrived:
            self.validate(prompt)
        check_distinct(step_input, lambda id: self._known(id) is not None)
        self._pace.end(now)
        if step_input.corrected:
            self._reading.correct(step_input.corrected, self._prompts)
            self._pages = self._held_pages()
        self._end(step_input, now)
        for prompt in step_input.arrived:
            self._arrive(prompt)
        self._since += 1
        if step_input.arrived or step_input.finished or step_input.cancelled:
            self._since = ADMIT_EVERY
        dropped = self._late(now)
        if dropped or not self._running.count:
            self._since = ADMIT_EVERY
        offloaded, discarded = self._make_room()
        admitted = [] if offloaded or discarded else self._admit(now)
        excess = self._running.count - self._places
        self._paused = beyond_places(excess, self._prompts, self._fairness, self._owner) if excess > 0 else set()
        prefill_chunks, stalled = self._read(now)
        forgotten = self._count_pages()
        return StepPlan(dropped, offloaded, discarded, tuple(admitted), prefill_chunks, stalled, forgotten)

    def _read(self, now: float) -> tuple[tuple[Chunk, ...], tuple[int, ...]]:
        """Share out the tokens of the next iteration. Returns the chunks of prompts, and the ids left out."""
        decoding = self._reading.generating(self._paused)
        most = self._pace.most_tokens(self._running, decoding, now, self.memory)
        chunks, stalled = self._reading.share_out(self._paused, self._prompts, most, self._pace.binds)
        generating = self.generating()
        begun = sum(chunk.id in generating for chunk in chunks)
        self._pace.begin(now, generating, sum(chunk.tokens for chunk in chunks), begun, self.cached_tokens())
        return chunks, stalled

    def steps_until_decision(self) -> int:
        """Return for how many iterations `handle` would decide nothing if nothing happened, deadlines aside."""
        if self._pace.binds:
            return 0
        if (self._running.column("unread") > 0).any():
            return 0
        most = ADMIT_EVERY - 1 - self._since if len(self._queue) else 1 << 20
        steps = self._policy.steps_until_outgrown(self._running)
        if steps is not None:
            most = min(most, steps)
        return self._fitting(max(most, 0))

    def skip_steps(self, iterations: int) -> None:
        """Do at once what so many calls of `handle` with an empty input do: at most `steps_until_decision()`
        iterations.
        """
        assert iterations <= self.steps_until_decision()
        self._since += iterations
        self._pace.skip()
        generating = self._reading.generating(self._paused)
        self._running.column("cached")[generating] += iterations
        self._running.column("generated")[generating] += iterations
        self._count_pages()

    @property
    def next_deadline(self) -> float:
        return self._deadlines.next

    def generating(self) -> set[int]:
        """Return the ids that generate a token in the coming iteration."""
        return set(
            self._running.column("id")[(self._running.column("unread") == 0) & self._running.but(self._paused)].tolist()
        )

    def cached_tokens(self) -> int:
        """Return the tokens of all running sequences in the cache."""
        return int(self._running.column("cached").sum())

    def check(self) -> None:
        """Raises AssertionError where the state contradicts itself."""
        running, memory = self._running, self.memory
        assert self._pages == self._held_pages(), "pages of the running sequences"
        assert 0 <= self._pages <= self._total(0) <= memory.pages, f"{self._pages} of {memory.pages} pages"
        assert self._pages + self._common.unused <= memory.pages, "more known pages than there is room for"
        self._common.check(running.ids())
        assert running.count - len(self._paused) <= self._places and self._paused <= set(running.ids())
        assert not [id for id in running.ids() if id in self._queue], "both waiting and running"
        assert set(running.ids()) == set(self._prompts)
        self._fairness.check([waiting.prompt.id for waiting in self._queue])
        on_host = sum(memory.need(waiting.cached) for waiting in self._queue if waiting.cached)
        assert on_host == self.host_used <= memory.host_pages, "pages on the host"
        held = running.column("cached") + running.column("unread")
        assert (held <= running.column("prompt") + running.column("generated")).all(), "more cached than there is"
        if self._policy.reserves:
            assert self._reserved() <= memory.pages, "more reserved than there is"
            over = running.column("id")[running.column("cached") > running.column("reserved")].tolist()
            if self._policy.needs_exact:  # an engine that works ahead learns of an end later, and has more tokens
                generated = {id: running.column("generated")[running.at(id)] for id in over}
                over = [id for id in over if generated[id] <= self._prompts[id].prompt.exact]
            assert not over, "beyond what is reserved"

    def _needed(self, more: int) -> Ints:
        """Return [N] the pages of each running sequence alone (see `Running.needed`)."""
        return self._running.needed(more, self.memory.page_tokens)

    def _total(self, more: int) -> int:
        """Return the pages of all running sequences together (see `Running.needed`)."""
        return int(self._needed(more).sum()) + self._common.used

    def _held_pages(self) -> int:
        return self._running.pages_held(self.memory.page_tokens) + self._common.used

    def _count_pages(self) -> tuple[int, ...]:
        """Count the pages in use, and forget known ones where those need their space. Returns the numbers of those."""
        self._pages = self._held_pages()
        return self._common.forget(self.memory.pages - self._pages) if self._common.unused else ()

    def _fitting(self, most: int) -> int:
        """Return the largest number of iterations, up to `most`, after which all sequences still fit into the pages."""
        return bisect_right(range(1, most + 1), self.memory.pages, key=self._total)

    def _known(self, id: int) -> Waiting | None:
        return self._queue[id] if id in self._queue else self._prompts.get(id)

    def _end(self, step_input: StepInput, now: float) -> None:
        for id in step_input.finished:
            values, waiting = self._leave(id), self._prompts.pop(id)
            self._pace.leave(id, values["generated"], now)
            self._in_time.leave(id, now)
            self._past.add(values["generated"])
            if self.rules.recalibrate:
                # Judged by the shifts of now: a forecast from before a long wait would go on moving them.
                used = self.calibration.apply(waiting.prompt.forecast, values["limit"])
                self.calibration = self.calibration.after(used, values["generated"], values["limit"])
            if len(self._queue):  # with an empty queue the safety holds nobody back
                self._safety.end(self._running.count, now)
        for id in step_input.cancelled:
            self._forget(id)

    def _forget(self, id: int) -> None:
        self._pace.leave(id)
        self._in_time.leave(id)
        if id in self._queue:
            self.host_used -= self.memory.need(self._queue.remove(id).cached)
            self._fairness.leave(id)
        elif id in self._running:
            self._leave(id)
            del self._prompts[id]

    def _leave(self, id: int) -> dict[str, int]:
        values = self._running.remove(id)
        used = self._common.used
        self._common.leave(id)
        self._pages -= self.memory.need(values["cached"]) - values["common"] + used - self._common.used
        self._fairness.ended(id, received(self.memory, self._prompts[id], values))
        return values

    def _arrive(self, prompt: Prompt) -> None:
        forecast = self.calibration.apply(prompt.forecast, prompt.limit)
        reserved = self._policy.reserve(prompt)
        self._typical += (RECENT if self._typical else 1.0) * (size(prompt, forecast) - self._typical)
        owner = self._owner(prompt)
        first = self._queue.first()
        online = first is not None and not first.prompt.offline  # somebody waits that is not of an offline batch
        if not prompt.offline and not (online and self._fairness.waits(owner)):
            self._delays.forget(owner)
        recent = Recent(self._typical, self._delays.of(owner))
        priority = self._policy.priority(prompt, forecast, reserved, recent)
        row = self._grid.row(forecast, prompt.limit)
        self._wait(Waiting(prompt, priority, row, reserved, unread=prompt.tokens))
        self._pace.arrive(prompt, mean(forecast))
        self._deadlines.add(prompt)
        self._in_time.arrive(prompt)

    def _wait(self, waiting: Waiting) -> None:
        prompt, contended = waiting.prompt, self._fairness.contended
        self._queue.add(waiting)
        self._fairness.join(prompt.id, self._owner(prompt), prompt.weight)
        if self._fairness.contended and not contended:  # what runs began while its tenant was the only one
            for id, running in self._prompts.items():
                self._fairness.charge(id, self._owner(running.prompt), predicted(self.memory, running))

    def _late(self, now: float) -> tuple[tuple[int, str], ...]:
        """Drop the requests whose deadline has passed, and return them with the reason: nobody waits for them any more."""
        late = self._deadlines.passed(now, self._known)
        for id in late:
            self._in_time.leave(id, now)
            self._forget(id)
        return tuple([(id, "late") for id in late])

    def _make_room(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Preempt for the next iteration. Returns the ids that go to the host, and those whose pages are discarded."""
        chosen = self._policy.outgrown(self._running)
        if not chosen:
            chosen = self._policy.victims(self._running, self._needed(1), self.memory.pages - self._common.used)
        offloaded = [id for id in chosen if self._preempt(id)]
        return tuple(offloaded), tuple(id for id in chosen if id not in offloaded)

    def _preempt(self, id: int) -> bool:
        """Put a sequence back into the queue. Returns whether its pages go to the host."""
        values, waiting = self._leave(id), self._prompts.pop(id)
        self._pace.preempt(id)
        generated, pages = values["generated"], self.memory.need(values["cached"])
        to_host = 0 < pages <= self.memory.host_pages - self.host_used
        cached, unread = (values["cached"], values["unread"]) if to_host else (0, waiting.prompt.tokens + generated)
        if to_host:
            self.host_used += pages
            self.swapped += cached
        else:
            self.discarded += values["cached"]
        waiting = replace(waiting, generated=generated, cached=cached, unread=unread)
        priority, reserved = self._policy.preempted(waiting)
        self._wait(replace(waiting, priority=priority, reserve=reserved))
        self._safety.preempt(values["cached"], to_host, self._running.count, self.cached_tokens())
        return to_host

    def _admit(self, now: float) -> list[int]:
        if self._since < ADMIT_EVERY or not len(self._queue):
            return []
        self._since = 0
        running = self._running
        # Where targets bind, prompts that are due earlier are read before those that have been admitted.
        reading = running.column("unread") if not self._pace.binds else 0 * running.column("unread")
        queries = self.memory.step_tokens - int(np.maximum(reading, 1).sum())
        queries += max(running.count - self._places, 0)  # as many pause
        free = self.memory.pages - self._total(1)
        queue, room = self._queue, self._places - running.count
        chances = self._in_time.chances(running, now, self._pace.prompt_share)
        if chances is not None:
            queue = InOrder(chances.best_first(queue))
        if self._fairness.several or (self._fairness.contended and room <= 0):
            owners = Counter(self._owner(waiting.prompt) for waiting in self._prompts.values())
            queue = InOrder(with_places(queue, self._fairness, self.memory, owners, self._places))
            room = len(list(queue))
        # Nobody pauses, and all read in the order in which they were admitted.
        at_once = self._shares and running.count + room <= self._places and not self._pace.binds
        state = (self.memory, free, self._reserved(), queries, room, self.safety, running, self._grid, self._common)
        view = View(*state, at_once, self._past, self._pace if self._pace.binds else None, chances)
        taken = self._policy.admit(queue, view)
        if chances is not None:
            self._in_time.start(taken, chances.of_started(taken))
        for waiting in taken:
            if not waiting.turn and not waiting.prompt.offline:
                self._delays.note(self._owner(waiting.prompt), now - waiting.prompt.arrival)
            self._start(waiting)
        if view.all_to_read(taken) >= queries:
            self._since = ADMIT_EVERY  # more might have fitted: the iteration was full, not the cache
        return [waiting.prompt.id for waiting in taken]

    def _owner(self, prompt: Prompt) -> str:
        """Return the tenant that a prompt counts for; all are the same to a policy that knows no tenants."""
        return prompt.tenant if self._policy.fair else ""

    def _reserved(self) -> int:
        if not self._policy.reserves:
            return 0
        return int((-(-self._running.column("reserved") // self.memory.page_tokens)).sum())

    def _start(self, waiting: Waiting) -> None:
        id, prompt = waiting.prompt.id, waiting.prompt
        self._queue.remove(id)
        self._fairness.launch(id, (id,), predicted(self.memory, waiting) if self._fairness.contended else 0.0)
        if not waiting.turn:
            self._turn += 1
            waiting = replace(waiting, turn=self._turn)
        self.host_used -= self.memory.need(waiting.cached)
        self.restored += waiting.cached
        self._prompts[id] = waiting
        self._pace.start(prompt)
        group, key, _ = waiting.priority
        values = (id, waiting.generated, waiting.cached, waiting.unread, prompt.limit, waiting.reserve, waiting.turn)
        self._running.add((*values, prompt.tokens, group), key, waiting.row)
