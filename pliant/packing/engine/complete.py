"""Generates completions offline: all prompts at once, until every output has ended."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from dataclasses import dataclass

from pliant.errors import InputError, WorkerError
from pliant.packing.artifact import Generator
from pliant.packing.engine.runtime import Engine, Progress, Sampling, Submission
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory, Prompt
from pliant.progress import Progress as Report
from pliant.progress import silent

SILENCE = 120.0  # seconds without any token after which the engine counts as failed


@dataclass(frozen=True, slots=True)
class Completion:
    """An output: its tokens with the end token, if there is one. `finished` is "stop" or "length"."""

    tokens: tuple[int, ...]
    finished: str


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
    """Return one completion for each prompt (token ids), in order: at most `limit` tokens, or what the context leaves.

    A text depends only on its prompt, `temperature` and seed, whatever runs beside it; prompt n has the seed `seed` +
    n. Raises `InputError` for a prompt that the model or its memory cannot hold, `WorkerError` if the engine fails.
    """
    if not prompts:
        return []
    submissions, most = [], min(generator.context, memory.pages * memory.page_tokens)
    for number, ids in enumerate(prompts):
        room = most - len(ids)
        if not ids or room < 1:
            raise InputError(f"prompt {number}", f"{len(ids)} tokens", f"from 1 to {most - 1}")
        tokens = min(limit or room, room)
        # A forecast that nothing reads: "paged" admits in the order of arrival.
        prompt = Prompt(number, 0.0, len(ids), tokens, (float(tokens),) * 8, offline=True)
        submissions.append(Submission(prompt, tuple(ids), Sampling(temperature=temperature, seed=seed + number)))
    reports: queue.SimpleQueue[list[Progress]] = queue.SimpleQueue()
    rules = Rules("paged", generator.context, recalibrate=False)
    engine = Engine(generator, memory, rules, reports.put, device, threads, temperature > 0)
    engine.start()
    texts: list[list[int]] = [[] for _ in submissions]
    ended: dict[int, str] = {}
    try:
        for submission in submissions:
            engine.submit(submission)
        while len(ended) < len(submissions):
            try:
                news = reports.get(timeout=SILENCE)
            except queue.Empty as error:
                raise WorkerError(f"the engine has made no token in {SILENCE:.0f} seconds and is given up") from error
            for report in news:
                texts[report.id] += report.tokens
                if report.finished:
                    ended[report.id] = report.finished
            progress(len(ended), len(submissions))
    finally:
        engine.stop()
    if bad := set(ended.values()) - {"stop", "length"}:
        raise WorkerError(f"the engine ended a prompt as {', '.join(sorted(bad))} and not by itself")
    return [Completion(tuple(tokens), ended[number]) for number, tokens in enumerate(texts)]
