"""Engines that run at once and take turns, an iteration each, so that whatever else the machine does meets all alike.

Each has a clock of its own, which stands while others run: its times are those of its own iterations, as they were measured.
While nothing of its own is in flight, its clock goes on to the next arrival.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch

from pliant.benchmarks.packing.transformers_engine import TransformersEngine
from pliant.errors import WorkerError
from pliant.packing.artifact import Generator
from pliant.packing.engine import runtime
from pliant.packing.engine.model import weights
from pliant.packing.engine.submission import Progress, Status, Submission
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory

Deliver = Callable[[list[Progress]], None]
Clock = Callable[[], float]


class Engine(Protocol):
    """What takes turns: Pliant's engine or another one."""

    def start(self) -> None: ...

    def submit(self, submission: Submission) -> None: ...

    def status(self) -> Status: ...

    def stop(self) -> None: ...


Make = Callable[[Deliver, Clock], Engine]
"""An engine that has not been started."""


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """What one engine made of the submissions. Seconds on its clock; `status` counts the text that warmed it up, too."""

    seconds: float  # from 0 to the last end
    taken: tuple[float, ...]  # from arrival to end, by submission
    texts: tuple[tuple[int, ...], ...]
    status: Status


@dataclass(frozen=True, slots=True)
class Contender:
    """`rules=None`: transformers' scheduler with that safety margin."""

    name: str
    rules: Rules | None
    memory: Memory
    margin: float = 0.0

    @property
    def title(self) -> str:
        return self.name if self.rules else f"{self.name}, margin {self.margin:g}"


@dataclass(frozen=True, slots=True)
class Row:
    """How one contender fared."""

    load: str
    contender: Contender
    ran: TurnOutcome

    def figures(self) -> dict[str, float]:
        """Return the figures of the run. Iterations and what was decided count the one that warmed up."""
        ran, status, taken = self.ran, self.ran.status, np.array(self.ran.taken)
        lengths, iterations = [len(text) for text in ran.texts], max(status.iterations, 1)
        return {
            "sequences/s": len(taken) / ran.seconds,
            "tokens/s": sum(lengths) / ran.seconds,
            "mean s": float(taken.mean()),
            "p99 s": float(np.quantile(taken, 0.99)),
            "ms a token": 1e3 * float((taken / lengths).mean()),
            "preemptions": status.preemptions,
            "recomputed": status.recomputed / max(status.tokens, 1),
            "batch": status.sequences / iterations,
            "iteration ms": 1e3 * status.busy / iterations,
            "deciding ms": 1e3 * status.deciding / iterations,
        }


def serve(
    load: str, contenders: Sequence[Contender], generator: Generator, submissions: Sequence[Submission], where: str = ""
) -> list[Row]:
    """Let every contender serve the submissions, in turns of an iteration, on a GPU where there is one, or on `where`."""
    on = where or device()

    def maker(of: Contender) -> Make:
        if of.rules is None:
            return lambda deliver, _clock: TransformersEngine(generator, of.memory, deliver, on, of.margin)
        rules = of.rules
        return lambda deliver, clock: runtime.Engine(
            generator, of.memory, rules, deliver, on, sampling=False, clock=clock
        )

    ran = in_turns([maker(contender) for contender in contenders], submissions)
    return [Row(load, *pair) for pair in zip(contenders, ran, strict=True)]


