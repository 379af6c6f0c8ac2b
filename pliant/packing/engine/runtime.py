"""The engine: one thread that asks the scheduler for a plan, runs it on the device, and reports the new tokens."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from pliant.errors import InputError
from pliant.packing.artifact import Generator
from pliant.packing.engine.grammar import Grammars
from pliant.packing.engine.model import load_generator, vocabulary
from pliant.packing.engine.paged_engine import PagedEngine, StepResult
from pliant.packing.engine.submission import Progress, Sampling, Status, Submission
from pliant.packing.engine.thread import Deliver, EngineThread, InFlight
from pliant.packing.scheduling.common_pages import beginnings
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory, Prompt, StepInput, StepPlan
from pliant.packing.scheduling.scheduler import PackingScheduler

__all__ = ["Engine", "Progress", "Sampling", "Status", "Submission"]

Journal = Callable[[float, StepInput, StepPlan], None]


class Engine(EngineThread):
    """Generates texts. Raises `InputError` for a memory or a model that it cannot use.

    `journal` gets every (now, StepInput, StepPlan); an exception of it ends the engine. `sampling=False` always takes the
    likeliest token. `clock` is the one of `Prompt.deadline`.
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
        super().__init__(deliver, clock)
        self._generator, self._memory = generator, memory
        self._journal, self._threads = journal, threads
        self._vocabulary, self._sampling = vocabulary(generator), sampling
        self._scheduler = PackingScheduler(rules, memory)
        self._grammars = Grammars(generator.tokenizer, self._vocabulary, generator.ends)
        if generator.tokenizer:
            self._grammars.load()  # now, as it would hold up a running iteration
        self._paged = PagedEngine(load_generator(generator, device), memory, sampling, self._grammars)
        self._ended: list[int] = []  # ids that the scheduler does not know of yet
        self._deciding = 0.0
        self._secret = secrets.token_bytes(32)

    def status(self) -> Status:
        """Return counts and seconds since the start. Any thread may call this."""
        return Status(
            self._alive, self._error, self._scheduler.running, self._scheduler.waiting, self._memory.pages,
            self._paged.pages_used, self._paged.swap_space.used, self._iterations, self._tokens,
            self._preemptions, self._recomputed, self._sequences, self._busy, self._deciding, self._out_of_memory,
            self._scheduler.tokens_taken, self._scheduler.slowness,
        )  # fmt: skip

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

    def _enter(self) -> None:
        self._paged.enter(self._threads)

    def _pending(self) -> bool:
        return bool(self._flights or self._ended)

    def _iterate(self) -> bool:
        began, now = time.perf_counter(), self._clock()
        step_input = self._take_up(now)
        self._decide(step_input, now)
        self._ended.clear()
        step = self._paged.step()
        # Texts with pages, also those that pause, are charged with equal parts of the iteration. Who ended has a token.
        reading = {id for id, _, _ in step.tokens}
        flights = [flight for id, flight in self._flights.items() if id in reading or self._paged.pages_of(id)]
        seconds = time.perf_counter() - began
        for flight in flights:
            flight.seconds += seconds / len(flights)
        self._record(step, now)
        return not step.sequences and bool(self._flights)

    def _take_up(self, now: float) -> StepInput:
        """Empty the inbox. The scheduler never learns of a text that was cancelled before its first iteration."""
        submitted, cancelled = self._take_inbox()
        gone = [id for id in cancelled if id in self._flights]
        added = [new for new in submitted if new.prompt.id not in cancelled]
        self._flights.update({new.prompt.id: InFlight(new, now, new.generated) for new in submitted})
        for new in added:
            ends, left = new.ends(self._generator.ends), new.max_tokens - new.generated
            self._paged.add(new.prompt.id, new.ids, left, ends, new.sampling, new.prompt.tokens)
        for id in cancelled:
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

    def _decide(self, step_input: StepInput, now: float) -> None:
        began = time.perf_counter()
        plan = self._scheduler.handle(step_input, now)
        self._paged.carry_out(plan)
        self._deciding += time.perf_counter() - began
        if self._journal is not None:
            self._journal(now, step_input, plan)
        for id, reason in plan.dropped:
            self._end(id, (), reason, now)

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
            flight = self._flights[id]
            flight.generated += 1
            if last:
                self._ended.append(id)
                stopped = token in flight.submission.ends(self._generator.ends)
                how = "grammar" if id in step.stuck else "stop" if stopped else "length"
                self._end(id, (token,), how, now)
            else:
                self._news.append(flight.report((token,), "", now))
        for id in step.costly:
            self._flights[id].costly = True
            self.cancel(id)

    def _close(self, gone: Sequence[int], now: float) -> None:
        """After an error the scheduler is not told, since its state may be wrong."""
        for id in gone:
            self._paged.cancel(id)
        if not self._error:
            self._scheduler.handle(StepInput((), tuple(self._ended), tuple(gone)), now)
        self._paged.close()

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
