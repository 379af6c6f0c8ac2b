"""Generation in virtual time: the engine's own scheduler, with iterations that last as long as the profile says.

Between two decisions many iterations are alike, which `simulate` takes in one leap. With `leaps=False` it takes them
one by one, as a plain reference with the same results.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pliant.errors import InputError
from pliant.packing.scheduling.iteration_cost import IterationCost
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import FOREVER, Memory, Prompt, StepInput, StepPlan
from pliant.packing.scheduling.scheduler import PackingScheduler
from pliant.packing.scheduling.targets import Admission
from pliant.worlds import Course, FrontDoor

Observer = Callable[[float, StepInput, StepPlan, PackingScheduler], None]
Retry = Callable[[Prompt, float], tuple[Prompt, int] | None]
"""Returns the prompt that a client sends in place of one that was dropped at this time, and its output's tokens."""
LONGEST = 4096  # iterations in one leap


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of one prompt. Times are in seconds; NaN for what did not happen."""

    id: int
    arrival: float
    started: float  # first admitted
    first: float  # its first token
    ended: float
    prompt: int  # tokens
    generated: int
    preemptions: int = 0
    dropped: str = ""
    deadline: float = FOREVER


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a simulation."""

    fates: tuple[Fate, ...]  # by id
    seconds: float  # from the first arrival to the last end
    iterations: int
    batch: float  # mean sequences an iteration
    generated: int  # tokens of outputs
    recomputed: int  # tokens read again after their pages were discarded
    swapped: int  # tokens moved to the host
    safety: float  # at the end, in standard deviations


def simulate(
    prompts: Sequence[Prompt],
    lengths: Mapping[int, int],
    rules: Rules,
    memory: Memory,
    cost: IterationCost,
    leaps: bool = True,
    observe: Observer | None = None,
    admission: Admission | None = None,
    give_up: bool = False,
    course: Course | None = None,
    door: FrontDoor | None = None,
    retry: Retry | None = None,
) -> Run:
    """Generate `lengths[id]` tokens (at most the prompt's limit) for every prompt, until all are done.

    `observe` is called with every decision and the scheduler after it. `admission` refuses prompts when they arrive, as a
    service does; without it all are accepted. `give_up`: clients cancel what has not been admitted when its first token is
    due. `course`: the world in which iterations take their seconds; without it they take what `cost` says. `door`: what
    prompts and last tokens have to pass. `retry`: the prompt, with an id of its own, that a client sends in place of one
    that was refused or dropped at this time. Raises `InputError` for a prompt that can never
    run, a prompt without a length, and an id that occurs twice.
    """
    simulation = _Simulation(PackingScheduler(rules, memory), cost, observe, admission, give_up, course, door, retry)
    return simulation.run(prompts, lengths, leaps and course is None and door is None and retry is None)


@dataclass(slots=True)
class _Life:
    """The state of one prompt during a simulation."""

    prompt: Prompt
    length: int
    generated: int = 0
    started: float = float("inf")
    first: float = float("inf")
    ended: float = float("nan")
    preemptions: int = 0
    dropped: str = ""

    def fate(self) -> Fate:
        prompt, nan = self.prompt, float("nan")
        started, first = (x if x < float("inf") else nan for x in (self.started, self.first))
        fate = prompt.tokens, self.generated, self.preemptions, self.dropped, prompt.deadline
        return Fate(prompt.id, prompt.arrival, started, first, self.ended, *fate)