def random_generator(name: str, context: int, **sizes: Any) -> Generator:
    """Return a Llama of these sizes with random weights, on which no iteration's length depends."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    llama = LlamaConfig(max_position_embeddings=context, **sizes)
    return Generator(name, llama.to_json_string(), "", "", context, (2,), "", weights(LlamaForCausalLM(llama)))


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def in_turns(engines: Sequence[Make], submissions: Sequence[Submission]) -> list[TurnOutcome]:
    """Serve `submissions`, in order of arrival with ids from 0 on. Raises `WorkerError` where a text does not end well."""
    desks = [_Desk(submissions) for _ in engines]
    turns, first = _Turns(desks), submissions[0].prompt
    warm = Submission(replace(first, id=len(submissions), limit=2, exact=2), submissions[0].ids, force=2)
    for desk, make in zip(desks, engines, strict=True):
        desk.engine, desk.turns = make(desk.deliver, desk.clock), turns
    for desk in desks:
        desk.engine.start()
        desk.engine.submit(warm)
    for desk in desks:
        desk.stop()
    return [desk.result(submissions) for desk in desks]


class _Turns:
    """Who runs now: one after the other, an iteration each."""

    def __init__(self, desks: Sequence[_Desk]) -> None:
        self._order, self._at = list(desks), 0
        self._changed = threading.Condition()

    def wait(self, desk: _Desk) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._order[self._at] is desk)

    def end(self) -> None:
        """End the turn of whoever has it."""
        with self._changed:
            self._at = (self._at + 1) % len(self._order)
            self._changed.notify_all()

    def leave(self, desk: _Desk) -> None:
        """Take a desk out for good, whether or not it was its turn. Its engine's last word may come after it has left."""
        with self._changed:
            if desk not in self._order:  # an engine that is stopped tells of its end once more
                return
            place = self._order.index(desk)
            del self._order[place]
            self._at = (self._at - (place < self._at)) % max(len(self._order), 1)
            self._changed.notify_all()


class _Desk:
    """An engine's clock, its arrivals, and what became of them. All but `done` is the engine's thread's."""

    def __init__(self, submissions: Sequence[Submission]) -> None:
        self.texts: list[list[int]] = [[] for _ in submissions]
        self.ended = [0.0] * len(submissions)
        self.done, self.failed = threading.Event(), ""
        self._waiting, self._flying = list(reversed(submissions)), 0
        self._passed, self._resumed, self._warm = 0.0, time.monotonic(), False
        self.turns: _Turns
        self.engine: Engine
        self.status: Status

    def clock(self) -> float:
        return self._passed + time.monotonic() - self._resumed

    def deliver(self, news: list[Progress]) -> None:
        """Take what an iteration gave. The first is of the text that warms the engine up: then the clock is set to 0."""
        self._passed, self._resumed = self.clock(), time.monotonic()
        for item in news:
            self._note(item)
        if self.done.is_set():
            self.turns.leave(self)
        elif self._warm:
            self.turns.end()
            self._go_on(self._passed)
        elif news[-1].finished:
            self._warm = True
            self._go_on(0.0)

    def _go_on(self, passed: float) -> None:
        self.turns.wait(self)
        self._passed, self._resumed = passed, time.monotonic()
        if not self._flying and self._waiting:
            self._passed = max(self._passed, self._waiting[-1].prompt.arrival)
        while self._waiting and self._waiting[-1].prompt.arrival <= self._passed:
            self._flying += 1
            self.engine.submit(self._waiting.pop())

    def stop(self) -> None:
        """Stop the engine when all texts have ended, or one has not ended well."""
        self.done.wait()
        self.status = self.engine.status()
        self.engine.stop()

    def result(self, submissions: Sequence[Submission]) -> TurnOutcome:
        if self.failed:
            raise WorkerError(f"a text ended as {self.failed} ({self.status.error or 'no error'})")
        taken = tuple(end - sent.prompt.arrival for end, sent in zip(self.ended, submissions, strict=True))
        return TurnOutcome(max(self.ended), taken, tuple(map(tuple, self.texts)), self.status)

    def _note(self, item: Progress) -> None:
        if item.finished not in ("", "length"):
            self.failed = item.finished
        elif self._warm:
            self.texts[item.id].extend(item.tokens)
        if item.finished and self._warm:
            self.ended[item.id], self._flying = self._passed, self._flying - 1
        if self.failed or not (self._flying or self._waiting):
            self.done.set()
