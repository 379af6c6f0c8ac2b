"""Generation in virtual time: the same scheduler as the engine's, iterations that last what the profile says.

Between two decisions that change something many iterations are alike: `simulate` takes them in one leap. `leaps=False`
takes them one by one: the plain reference, which gives the same fates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pliant.errors import InputError
from pliant.packing.scheduling.iteration_cost import IterationCost
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory, Prompt, StepInput, StepPlan
from pliant.packing.scheduling.scheduler import PackingScheduler

Observer = Callable[[float, StepInput, StepPlan, PackingScheduler], None]
LONGEST = 4096  # iterations in one leap


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of one prompt. Times are seconds; NaN for what did not happen."""

    id: int
    arrival: float
    started: float  # first admitted
    first: float  # its first token
    ended: float
    prompt: int  # tokens
    made: int
    preemptions: int = 0
    dropped: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    fates: tuple[Fate, ...]  # by id
    seconds: float  # from the first arrival to the last end
    iterations: int
    batch: float  # mean sequences an iteration
    generated: int  # tokens of outputs
    recomputed: int  # tokens read again after their pages were discarded
    swapped: int  # tokens moved to the host
    level: float  # of confidence, at the end


def simulate(
    prompts: Sequence[Prompt],
    lengths: Mapping[int, int],
    rules: Rules,
    memory: Memory,
    steps: IterationCost,
    leaps: bool = True,
    observe: Observer | None = None,
) -> Run:
    """Generate `lengths[id]` tokens (the prompt's limit at most) for every prompt, until all are done.

    `observe` sees every decision as it is made, with the scheduler after it. Raises `InputError` for a prompt that can
    never run, for one without a length and for an id that two have.
    """
    simulation = _Simulation(prompts, lengths, PackingScheduler(rules, memory), steps, observe)
    simulation.run(leaps)
    return simulation.result()


@dataclass(slots=True)
class _Life:
    prompt: Prompt
    length: int
    made: int = 0
    started: float = float("inf")
    first: float = float("inf")
    ended: float = float("nan")
    preemptions: int = 0
    dropped: str = ""

    def fate(self) -> Fate:
        started, first = (x if x < float("inf") else float("nan") for x in (self.started, self.first))
        prompt = self.prompt
        return Fate(
            prompt.id,
            prompt.arrival,
            started,
            first,
            self.ended,
            prompt.tokens,
            self.made,
            self.preemptions,
            self.dropped,
        )


def _length(prompt: Prompt, lengths: Mapping[int, int]) -> int:
    length = lengths.get(prompt.id, 0)
    if length < 1:
        raise InputError(f"length of prompt {prompt.id}", length, "at least 1 token")
    return length