@dataclass(slots=True, eq=False)
class _Simulation:
    scheduler: PackingScheduler
    cost: IterationCost
    observe: Observer | None
    admission: Admission | None
    give_up: bool
    course: Course | None
    door: FrontDoor | None
    retry: Retry | None
    coming: list[tuple[float, int]] = field(default_factory=list)
    passed: deque[tuple[float, int]] = field(default_factory=deque)  # through the front door: when, and which
    lives: dict[int, _Life] = field(default_factory=dict)
    first_due: list[tuple[float, int]] = field(default_factory=list)  # of those that were accepted
    now: float = 0.0
    finished: tuple[int, ...] = ()
    iterations: int = 0
    sequences: int = 0
    moved: int = 0

    def run(self, prompts: Sequence[Prompt], lengths: Mapping[int, int], leaps: bool) -> Run:
        for prompt in prompts:
            self.scheduler.validate(prompt)
            length = lengths.get(prompt.id, 0)
            if length < 1:
                raise InputError(f"length of prompt {prompt.id}", length, "at least 1 token")
            self.lives[prompt.id] = _Life(prompt, min(length, prompt.limit))
        if len(self.lives) < len(prompts):
            raise InputError("ids", f"{len(self.lives)} for {len(prompts)} prompts", "all different")
        self.coming = [(prompt.arrival, prompt.id) for prompt in prompts]
        heapq.heapify(self.coming)
        began = self.now = min((prompt.arrival for prompt in prompts), default=0.0)
        while self.coming or self.passed or self.scheduler.waiting or self.scheduler.running:
            if not self.scheduler.waiting and not self.scheduler.running:
                self.now = max(self.now, self._next_arrival())
            arrived = self._arrived()
            gone = []  # clients cancel what waits when the time of its first token has passed
            while self.give_up and self.first_due and self.first_due[0][0] < self.now:
                life = self.lives[heapq.heappop(self.first_due)[1]]
                if life.started == float("inf") and not life.dropped:
                    life.dropped, life.ended = "given up", self.now
                    gone.append(life.prompt.id)
            step_input = StepInput(arrived, self.finished, tuple(gone))
            plan = self.scheduler.handle(step_input, self.now)
            if self.observe is not None:
                self.observe(self.now, step_input, plan, self.scheduler)
            self._iterate(plan)
            if self.admission is not None:
                self.admission.learn(self.scheduler.slowness, self.now)
            if leaps and not self.finished and self.scheduler.running:
                self._leap()
        fates = tuple(life.fate() for _, life in sorted(self.lives.items()))
        return Run(
            fates,
            seconds=self.now - began,
            iterations=self.iterations,
            batch=self.sequences / self.iterations if self.iterations else float("nan"),
            generated=sum(fate.generated for fate in fates),
            recomputed=self.scheduler.discarded,
            swapped=self.scheduler.swapped,
            safety=self.scheduler.safety,
        )

    def _next_arrival(self) -> float:
        """Return when the next prompt comes or has passed the front door; for ever without one."""
        coming = self.coming[0][0] if self.coming else np.inf
        return min(coming, self.passed[0][0]) if self.passed else coming

    def _arrived(self) -> tuple[Prompt, ...]:
        """Have what has come by now pass the front door, and return what has passed and is accepted."""
        while self.coming and self.coming[0][0] <= self.now:
            arrival, id = heapq.heappop(self.coming)
            self.passed.append((self.door.passes(arrival) if self.door is not None else arrival, id))
        accepted = []
        while self.passed and self.passed[0][0] <= self.now:
            at, id = self.passed.popleft()
            prompt = self.lives[id].prompt  # nothing has begun or ended since the last iteration
            if self.admission is None or self.admission.offer(prompt, at) is None:
                heapq.heappush(self.first_due, (prompt.arrival + prompt.ttft, id))
                accepted.append(prompt)
            else:
                self._drop(id, "refused", at)
        return tuple(accepted)

    def _drop(self, id: int, reason: str, at: float) -> None:
        """Give a prompt no more; its client may send another one."""
        life = self.lives[id]
        life.dropped, life.ended = reason, at
        again = self.retry(life.prompt, at) if self.retry is not None else None
        if again is not None:
            prompt, length = again
            self.lives[prompt.id] = _Life(prompt, min(length, prompt.limit))
            heapq.heappush(self.coming, (prompt.arrival, prompt.id))

    def _iterate(self, plan: StepPlan) -> None:
        """Carry out a plan: swapping and reading take their time, then every generating sequence has a token."""
        for id, reason in plan.dropped:
            if self.admission is not None:
                self.admission.ended(id)
            self._drop(id, reason, self.now)
        for id in (*plan.offloaded, *plan.discarded):
            self.lives[id].preemptions += 1
        for id in plan.admitted:
            self.lives[id].started = min(self.lives[id].started, self.now)
        scheduler, generating = self.scheduler, self.scheduler.generating()
        queries = len(generating) + sum(chunk.tokens - (chunk.id in generating) for chunk in plan.prefill_chunks)
        if queries:
            self.now += self.cost.swap_seconds(scheduler.swapped + scheduler.restored - self.moved)
            seconds = float(self.cost.seconds(queries, len(generating), scheduler.cached_tokens()))
            if self.course is not None:
                seconds = self.course.seconds(seconds, self.now, size=queries, length=scheduler.cached_tokens())
            self.now += seconds
            self.moved = scheduler.swapped + scheduler.restored
            self.iterations += 1
            self.sequences += scheduler.running - len(plan.stalled)
        self._make(generating, 1)

    def _make(self, generating: Collection[int], tokens: int) -> None:
        finished = []
        for id in generating:
            life = self.lives[id]
            begins = life.generated == 0
            life.first = min(life.first, self.now)
            life.generated += tokens
            if self.admission is not None and begins:
                self.admission.began(id, self.now)
            if life.generated == life.length:
                life.ended = self.door.passes(self.now) if self.door is not None else self.now
                finished.append(id)
                if self.admission is not None:
                    self.admission.ended(id)
        self.finished = tuple(finished)

    def _leap(self) -> None:
        """Take all iterations at once that decide nothing, up to the first end, arrival or deadline."""
        steps_until_decision = self.scheduler.steps_until_decision()
        if steps_until_decision < 1 or self._next_arrival() <= self.now or self.scheduler.next_deadline < self.now:
            return
        generating = self.scheduler.generating()
        limit = min(
            steps_until_decision, LONGEST, min(self.lives[id].length - self.lives[id].generated for id in generating)
        )
        cached = self.scheduler.cached_tokens() + len(generating) * np.arange(1, limit + 1)
        ends = self.now + np.cumsum(self.cost.seconds(len(generating), len(generating), cached))
        until_arrival = 1 + int(np.searchsorted(ends, self._next_arrival()))
        until_deadline = 1 + int(np.searchsorted(ends, self.scheduler.next_deadline, side="right"))
        count = min(limit, until_arrival, until_deadline)
        self.scheduler.skip_steps(count)
        self.now = float(ends[count - 1])
        self.iterations += count
        self.sequences += count * len(generating)
        self._make(generating, count)


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures of a run. A completion is the seconds from arrival to the last token, where nothing was dropped."""

    finished: int
    dropped: int
    sequences_per_second: float
    tokens_per_second: float  # of outputs
    completion: float  # mean
    p50: float
    p99: float
    per_token: float  # mean over sequences of seconds a token, from admission on
    preemptions: int
    recomputed: float  # tokens read again, as a share of all that were generated or read
    batch: float  # mean sequences an iteration


def summary(run: Run) -> Summary:
    """Return the figures of a run; NaN where no prompt finished."""
    done = [fate for fate in run.fates if not fate.dropped]
    completions = np.array([fate.ended - fate.arrival for fate in done])
    pace = [(fate.ended - fate.started) / fate.generated for fate in done]
    worked = run.generated + run.recomputed + sum(fate.prompt for fate in done)
    nan, seconds = float("nan"), max(run.seconds, 1e-12)
    return Summary(
        finished=len(done),
        dropped=len(run.fates) - len(done),
        sequences_per_second=len(done) / seconds,
        tokens_per_second=sum(fate.generated for fate in done) / seconds,
        completion=float(completions.mean()) if done else nan,
        p50=float(np.quantile(completions, 0.5)) if done else nan,
        p99=float(np.quantile(completions, 0.99)) if done else nan,
        per_token=float(np.mean(pace)) if done else nan,
        preemptions=sum(fate.preemptions for fate in run.fates),
        recomputed=run.recomputed / max(worked, 1),
        batch=run.batch,
    )
