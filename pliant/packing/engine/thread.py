"""The thread of an engine, whatever runs its iterations: texts come and go through an inbox, and every text is reported.

Calls from other threads go into an inbox that is emptied before each iteration, so that no caller waits for the device.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from pliant.device import is_out_of_memory
from pliant.errors import InputError, WorkerError
from pliant.packing.engine.submission import Progress, Submission, TokenLogprobs

Deliver = Callable[[list[Progress]], None]
PAUSE = 0.005  # seconds before the next iteration if texts wait and none may run


@dataclass(slots=True)
class InFlight:
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


class EngineThread(ABC):
    """Generates texts in a thread of its own.

    `deliver` is called in that thread once an iteration, with the progress of all texts (which may be none: a sign of
    life), and must return at once. An exception of it or of an iteration ends the engine. `clock` gives seconds.
    """

    def __init__(self, deliver: Deliver, clock: Callable[[], float] = time.monotonic) -> None:
        self._deliver, self._clock = deliver, clock
        self._flights: dict[int, InFlight] = {}
        self._known: set[int] = set()  # ids submitted and not ended; used by all threads, under the lock
        self._news: list[Progress] = []  # not yet delivered
        self._checks: list[Future[None]] = []  # with the two lists below the inbox, under the lock
        self._submitted: list[Submission] = []
        self._cancelled: list[int] = []
        self._wake, self._error, self._stopping, self._closed = threading.Condition(), "", False, False
        self._out_of_memory = False
        self._thread: threading.Thread | None = None
        self._iterations = self._tokens = self._sequences = self._preemptions = self._recomputed = 0
        self._busy = 0.0  # seconds in iterations

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
            self._close((), self._clock())
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

    @abstractmethod
    def _validate(self, submission: Submission) -> None:
        """Raise `InputError` for a text that can never run. Any thread calls this."""

    @abstractmethod
    def _iterate(self) -> bool:
        """Take up the inbox, run one iteration, and add its reports to the news.

        Returns whether texts wait and none may run.
        """

    @abstractmethod
    def _compare(self) -> None:
        """Raise `AssertionError` if the books are wrong, between two iterations."""

    @abstractmethod
    def _close(self, gone: Sequence[int], now: float) -> None:
        """Release what the engine holds. `gone`: texts that have been reported as ended for that."""

    def _enter(self) -> None:  # noqa: B027
        """Prepare the thread, where there is anything to prepare."""

    @property
    def _alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _pending(self) -> bool:
        """Whether an iteration has something to do besides the inbox."""
        return bool(self._flights)

    def _run(self) -> None:
        try:
            self._enter()
            while self._wait():
                began = time.perf_counter()
                starved = self._iterate()
                self._answer()
                self._busy += time.perf_counter() - began
                self._deliver_news()
                if starved:
                    with self._wake:
                        self._wake.wait(PAUSE)
        except Exception as error:  # anything from the model or the device; every text is reported as failed
            with self._wake:
                self._out_of_memory = is_out_of_memory(error)
                self._error = f"{type(error).__name__}: {error}"
        self._end_all("failed" if self._error else "cancelled")

    def _wait(self) -> bool:
        """Wait until there is something to do. Returns False if the engine is to end."""
        with self._wake:
            while not (self._stopping or self._pending() or self._submitted or self._cancelled or self._checks):
                self._wake.wait()
            return not self._stopping

    def _take_inbox(self) -> tuple[list[Submission], list[int]]:
        """Empty the inbox. Returns what was submitted and what was cancelled."""
        with self._wake:
            submitted, self._submitted = self._submitted, []
            cancelled, self._cancelled = self._cancelled, []
        return submitted, list(dict.fromkeys(cancelled))

    def _end(self, id: int, tokens: tuple[int, ...], how: str, now: float) -> None:
        with self._wake:
            self._known.discard(id)
        self._news.append(self._flights.pop(id).report(tokens, how, now))

    def _deliver_news(self) -> None:
        news, self._news = self._news, []
        self._deliver(news)

    def _end_all(self, how: str) -> None:
        """Report every text as ended."""
        with self._wake:
            self._stopping = self._closed = True
        now = self._clock()
        self._flights.update({new.prompt.id: InFlight(new, now, new.generated) for new in self._submitted})
        gone = tuple(self._flights)
        for id in gone:
            self._end(id, (), how, now)
        self._close(gone, now)
        self._answer()
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
