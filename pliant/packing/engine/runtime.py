"""The engine: one thread that asks the scheduler, carries its decision out on the device, and reports what came of it.

Everything that others ask for goes through one inbox and is taken up before the next iteration; nobody waits for the
device. With `rules=None` the decisions are transformers' own scheduler's (first in, first out).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from pliant.errors import InputError, WorkerError
from pliant.packing.artifact import Generator
from pliant.packing.engine import sampling as seeded
from pliant.packing.engine.adapter import Step
from pliant.packing.engine.executor import executor
from pliant.packing.engine.model import vocabulary
from pliant.packing.engine.submission import Progress, Sampling, Status, Submission
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory, StepInput, StepPlan
from pliant.packing.scheduling.scheduler import PackingScheduler

__all__ = ["Engine", "Progress", "Sampling", "Status", "Submission"]

Deliver = Callable[[list[Progress]], None]
Journal = Callable[[float, StepInput, StepPlan], None]
MARGIN = 0.15  # of the pages, which transformers' scheduler keeps free by default
PATIENCE = 0.005  # seconds before the scheduler is asked again where everybody waits and nobody may run


@dataclass(slots=True)
class _Flight:
    """A text on its way. Only the engine's thread changes it."""

    submission: Submission
    since: float
    made: int
    started: float = 0.0  # 0: not yet
    preemptions: int = 0
    recomputed: int = 0

    def report(self, tokens: tuple[int, ...], finished: str, now: float) -> Progress:
        queued, id = (self.started or now) - self.since, self.submission.prompt.id
        return Progress(id, tokens, finished, queued, self.preemptions, self.recomputed, self.made)


