"""The engine: one thread that asks the scheduler for a plan, runs it on the device, and reports the new tokens.

Calls from other threads go into an inbox that is emptied before each iteration, so that no caller waits for the device.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from pliant.device import is_out_of_memory
from pliant.errors import InputError, WorkerError
from pliant.packing.artifact import Generator
from pliant.packing.engine import sampling as seeded
from pliant.packing.engine.grammar import Grammars
from pliant.packing.engine.model import load_generator, vocabulary
from pliant.packing.engine.paged_engine import PagedEngine, StepResult
from pliant.packing.engine.submission import Progress, Sampling, Status, Submission, TokenLogprobs
from pliant.packing.scheduling.common_pages import beginnings
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory, Prompt, StepInput, StepPlan
from pliant.packing.scheduling.scheduler import PackingScheduler

__all__ = ["Engine", "Progress", "Sampling", "Status", "Submission"]

Deliver = Callable[[list[Progress]], None]
Journal = Callable[[float, StepInput, StepPlan], None]
PAUSE = 0.005  # seconds before the next iteration if sequences wait and none may run


@dataclass(slots=True)
class _InFlight:
    """A text in the engine, which the engine's thread alone changes."""

    submission: Submission
    since: float  # time of submission
    generated: int
    started: float = 0.0  # time of its first iteration; 0: not yet
    preemptions: int = 0
    recomputed: int = 0
    seconds: float = 0.0  # of the device since the last report
    costly: bool = False  # its grammar takes more time than it may
    logprobs: tuple[TokenLogprobs, ...] = ()  # not yet reported
    prompt_logprobs: dict[int, TokenLogprobs] = field(default_factory=dict)  # by place; reported with the first token

    def report(self, tokens: tuple[int, ...], finished: str, now: float) -> Progress:
        queued, id = (self.started or now) - self.since, self.submission.prompt.id
        seconds, self.seconds = self.seconds, 0.0
        logprobs, self.logprobs = self.logprobs, ()
        of_prompt: tuple[TokenLogprobs, ...] = ()
        if tokens and self.prompt_logprobs:
            of_prompt = tuple(known for _, known in sorted(self.prompt_logprobs.items()))
            self.prompt_logprobs = {}
        counts = self.preemptions, self.recomputed, self.generated
        return Progress(id, tokens, finished, queued, *counts, seconds, logprobs, of_prompt)


