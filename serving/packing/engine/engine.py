"""Drives engines' processes: submits outputs, receives their tokens, and restarts a process that dies or hangs.

After a restart every output goes on from the tokens that it has; the same seed gives the same text. Outputs that were in two
processes when they died are suspects, and the one that kills them fails (see `Suspects`). A process that lacked memory
is no sign against any of them as long as the next one can take fewer sequences an iteration (`SequenceLimit`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from itertools import count
from math import nan
from typing import Any

from pliant.errors import WorkerError
from pliant.fairness import Fairness
from pliant.packing.engine.submission import PackedLogprobs, Progress, Status, Submission, TokenLogprobs
from pliant.packing.scheduling.forecast import MEDIAN
from pliant.packing.scheduling.request import Prompt
from pliant.packing.scheduling.targets import Admission
from pliant.serving.driver import Clock
from pliant.serving.packing.engine.engine_process import NO_STATUS, EngineProcess
from pliant.serving.packing.text import Writer

OPEN_CHARACTERS = 64 * 1024  # of text that nobody has read, after which the output is cancelled


@dataclass(slots=True, eq=False)
class InFlightOutput:
    """An output.

    `finish`: "stop", "length", "cancelled", "late", "full" (another tenant's took its place in the queue), "failed" or
    "slow" (nobody read its text) or "grammar" (its grammar became too complex to go on); empty: not ended.
    """

    first: Submission
    writer: Writer
    ends: frozenset[int]  # tokens that end an output and have no text
    on_progress: Callable[[InFlightOutput], None]
    max_open: float = OPEN_CHARACTERS  # characters of unread text; infinite if the answer is not a stream
    silent: bool = False  # only its prompt is asked about: the one token that an engine must generate is dropped
    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)  # of each token, where requested
    prompt_logprobs: tuple[TokenLogprobs, ...] | PackedLogprobs = ()  # of the prompt's from its second on, if requested
    finish: str = ""
    fault: str = ""  # why it failed, for the client
    at_stop_string: bool = False  # it ended there
    first_token_at: float = nan  # on the service's clock
    last_token_at: float = nan
    queued: float = 0.0  # seconds
    seconds: float = 0.0  # of the device
    preemptions: int = 0
    recomputed: int = 0  # tokens
    crashes: int = 0  # of the engine's process

    @property
    def id(self) -> int:
        return self.first.prompt.id

    @property
    def begun(self) -> bool:
        """Whether it has a token or has ended."""
        return bool(self.tokens) or bool(self.finish)

    @property
    def tokens_left(self) -> float:
        """Return the tokens that it is predicted to need still: of its prompt, if it has not begun, and of its text."""
        prompt = self.first.prompt
        reading = 0 if self.tokens else prompt.tokens
        return reading + max(prompt.forecast[MEDIAN] - len(self.tokens), 1.0)

    def submission(self) -> Submission:
        """Return what an engine needs to go on from the present tokens."""
        ids = (*self.first.ids, *self.tokens)
        return replace(self.first, ids=ids, generated=len(self.tokens))

    def take(self, progress: Progress) -> None:
        """Take the progress of one iteration. After the end it is ignored."""
        self.seconds += progress.seconds
        if self.finish:
            return
        self.queued, self.preemptions, self.recomputed = progress.queued, progress.preemptions, progress.recomputed
        self.prompt_logprobs = progress.prompt_logprobs or self.prompt_logprobs
        if self.silent:  # the first token, which is dropped, is the end
            if progress.tokens or progress.finished:
                self.end("length" if progress.tokens else progress.finished)
            return
        self.logprobs += progress.logprobs
        finish = self._read(progress.tokens) or progress.finished
        del self.logprobs[len(self.tokens) :]  # of tokens behind a stop string
        if finish:
            self.end(finish)
        elif progress.tokens:
            self.on_progress(self)

    def end(self, finish: str, fault: str = "") -> None:
        """End the output, unless it has ended."""
        if self.finish:
            return
        self.writer.end()
        self.finish, self.fault = finish, fault
        self.on_progress(self)
        # It knows the reply, which knows this output: garbage collectors are slow.
        self.on_progress = lambda _output: None

    def _read(self, tokens: tuple[int, ...]) -> str:
        """Take tokens. Return how the output ends with one of them; empty: it goes on."""
        for token in tokens:
            self.tokens.append(token)
            may_stop = len(self.tokens) > self.first.sampling.min_tokens
            if token not in self.ends and self.writer.put(token, may_stop):
                self.at_stop_string = True
                return "stop"
        return "slow" if self.writer.waiting > self.max_open else ""


MAX_CRASHES = 2  # of the process, without progress between them, after which an output is suspect
CLEAR = 8  # tokens beyond those at the crash after which an output is no suspect


class Suspects:
    """The suspects that wait to be tried, and the one that is tried now: outputs that were in two processes when they died.

    If it is one, it is given up. Several are tried in turn: one at a time goes on in the next process, beside outputs that
    are no suspects, until it has got further than before by some tokens. The one with which the process dies again is given
    up. An output that has got further is no suspect any more, so processes that somebody kills now and then fail no output.
    """

    def __init__(self) -> None:
        self._waiting: deque[InFlightOutput] = deque()
        self._tried: InFlightOutput | None = None
        self._tokens: dict[int, int] = {}  # at the crash, of the outputs that were in one since they last got further

    def holds(self, output: InFlightOutput) -> bool:
        """Return whether the output waits to be tried, so that the engine does not know it."""
        return output in self._waiting

    def died(self, outputs: Iterable[InFlightOutput]) -> list[InFlightOutput]:
        """Note that the process died with these outputs pending, and return those to give up."""
        inside = [output for output in outputs if not self.holds(output) and not output.finish]
        for output in inside:
            output.crashes += 1
            self._tokens[output.id] = len(output.tokens)
        tried, self._tried = self._tried, None
        if tried is not None and tried in inside:
            return [tried]
        suspects = [output for output in inside if output.crashes >= MAX_CRASHES]
        if len(suspects) == 1:
            return suspects
        self._waiting.extend(suspects)
        return []

    def next(self) -> InFlightOutput | None:
        """Return the suspect to try now; None if one is being tried, or there is none."""
        if self._tried is not None or not self._waiting:
            return None
        self._tried = self._waiting.popleft()
        return self._tried

    def advanced(self, output: InFlightOutput) -> None:
        """Note that an output may have new tokens."""
        if output.crashes and len(output.tokens) >= self._tokens.get(output.id, 0) + CLEAR:
            output.crashes = 0
            self.forget(output)

    def forget(self, output: InFlightOutput) -> None:
        """Note that an output has ended, or is no suspect any more."""
        self._tokens.pop(output.id, None)
        if self._tried is output:
            self._tried = None
        if output in self._waiting:
            self._waiting.remove(output)


class SequenceLimit:
    """The limit of one engine, for the next start of its process. `on_change` is called after each lack of memory."""

    def __init__(self, planned: int, on_change: Callable[[SequenceLimit], None] = lambda _limit: None) -> None:
        self.planned, self.value, self._on_change = planned, planned, on_change
        self.exhausted = 0  # processes that ran out of memory

    def lower(self, running: int) -> bool:
        """Note that a process ran out of memory with so many sequences, and return whether the next one takes fewer.

        It takes half of them, and half of the limit where it ran none. One sequence alone cannot be lowered.
        """
        self.exhausted += 1
        before = min(self.value, running or self.value)
        if before > 1:
            self.value = before // 2
        self._on_change(self)
        return before > 1


logger = logging.getLogger("pliant.serving")

MAX_FAILED_STARTS = 3  # in a row, after which pending outputs fail and new ones are rejected
POLL_SECONDS = 1.0  # that the engine may take to report


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Time limits of an engine's process."""

    silence: float = 60.0  # seconds without a message, with outputs pending, after which the process counts as hung
    stalled: float = 5.0  # the same, after which it is not ready
    drain: float = 3600.0  # seconds that `stop` waits for pending outputs
    retry: float = 1.0  # seconds between two attempts to start the process


@dataclass(frozen=True, slots=True)
class EngineReport:
    """The engine's status, and whether its accounting of pages is right.

    `accounting_error`: what is wrong; empty: nothing; None: the engine did not answer.
    """

    status: Status
    accounting_error: str | None


class CannotKeepError(Exception):
    """The targets of a request cannot be kept. `seconds`: after which there might be room for it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"by the forecast its targets are missed by {seconds:.3g} s")
        self.seconds = seconds


class EngineDriver:
    """Generates outputs for one event loop, between `start` and `stop`."""

    def __init__(
        self,
        worker: EngineProcess,
        clock: Clock,
        limits: EngineLimits = EngineLimits(),
        died: Callable[[], None] = lambda: None,
        sequences: SequenceLimit | None = None,
        admission: Admission | None = None,
    ) -> None:
        """`sequences`: what the worker's builds take as the most of an iteration, lowered after a lack of memory.

        `admission`: what refuses outputs whose targets cannot be kept; without it all are accepted.
        """
        self._worker, self._clock, self._limits, self._died = worker, clock, limits, died
        worker.on_message, worker.on_end = self._on_message, self._on_end
        # Including those that ended here before the engine knows it.
        self._outputs: dict[int, InFlightOutput] = {}
        self._waiting: dict[int, InFlightOutput] = {}  # those without a token
        self._fairness = Fairness()  # whose these are
        self._suspects = Suspects()
        self._admission = admission
        self._polls: dict[int, asyncio.Future[EngineReport]] = {}
        self._poll_ids = count()
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._last_message_at = 0.0
        self._up = self._stopping = False
        self._failed_starts = 0
        self.sequences = sequences or SequenceLimit(1)
        self._lowered = False  # the process ended for lack of memory, and the next one takes fewer sequences
        self.status = NO_STATUS

    @property
    def ready(self) -> bool:
        """Whether the process runs and makes iterations, where it has outputs to make them for."""
        silent = self._clock() - self._last_message_at if self._outputs else 0.0
        return self._up and not self._stopping and silent <= min(self._limits.stalled, self._limits.silence)

    @property
    def alive(self) -> bool:
        """Whether the process can be started."""
        return self._failed_starts < MAX_FAILED_STARTS

    @property
    def pending(self) -> int:
        """Return the number of outputs that have not ended."""
        return len(self._outputs)

    @property
    def waiting(self) -> int:
        """Return the number of outputs without a token."""
        return len(self._waiting)

    @property
    def load(self) -> float:
        """Return the tokens that the pending outputs are predicted to need still."""
        return sum(output.tokens_left for output in self._outputs.values())

    def holds(self, output: InFlightOutput) -> bool:
        """Return whether this is a pending output of this engine."""
        return self._outputs.get(output.id) is output

    async def start(self) -> None:
        """Return when the engine runs. Raises `WorkerError`."""
        await self._worker.start()
        self._up = True
        self._spawn(self._kill_if_silent())

    async def stop(self) -> None:
        """Wait until all outputs have ended, then end the process."""
        self._stopping = True
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.drain):
                await self._idle.wait()
        self._end_all("the service stopped before the output ended")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._worker.stop()

    @property
    def wait(self) -> float:
        """Return the seconds after which those that wait now have probably begun; 1 where that is not known."""
        return 1.0 if self._admission is None else self._admission.wait()

    def hopeless(self, prompt: Prompt) -> float | None:
        """Return the seconds after which targets might be kept that now cannot be, whatever the forecast of the length."""
        return None if self._admission is None else self._admission.hopeless(prompt, self._clock())

    def accept(self, outputs: Sequence[InFlightOutput]) -> None:
        """Promise outputs their targets, before `begin`. Raises `WorkerError` after `stop`, and if the process cannot be
        started, and `CannotKeepError` where the targets of one cannot be kept; then none has a promise.
        """
        if self._stopping:
            raise WorkerError("the service is stopping")
        if not self.alive:
            raise WorkerError("the engine's process cannot be started; the service keeps trying")
        now = self._clock()
        for number, output in enumerate(outputs if self._admission is not None else ()):
            seconds = self._admission.offer(output.first.prompt, now) if self._admission is not None else None
            if seconds is not None:
                self.give_back(outputs[:number])
                raise CannotKeepError(seconds)

    def give_back(self, outputs: Sequence[InFlightOutput]) -> None:
        """Take back the promise of outputs that do not begin after all."""
        for output in outputs if self._admission is not None else ():
            self._admission.ended(output.id)  # type: ignore[union-attr]

    def begin(self, outputs: Sequence[InFlightOutput]) -> None:
        """Start the generation of outputs that were accepted."""
        if not self._outputs:
            self._last_message_at = self._clock()
        self._idle.clear()
        for output in outputs:
            self._outputs[output.id] = output
            self._wait(output)
            if self._up:
                self._worker.send("submit", output.submission())

    def surplus(self, count: int, limit: int, tenant: str, weight: float) -> list[InFlightOutput] | None:
        """Return the waiting outputs to drop so that `count` further ones of a tenant may wait, if `limit` may in all.

        They are the newest ones of tenants that have more of them for their weight. None: these do not suffice.
        """
        surplus: list[InFlightOutput] = []
        while self.waiting + count > limit:
            id = self._fairness.surplus(tenant, weight, count)
            if id is None:
                break
            surplus.append(self._waiting[id])
            self._begun(surplus[-1])
        enough = self.waiting + count <= limit
        for output in reversed(surplus):
            self._wait(output)
        return surplus if enough else None

    def drop(self, output: InFlightOutput) -> None:
        """End a waiting output for want of room in the queue."""
        self._stop(output, "full")

    def _wait(self, output: InFlightOutput) -> None:
        prompt = output.first.prompt
        self._waiting[prompt.id] = output
        self._fairness.join(prompt.id, prompt.tenant, prompt.weight)

    def _begun(self, output: InFlightOutput) -> None:
        """Note that an output no longer waits."""
        if self._waiting.pop(output.id, None) is not None:
            self._fairness.leave(output.id)

    def cancel(self, output: InFlightOutput) -> None:
        """Cancel an output. Its pages are free after the engine's next iteration."""
        if self.holds(output):
            self._stop(output, "cancelled")

    def _stop(self, output: InFlightOutput, finish: str) -> None:
        self._begun(output)
        output.end(finish)
        if self._up and not self._suspects.holds(output):
            self._worker.send("cancel", output.id)
        else:
            self._forget(output.id)

    async def poll(self) -> EngineReport:
        """Return the engine's report, made between two iterations."""
        if not self._up:
            return EngineReport(self.status, None)
        number = next(self._poll_ids)
        future: asyncio.Future[EngineReport] = asyncio.get_running_loop().create_future()
        self._polls[number] = future
        self._worker.send("poll", number)
        try:
            async with asyncio.timeout(POLL_SECONDS):
                return await future
        except TimeoutError:
            return EngineReport(self.status, None)
        finally:
            del self._polls[number]

    def _on_message(self, kind: str, value: Any) -> None:
        self._last_message_at = self._clock()
        match kind:
            case "progress":
                self._take(value)
            case "status":
                self.status = value
                if self._admission is not None:
                    self._admission.learn(self.status.slowness, self._clock())
            case "report":
                number, self.status, accounting_error = value
                future = self._polls.get(number)
                if future is not None and not future.done():
                    future.set_result(EngineReport(self.status, accounting_error))
            case "out_of_memory":
                self._lowered = self.sequences.lower(value)
                text = (
                    "an engine's process ran out of memory with %d sequences; an iteration has at most %d from now on"
                )
                logger.error(text, value, self.sequences.value)
            case "rejected":
                id, fault = value
                if id in self._outputs:
                    self._outputs[id].end("failed", fault)
                    self._forget(id)

    def _take(self, updates: Sequence[Progress]) -> None:
        for progress in updates:
            output = self._outputs.get(progress.id)
            if output is None:
                continue
            before, begun = output.finish, bool(output.tokens)
            try:
                output.take(progress)
            except Exception as error:  # a bug of ours, but no reason to lose the other outputs
                logger.error("the progress of output %d could not be processed", progress.id, exc_info=error)
                output.finish = "failed"
                output.fault = f"its text could not be decoded: {type(error).__name__}: {error}"
                output.on_progress(output)
            if progress.tokens:
                output.last_token_at = now = self._clock()
                if not begun:
                    output.first_token_at = now
                    if self._admission is not None:
                        self._admission.began(output.id, now)
            if output.begun:
                self._begun(output)
            self._suspects.advanced(output)
            if progress.finished:
                self._forget(progress.id)
            elif output.finish and not before:  # here: at a stop string, or because nobody reads it
                self._worker.send("cancel", progress.id)
        self._try_next()

    def _forget(self, id: int) -> None:
        output = self._outputs.pop(id, None)
        if self._admission is not None:
            self._admission.ended(id)
        if output is not None:
            self._begun(output)
            self._suspects.forget(output)
        if not self._outputs:
            self._idle.set()
        self._try_next()

    def _try_next(self) -> None:
        """Submit the next suspect, if it is its turn."""
        if self._up and (output := self._suspects.next()) is not None:
            self._worker.send("submit", output.submission())

    def _on_end(self) -> None:
        if not self._up:
            return
        self._up = False
        self._died()
        self.status = NO_STATUS
        logger.error("an engine's process died with %d outputs; it is restarted", len(self._outputs))
        lowered, self._lowered = self._lowered, False
        for output in () if lowered else self._suspects.died(self._outputs.values()):
            logger.error("output %d is failed: the process died %d times with it", output.id, output.crashes)
            output.end("failed", f"the engine's process died {output.crashes} times while it generated this output")
        for output in list(self._outputs.values()):
            if output.finish:
                self._forget(output.id)
        self._spawn(self._revive())

    async def _revive(self) -> None:
        while True:
            try:
                await self._worker.start()
                break
            except WorkerError as error:
                self._failed_starts += 1
                logger.error("the engine could not be started: %s", error)
            if not self.alive:
                self._end_all("the engine's process cannot be started")
            await asyncio.sleep(self._limits.retry)
        self._failed_starts, self._up, self._last_message_at = 0, True, self._clock()
        for output in self._outputs.values():
            if not self._suspects.holds(output):
                self._worker.send("submit", output.submission())
        self._try_next()

    async def _kill_if_silent(self) -> None:
        """Kill the process if it sends nothing for too long although outputs are pending."""
        while True:
            await asyncio.sleep(self._limits.silence / 4)
            if self._up and self._outputs and self._clock() - self._last_message_at > self._limits.silence:
                logger.error("an engine's process sent nothing for %g s; it is killed", self._limits.silence)
                self._worker.kill()

    def _end_all(self, fault: str) -> None:
        for output in list(self._outputs.values()):
            output.end("cancelled", fault)
            self._forget(output.id)

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


_NOT_SUMMED = ("alive", "error", "out_of_memory", "slowness")


class EngineGroup:
    """The engines of one model, each on a device of its own: every output goes to the least busy one.

    Which that is follows from the forecasts: the tokens that its pending outputs are predicted to need still. An engine
    whose process has died keeps its outputs for its restart, and gets no others meanwhile. Methods: see `EngineDriver`.
    """

    def __init__(self, on_devices: Sequence[tuple[str, EngineDriver]]) -> None:
        self.on_devices = on_devices
        self.engines = [engine for _, engine in on_devices]
        self._ids = count()  # an output's id is its own in all engines

    @property
    def ready(self) -> bool:
        """Whether some engine runs."""
        return any(engine.ready for engine in self.engines)

    @property
    def alive(self) -> bool:
        """Whether some engine can be started."""
        return any(engine.alive for engine in self.engines)

    @property
    def pending(self) -> int:
        return sum(engine.pending for engine in self.engines)

    @property
    def waiting(self) -> int:
        return sum(engine.waiting for engine in self.engines)

    @property
    def status(self) -> Status:
        return merged([engine.status for engine in self.engines])

    def next_id(self) -> int:
        return next(self._ids)

    async def start(self) -> None:
        """Start all, and raise the first `PliantError` once each has started or failed."""
        starts = [engine.start() for engine in self.engines]
        for error in await asyncio.gather(*starts, return_exceptions=True):
            if error is not None:
                raise error

    async def stop(self) -> None:
        await asyncio.gather(*(engine.stop() for engine in self.engines))

    def hopeless(self, prompt: Prompt) -> float | None:
        """Return the seconds after which some engine might keep a request's targets, if none can now."""
        waits = [engine.hopeless(prompt) for engine in self._usable()]
        return None if None in waits else min(wait for wait in waits if wait is not None)

    def submit(self, outputs: Iterable[InFlightOutput]) -> None:
        """Give each output to the engine with the least load. Raises `WorkerError` where none can be started.

        Raises `CannotKeepError` where that engine cannot keep the targets of one; then it has taken none of them.
        """
        usable = self._usable()
        loads = {engine: engine.load for engine in usable}
        given: dict[EngineDriver, list[InFlightOutput]] = {}
        for output in outputs:
            engine = min(usable, key=loads.__getitem__)
            loads[engine] += output.tokens_left
            given.setdefault(engine, []).append(output)
        accepted: list[EngineDriver] = []
        try:
            for engine, each in given.items():
                engine.accept(each)
                accepted.append(engine)
        except CannotKeepError:
            for engine in accepted:
                engine.give_back(given[engine])
            raise
        for engine, each in given.items():
            engine.begin(each)

    @property
    def wait(self) -> float:
        """Return the seconds after which those that wait in some engine have probably begun."""
        return min(engine.wait for engine in self.engines)

    def surplus(self, count: int, limit: int, tenant: str, weight: float) -> list[InFlightOutput] | None:
        """Return the waiting outputs of one engine to drop so that `count` further ones may wait, if `limit` may in all.

        The engine is the one in which most wait, of those that have enough to drop. None: none has.
        """
        beyond = self.waiting + count - limit
        if beyond <= 0:
            return []
        for engine in sorted(self.engines, key=lambda engine: engine.waiting, reverse=True):
            surplus = engine.surplus(count, engine.waiting + count - beyond, tenant, weight)
            if surplus is not None:
                return surplus
        return None

    def drop(self, output: InFlightOutput) -> None:
        for engine in self.engines:
            if engine.holds(output):
                engine.drop(output)

    def cancel(self, output: InFlightOutput) -> None:
        for engine in self.engines:
            engine.cancel(output)

    def _usable(self) -> Sequence[EngineDriver]:
        """Return the engines that run; where none does, those that can be started."""
        running = [engine for engine in self.engines if engine.ready]
        return running or [engine for engine in self.engines if engine.alive] or self.engines


def merged(statuses: Sequence[Status]) -> Status:
    """Return one status of several engines: the sums of their figures; they live where all do."""
    names = [field.name for field in fields(Status) if field.name not in _NOT_SUMMED]
    return Status(
        alive=all(status.alive for status in statuses),
        error=next((status.error for status in statuses if status.error), ""),
        out_of_memory=any(status.out_of_memory for status in statuses),
        slowness=max(status.slowness for status in statuses),
        **{name: sum(getattr(status, name) for status in statuses) for name in names},
    )


def merged_report(reports: Sequence[EngineReport]) -> EngineReport:
    """Return one report of several engines, whose accounting is right where that of each is."""
    errors = [report.accounting_error for report in reports]
    wrong = next((error for error in errors if error), None if None in errors else "")
    return EngineReport(merged([report.status for report in reports]), wrong)