class Engine:
    """Raises `InputError` for a memory or a model that the engine does not take.

    `deliver` is called in the engine's thread, once an iteration with the news of all, and must return at once.
    `journal` gets every (now, StepInput, StepPlan); an exception of either ends the engine. `sampling=False`: always greedy,
    without any work on the scores. `margin` is transformers' scheduler's. `clock` is the one of `Prompt.deadline`.
    `processes` above 1 share the model (parallel.py), each with `threads`; one that is lost ends the engine.
    """

    def __init__(
        self,
        generator: Generator,
        memory: Memory,
        rules: Rules | None,
        deliver: Deliver,
        device: str = "cpu",
        threads: int = 1,
        sampling: bool = True,
        journal: Journal | None = None,
        margin: float = MARGIN,
        clock: Callable[[], float] = time.monotonic,
        processes: int = 1,
    ) -> None:
        self._generator, self._memory, self._rules = generator, memory, rules
        self._deliver, self._journal, self._clock, self._threads = deliver, journal, clock, threads
        self._vocabulary, self._sampling = vocabulary(generator), sampling
        self._packer = PackingScheduler(
            rules or Rules("paged", generator.context), memory
        )  # without rules it only refuses
        self._batching = executor(generator, memory, sampling, None if rules else margin, device, processes)
        self._flights: dict[int, _Flight] = {}
        self._ended: list[int] = []  # which the scheduler has not been told
        self._known: set[int] = set()  # submitted and not ended; by all threads under the lock
        self._news: list[Progress] = []  # not yet told
        self._checks: list[Future[None]] = []  # asked for
        self._submitted: list[Submission] = []  # not yet taken up, like these:
        self._cancelled: list[int] = []
        self._wake, self._error, self._stopping, self._closed = threading.Condition(), "", False, False
        self._thread: threading.Thread | None = None
        self._iterations = self._tokens = self._sequences = self._preemptions = self._recomputed = 0
        self._busy = self._deciding = 0.0

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="packing engine", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; whatever is in flight is reported as cancelled."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread is None:
            self._batching.close()
        else:
            self._thread.join()

    def submit(self, submission: Submission) -> None:
        """Raises `InputError` for what can never run, `WorkerError` where the engine does not."""
        self._refuse(submission)
        with self._wake:
            if self._stopping or self._error:
                raise WorkerError(f"the engine has stopped: {self._error or 'it was told to'}")
            if submission.prompt.id in self._known:
                raise InputError("id", submission.prompt.id, "one that is not in flight")
            self._known.add(submission.prompt.id)
            self._submitted.append(submission)
            self._wake.notify()

    def cancel(self, id: int) -> None:
        """Its pages are free before the next iteration. Nothing happens where it has ended already."""
        with self._wake:
            self._cancelled.append(id)
            self._wake.notify()

    def check(self) -> None:
        """Raises AssertionError where the scheduler's books and the engine's pages differ. Waits for one iteration."""
        asked: Future[None] = Future()
        with self._wake:
            self._checks.append(asked)
            self._wake.notify()
            ended = self._closed or self._thread is None
        if ended and self._thread is not None:
            self._thread.join()
        if ended:
            self._answer()
        asked.result()

    def status(self) -> Status:
        running, waiting = self._packer.running, self._packer.waiting
        if self._rules is None:
            running = self._batching.running
            waiting = max(len(self._known) - running, 0)
        deciding = self._deciding + self._batching.scheduling
        return Status(
            self._alive, self._error, running, waiting, self._memory.pages, self._batching.pages_used,
            self._batching.swap_space.used, self._iterations, self._tokens, self._preemptions, self._recomputed,
            self._sequences, self._busy, deciding,
        )  # fmt: skip

    @property
    def _alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _refuse(self, submission: Submission) -> None:
        self._packer.refuse(submission.remaining())
        outside = next((id for id in submission.ids if not 0 <= id < self._vocabulary), None)
        if outside is not None:
            raise InputError("ids", outside, f"from 0 to {self._vocabulary - 1}")
        if submission.sampling.temperature > 0 and not self._sampling:
            raise InputError("temperature", submission.sampling.temperature, "0: this engine is greedy")

    def _run(self) -> None:
        try:
            self._batching.enter(self._threads)
            while self._wait():
                self._turn()
        except Exception as error:  # whatever the model or the device raised: it is said to all that wait
            with self._wake:
                self._error = f"{type(error).__name__}: {error}"
        self._end_all("failed" if self._error else "cancelled")

    def _wait(self) -> bool:
        """For something to do; False: to end."""
        with self._wake:
            asked = (self._submitted, self._cancelled, self._checks)
            while not (self._stopping or self._flights or self._ended or any(asked)):
                self._wake.wait()
            return not self._stopping

    def _turn(self) -> None:
        """One iteration with all that goes before and after it."""
        began, now = time.perf_counter(), self._clock()
        told = self._take_up(now)
        if self._rules is not None:
            self._decide(told, now)
        self._ended.clear()
        step = self._batching.step()
        self._record(step, now)
        self._answer()
        self._busy += time.perf_counter() - began
        self._tell()
        if not step.sequences and self._flights:
            with self._wake:
                self._wake.wait(PATIENCE)

    def _take_up(self, now: float) -> StepInput:
        """What came in; who was cancelled before anybody heard of it is not told on."""
        with self._wake:
            submitted, self._submitted = self._submitted, []
            cancelled, self._cancelled = self._cancelled, []
        gone = [id for id in dict.fromkeys(cancelled) if id in self._flights]
        fresh = [new for new in submitted if new.prompt.id not in cancelled]
        self._flights.update({new.prompt.id: _Flight(new, now, new.made) for new in submitted})
        for new in fresh:
            self._add(new)
        for id in dict.fromkeys(cancelled):
            self._batching.cancel(id)
            if id in self._flights:
                self._end(id, (), "cancelled", now)
        return StepInput(tuple(new.remaining() for new in fresh), tuple(self._ended), tuple(gone))

    def _add(self, submission: Submission) -> None:
        ends = () if submission.force else self._generator.ends
        told = seeded.arguments(submission.sampling, self._vocabulary)
        self._batching.add(submission.prompt.id, submission.ids, submission.most - submission.made, ends, told)

    def _decide(self, told: StepInput, now: float) -> None:
        began = time.perf_counter()
        decision = self._packer.handle(told, now)
        self._batching.carry_out(decision)
        self._deciding += time.perf_counter() - began
        if self._journal is not None:
            self._journal(now, told, decision)
        for id, reason in decision.dropped:
            self._end(id, (), reason, now)

    def _record(self, step: Step, now: float) -> None:
        self._iterations += step.sequences > 0
        self._sequences += step.sequences
        self._tokens += len(step.tokens)
        for id in step.started:
            self._flights[id].started = now
        for id, again in step.preempted:
            self._flights[id].preemptions += 1
            self._flights[id].recomputed += again
            self._preemptions, self._recomputed = self._preemptions + 1, self._recomputed + again
        for id, token, last in step.tokens:
            self._token(id, token, last, now)

    def _token(self, id: int, token: int, last: bool, now: float) -> None:
        flight = self._flights[id]
        flight.made += 1
        if not last:
            self._news.append(flight.report((token,), "", now))
            return
        self._ended.append(id)
        stopped = token in self._generator.ends and not flight.submission.force
        self._end(id, (token,), "stop" if stopped else "length", now)

    def _end(self, id: int, tokens: tuple[int, ...], how: str, now: float) -> None:
        with self._wake:
            self._known.discard(id)
        self._news.append(self._flights.pop(id).report(tokens, how, now))

    def _tell(self) -> None:
        news, self._news = self._news, []
        if news:
            self._deliver(news)

    def _end_all(self, how: str) -> None:
        """Of whatever is in flight and of what never reached the model. The books are closed where they can be relied on."""
        with self._wake:
            self._stopping = self._closed = True
        now = self._clock()
        self._flights.update({new.prompt.id: _Flight(new, now, new.made) for new in self._submitted})
        gone = tuple(self._flights)
        for id in gone:
            self._end(id, (), how, now)
            self._batching.cancel(id)
        if not self._error:
            self._packer.handle(StepInput((), tuple(self._ended), gone), now)
            self._ended.clear()
        self._answer()
        self._batching.close()
        self._tell()

    def _answer(self) -> None:
        with self._wake:
            checks, self._checks = self._checks, []
        for asked in checks:
            try:
                self._compare()
            except AssertionError as error:
                asked.set_exception(error)
            else:
                asked.set_result(None)

    def _compare(self) -> None:
        """After an iteration: the scheduler has not been told yet who ended in it."""
        self._batching.check()
        if self._rules is None or self._error:
            return
        self._packer.check()
        for id in self._flights:
            ours, theirs = self._packer.held(id), self._batching.held(id)
            assert ours == theirs, f"sequence {id}: {ours} pages in the books, {theirs} in the cache"
        ended = sum(self._packer.held(id) for id in self._ended)
        assert self._packer.pages_used == self._batching.pages_used + ended, "pages of all"
        assert self._packer.host_used == self._batching.swap_space.used, "pages on the host"
