"""Prompts run to their end by the engine, all at once: for who wants the outputs and serves nobody."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from dataclasses import dataclass, field

from pliant.errors import InputError, WorkerError
from pliant.packing.artifact import Generator
from pliant.packing.engine.runtime import Engine, Progress, Sampling, Submission
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory, Prompt
from pliant.progress import Progress as Report
from pliant.progress import silent

SILENCE = 120.0  # seconds without any token after which the engine is given up
ENDED = ("stop", "length")


@dataclass(frozen=True, slots=True)
class Completion:
    """`tokens` with the one that ended it, if one did; `finished` is "stop" or "length"."""

    tokens: tuple[int, ...]
    finished: str


@dataclass(slots=True)
class _Pending:
    tokens: list[int] = field(default_factory=list)
    finished: str = ""


def complete(
    generator: Generator,
    prompts: Sequence[Sequence[int]],
    memory: Memory,
    limit: int | None = None,
    temperature: float = 0.0,
    seed: int = 0,
    device: str = "cpu",
    threads: int = 1,
    progress: Report = silent,
) -> list[Completion]:
    """One completion a prompt (token ids), in their order; at most `limit` tokens each, or what the context leaves.

    The text of each is a function of its prompt, `temperature` and `seed` (each prompt has one of its own, counted from
    it), whatever runs beside it. Raises `InputError` for a prompt that the model or its memory cannot hold, `WorkerError`
    where the engine fails.
    """
    if not prompts:
        return []
    asked = [_submission(generator, memory, at, ids, limit, temperature, seed) for at, ids in enumerate(prompts)]
    told: queue.SimpleQueue[list[Progress]] = queue.SimpleQueue()
    rules = Rules("paged", generator.context, recalibrate=False)
    engine = Engine(generator, memory, rules, told.put, device, threads, temperature > 0)
    engine.start()
    try:
        for submission in asked:
            engine.submit(submission)
        return _collected(told, len(asked), progress)
    finally:
        engine.stop()


def _submission(
    generator: Generator, memory: Memory, at: int, ids: Sequence[int], limit: int | None, temperature: float, seed: int
) -> Submission:
    most = min(generator.context, memory.pages * memory.page_tokens) - len(ids)
    if not ids or most < 1:
        raise InputError(f"prompt {at}", f"{len(ids)} tokens", f"from 1 to {len(ids) + most - 1}")
    tokens = min(limit or most, most)
    # Nothing is forecast: the policy takes them as they come.
    prompt = Prompt(at, 0.0, len(ids), tokens, (float(tokens),) * 8, offline=True)
    return Submission(prompt, tuple(ids), Sampling(temperature=temperature, seed=seed + at))


def _collected(told: queue.SimpleQueue[list[Progress]], count: int, progress: Report) -> list[Completion]:
    pending, done = [_Pending() for _ in range(count)], 0
    while done < count:
        try:
            news = told.get(timeout=SILENCE)
        except queue.Empty as error:
            raise WorkerError(f"the engine has made no token in {SILENCE:.0f} seconds and is given up") from error
        for one in news:
            pending[one.id].tokens += one.tokens
            pending[one.id].finished = one.finished
            done += bool(one.finished)
        progress(done, count)
    bad = {one.finished for one in pending} - set(ENDED)
    if bad:
        raise WorkerError(f"the engine ended a prompt as {', '.join(sorted(bad))} and not by itself")
    return [Completion(tuple(one.tokens), one.finished) for one in pending]