class Engine:
    """Generates texts in a thread of its own. Raises `InputError` for a memory or a model that it cannot use.

    `deliver` is called in that thread once an iteration, with the progress of all texts (which may be none: a sign of
    life), and must return at once.
    `journal` gets every (now, StepInput, StepPlan). An exception of either ends the engine. `sampling=False` always
    takes the likeliest token. `clock` gives seconds and is the one of `Prompt.deadline`.
    """

    def __init__(
        self,
        generator: Generator,
        memory: Memory,
        rules: Rules,
        deliver: Deliver,
        device: str = "cpu",
        threads: int = 1,
        sampling: bool = True,
        journal: Journal | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._generator, self._memory = generator, memory
        self._deliver, self._journal, self._clock, self._threads = deliver, journal, clock, threads
        self._vocabulary, self._sampling = vocabulary(generator), sampling
        self._scheduler = PackingScheduler(rules, memory)
        self._grammars = Grammars(generator.tokenizer, self._vocabulary, generator.ends)
        if generator.tokenizer:
            self._grammars.load()  # now, as it would hold up a running iteration
        self._paged = PagedEngine(load_generator(generator, device), memory, sampling, self._grammars)
        self._flights: dict[int, _InFlight] = {}
        self._ended: list[int] = []  # ids that the scheduler does not know of yet
        self._known: set[int] = set()  # ids submitted and not ended; used by all threads, under the lock
        self._news: list[Progress] = []  # not yet delivered
        self._checks: list[Future[None]] = []  # with the two lists below the inbox, under the lock
        self._submitted: list[Submission] = []
        self._cancelled: list[int] = []
        self._wake, self._error, self._stopping, self._closed = threading.Condition(), "", False, False
        self._out_of_memory = False
        self._thread: threading.Thread | None = None
        self._iterations = self._tokens = self._sequences = self._preemptions = self._recomputed = 0
        self._busy = self._deciding = 0.0
        self._secret = secrets.token_bytes(32)

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="packing engine", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread. Texts in the engine are reported as cancelled."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread is None:
            self._paged.close()
        else:
            self._thread.join()

    def submit(self, submission: Submission) -> None:
        """Add a text. Raises `InputError` if it can never run, `WorkerError` if the engine has stopped."""
        self._validate(submission)
        with self._wake:
            if self._stopping or self._error:
                raise WorkerError(f"the engine has stopped: {self._error or 'it was told to'}")
            if submission.prompt.id in self._known:
                raise InputError("id", submission.prompt.id, "one that is not in flight")
            self._known.add(submission.prompt.id)
            self._submitted.append(submission)
            self._wake.notify()

    def cancel(self, id: int) -> None:
        """Cancel a text; its pages are free before the next iteration. Does nothing if it has ended."""
        with self._wake:
            self._cancelled.append(id)
            self._wake.notify()

    def check(self) -> None:
        """Raises AssertionError if the scheduler's pages differ from the cache's. Waits for one iteration."""
        done: Future[None] = Future()
        with self._wake:
            self._checks.append(done)
            self._wake.notify()
            ended = self._closed or self._thread is None
        if ended and self._thread is not None:
            self._thread.join()
        if ended:
            self._answer()
        done.result()

    def status(self) -> Status:
        """Return counts and seconds since the start. Any thread may call this."""
        return Status(
            self._alive, self._error, self._scheduler.running, self._scheduler.waiting, self._memory.pages,
            self._paged.pages_used, self._paged.swap_space.used, self._iterations, self._tokens,
            self._preemptions, self._recomputed, self._sequences, self._busy, self._deciding, self._out_of_memory,
            self._scheduler.tokens_taken, self._scheduler.slowness,
        )  # fmt: skip

    @property
    def _alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _validate(self, submission: Submission) -> None:
        self._scheduler.validate(submission.remaining())
        outside = next((id for id in submission.ids if not 0 <= id < self._vocabulary), None)
        if outside is not None:
            raise InputError("ids", outside, f"from 0 to {self._vocabulary - 1}")
        if submission.sampling.temperature > 0 and not self._sampling:
            raise InputError("temperature", submission.sampling.temperature, "0: this engine is greedy")
        named = (*submission.sampling.stop_tokens, *(token for token, _ in submission.sampling.logit_bias))
        unknown = next((token for token in named if not 0 <= token < self._vocabulary), None)
        if unknown is not None:
            raise InputError("logit_bias or stop_token_ids", unknown, f"a token from 0 to {self._vocabulary - 1}")
        if submission.sampling.grammar:
            self._grammars.check(submission.sampling.grammar, "grammar")

    def _run(self) -> None:
        try:
            self._paged.enter(self._threads)
            while self._wait():
                self._iterate()
        except Exception as error:  # anything from the model or the device; every text is reported as failed
            with self._wake:
                self._out_of_memory = is_out_of_memory(error)
                self._error = f"{type(error).__name__}: {error}"
        self._end_all("failed" if self._error else "cancelled")

    def _wait(self) -> bool:
        """Wait until there is something to do. Returns False if the engine is to end."""
        with self._wake:
            inbox = (self._submitted, self._cancelled, self._checks)
            while not (self._stopping or self._flights or self._ended or any(inbox)):
                self._wake.wait()
            return not self._stopping

    def _iterate(self) -> None:
        """Run one iteration, with everything before and after it."""
        began, now = time.perf_counter(), self._clock()
        step_input = self._take_up(now)
        self._decide(step_input, now)
        self._ended.clear()
        step = self._paged.step()
        self._share_out(step, time.perf_counter() - began)
        self._record(step, now)
        self._answer()
        self._busy += time.perf_counter() - began
        self._deliver_news()
        if not step.sequences and self._flights:
            with self._wake:
                self._wake.wait(PAUSE)

    def _take_up(self, now: float) -> StepInput:
        """Empty the inbox. The scheduler never learns of a text that was cancelled before its first iteration."""
        with self._wake:
            submitted, self._submitted = self._submitted, []
            cancelled, self._cancelled = self._cancelled, []
        gone = [id for id in dict.fromkeys(cancelled) if id in self._flights]
        added = [new for new in submitted if new.prompt.id not in cancelled]
        self._flights.update({new.prompt.id: _InFlight(new, now, new.generated) for new in submitted})
        for new in added:
            self._add(new)
        for id in dict.fromkeys(cancelled):
            self._paged.cancel(id)
            if id in self._flights:
                self._end(id, (), "grammar" if self._flights[id].costly else "cancelled", now)
        return StepInput(tuple(map(self._prompt, added)), tuple(self._ended), tuple(gone))

    def _prompt(self, submission: Submission) -> Prompt:
        """Return the prompt as the scheduler sees it, with what its first pages hold."""
        prompt = submission.remaining()
        if submission.sampling.prompt_logprobs >= 0:  # what is not read has no scores
            return prompt
        numbers = beginnings(submission.ids, self._memory.page_tokens, self._secret, prompt.tenant)
        return replace(prompt, beginnings=numbers)

    def _add(self, submission: Submission) -> None:
        ends = submission.ends(self._generator.ends)
        arguments = seeded.arguments(submission.sampling, self._vocabulary, submission.prompt.tokens, ends)
        self._paged.add(
            submission.prompt.id, submission.ids, submission.max_tokens - submission.generated, ends, arguments
        )

    def _decide(self, step_input: StepInput, now: float) -> None:
        began = time.perf_counter()
        plan = self._scheduler.handle(step_input, now)
        self._paged.carry_out(plan)
        self._deciding += time.perf_counter() - began
        if self._journal is not None:
            self._journal(now, step_input, plan)
        for id, reason in plan.dropped:
            self._end(id, (), reason, now)

    def _share_out(self, step: StepResult, seconds: float) -> None:
        """Charge the texts with pages, also those that pause, with equal parts of an iteration. Who ended has a token."""
        generating = {id for id, _, _ in step.tokens}
        flights = [f for id, f in self._flights.items() if id in generating or self._paged.pages_of(id)]
        for flight in flights:
            flight.seconds += seconds / len(flights)

    def _record(self, step: StepResult, now: float) -> None:
        self._iterations += step.sequences > 0
        self._sequences += step.sequences
        self._tokens += len(step.tokens)
        for id in step.started:
            self._flights[id].started = now
        for id, recomputed in step.preempted:
            self._flights[id].preemptions += 1
            self._flights[id].recomputed += recomputed
            self._preemptions, self._recomputed = self._preemptions + 1, self._recomputed + recomputed
        for id, place, logprobs in step.prompt_logprobs:
            self._flights[id].prompt_logprobs[place] = logprobs
        for id, logprobs in step.logprobs:
            self._flights[id].logprobs = (logprobs,)
        for id, token, last in step.tokens:
            self._token(id, token, last, id in step.stuck, now)
        for id in step.costly:
            self._flights[id].costly = True
            self.cancel(id)

    def _token(self, id: int, token: int, last: bool, stuck: bool, now: float) -> None:
        flight = self._flights[id]
        flight.generated += 1
        if not last:
            self._news.append(flight.report((token,), "", now))
            return
        self._ended.append(id)
        stopped = token in flight.submission.ends(self._generator.ends)
        self._end(id, (token,), "grammar" if stuck else "stop" if stopped else "length", now)

    def _end(self, id: int, tokens: tuple[int, ...], how: str, now: float) -> None:
        with self._wake:
            self._known.discard(id)
        self._news.append(self._flights.pop(id).report(tokens, how, now))

    def _deliver_news(self) -> None:
        news, self._news = self._news, []
        self._deliver(news)

    def _end_all(self, how: str) -> None:
        """Report every text as ended. After an error the scheduler is not told, since its state may be wrong."""
        with self._wake:
            self._stopping = self._closed = True
        now = self._clock()
        self._flights.update({new.prompt.id: _InFlight(new, now, new.generated) for new in self._submitted})
        gone = tuple(self._flights)
        for id in gone:
            self._end(id, (), how, now)
            self._paged.cancel(id)
        if not self._error:
            self._scheduler.handle(StepInput((), tuple(self._ended), gone), now)
        self._answer()
        self._paged.close()
        self._deliver_news()

    def _answer(self) -> None:
        with self._wake:
            checks, self._checks = self._checks, []
        for done in checks:
            try:
                self._compare()
            except AssertionError as error:
                done.set_exception(error)
            else:
                done.set_result(None)

    def _compare(self) -> None:
        """Compare the scheduler with the cache after an iteration, of whose ends the scheduler does not know yet."""
        self._paged.check()
        if self._error:
            return
        self._scheduler.check()
        for id in self._flights:
            ours, theirs = self._scheduler.pages_of(id), self._paged.pages_of(id)
            assert ours == theirs, f"sequence {id}: {ours} pages in the books, {theirs} in the cache"
        assert self._scheduler.pages_used_without(self._ended) == self._paged.pages_used, "pages of all"
        assert self._scheduler.host_used == self._paged.swap_space.used, "pages on the host"