class _Simulation:
    def __init__(
        self,
        prompts: Sequence[Prompt],
        lengths: Mapping[int, int],
        packer: PackingScheduler,
        steps: IterationCost,
        observe: Observer | None,
    ) -> None:
        self.packer, self.steps, self.observe = packer, steps, observe
        self.coming = sorted(prompts, key=lambda prompt: (prompt.arrival, prompt.id))
        for prompt in prompts:
            packer.refuse(prompt)
        self.lives = {p.id: _Life(p, min(_length(p, lengths), p.limit)) for p in prompts}
        if len(self.lives) < len(prompts):
            raise InputError("ids", f"{len(self.lives)} for {len(prompts)} prompts", "all different")
        self.next = 0
        self.now = self.coming[0].arrival if prompts else 0.0
        self.finished: tuple[int, ...] = ()
        self.iterations = self.sequences = self.moved = 0

    def run(self, leaps: bool) -> None:
        while self.next < len(self.coming) or self.packer.waiting or self.packer.running:
            if not self.packer.waiting and not self.packer.running:
                self.now = max(self.now, self.coming[self.next].arrival)
            round_ = StepInput(self._arrived(), self.finished)
            decision = self.packer.handle(round_, self.now)
            if self.observe is not None:
                self.observe(self.now, round_, decision, self.packer)
            self._iterate(decision)
            if leaps and not self.finished and self.packer.running:
                self._leap()

    def result(self) -> Run:
        fates = tuple(life.fate() for _, life in sorted(self.lives.items()))
        return Run(
            fates,
            seconds=self.now - self.coming[0].arrival if self.coming else 0.0,
            iterations=self.iterations,
            batch=self.sequences / self.iterations if self.iterations else float("nan"),
            generated=sum(fate.made for fate in fates),
            recomputed=self.packer.discarded,
            swapped=self.packer.swapped,
            level=self.packer.level,
        )

    def _called(self, now: float) -> bool:
        """Whether the scheduler has something to look at."""
        arrived = self.next < len(self.coming) and self.coming[self.next].arrival <= now
        return arrived or self.packer.next_deadline < now

    def _arrived(self) -> tuple[Prompt, ...]:
        begin = self.next
        while self.next < len(self.coming) and self.coming[self.next].arrival <= self.now:
            self.next += 1
        return tuple(self.coming[begin : self.next])

    def _iterate(self, decision: StepPlan) -> None:
        """Carry the decision out: everything that moves or is read takes its time, then each one has its token."""
        for id, reason in decision.dropped:
            self.lives[id].dropped, self.lives[id].ended = reason, self.now
        for id in (*decision.offloaded, *decision.discarded):
            self.lives[id].preemptions += 1
        for id in decision.admitted:
            self.lives[id].started = min(self.lives[id].started, self.now)
        packer, making = self.packer, self.packer.making()
        queries = len(making) + sum(chunk.tokens - (chunk.id in making) for chunk in decision.chunks)
        if queries:
            self.now += self.steps.swap_seconds(packer.swapped + packer.restored - self.moved)
            self.now += float(self.steps.seconds(queries, len(making), packer.cached_tokens()))
            self.moved = packer.swapped + packer.restored
            self.iterations += 1
            self.sequences += packer.running
        self._make(making, 1)

    def _make(self, making: Collection[int], tokens: int) -> None:
        finished = []
        for id in making:
            life = self.lives[id]
            life.first = min(life.first, self.now)
            life.made += tokens
            if life.made == life.length:
                life.ended = self.now
                finished.append(id)
        self.finished = tuple(finished)

    def _leap(self) -> None:
        """Iterations that decide nothing, up to the end of the first sequence, the next arrival or deadline."""
        quiet = self.packer.quiet()
        if quiet < 1 or self._called(self.now):
            return
        making = self.packer.making()
        most = min(quiet, LONGEST, min(self.lives[id].length - self.lives[id].made for id in making))
        cached = self.packer.cached_tokens() + len(making) * np.arange(1, most + 1)
        ends = self.now + np.cumsum(self.steps.seconds(len(making), len(making), cached))
        arrival = self.coming[self.next].arrival if self.next < len(self.coming) else np.inf
        until_arrival = 1 + int(np.searchsorted(ends, arrival))
        until_deadline = 1 + int(np.searchsorted(ends, self.packer.next_deadline, side="right"))
        count = min(most, until_arrival, until_deadline)
        self.packer.advance(count)
        self.now = float(ends[count - 1])
        self.iterations += count
        self.sequences += count * len(making)
        self._make(making, count)


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures of a run. Seconds; a completion is from arrival to the last token; dropped prompts are in no completion."""

    finished: int
    dropped: int
    sequences_per_second: float
    tokens_per_second: float  # of outputs
    completion: float  # mean
    p50: float
    p99: float
    per_token: float  # mean over sequences of seconds a token, from admission on
    preemptions: int
    recomputed: float  # tokens read again, as a share of all that were made or read
    batch: float  # mean sequences an iteration


def summary(run: Run) -> Summary:
    done = [fate for fate in run.fates if not fate.dropped]
    completions = np.array([fate.ended - fate.arrival for fate in done])
    pace = [(fate.ended - fate.started) / fate.made for fate in done]
    worked = run.generated + run.recomputed + sum(fate.prompt for fate in done)
    nan, seconds = float("nan"), max(run.seconds, 1e-12)
    return Summary(
        finished=len(done),
        dropped=len(run.fates) - len(done),
        sequences_per_second=len(done) / seconds,
        tokens_per_second=sum(fate.made for fate in done) / seconds,
        completion=float(completions.mean()) if done else nan,
        p50=float(np.quantile(completions, 0.5)) if done else nan,
        p99=float(np.quantile(completions, 0.99)) if done else nan,
        per_token=float(np.mean(pace)) if done else nan,
        preemptions=sum(fate.preemptions for fate in run.fates),
        recomputed=run.recomputed / max(worked, 1),
        batch=run.batch,
    )
