"""The time to the first token of prompts that begin alike, with and without sharing the pages of their beginnings.

Two engines of the same model and rules, but for sharing, take turns of an iteration. All prompts begin with the same
1,000 tokens, as under one system prompt, and differ behind them. They come once all together, and once each when the one
before has ended. The first prompt, which nobody has read before, counts too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from time import perf_counter as clock

import numpy as np
import torch

from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.packing.turns import device, random_generator
from pliant.benchmarks.results import Target
from pliant.packing.engine.model import load_generator
from pliant.packing.engine.paged_engine import PagedEngine
from pliant.packing.scheduling.common_pages import beginnings
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory, Prompt, StepInput
from pliant.packing.scheduling.scheduler import PackingScheduler
from pliant.progress import Progress, silent

ALIKE, OWN, OUTPUT = 1000, 24, 8  # tokens
TOGETHER, AFTER = "all at once", "one after another"
LIMIT = 0.2  # times the time without sharing


@dataclass(frozen=True, slots=True)
class Row:
    arrivals: str
    sharing: bool
    seconds: float  # mean from arrival to first token
    read: int  # tokens of prompts
    pages: int  # used at once, at most
    texts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Alike:
    rows: tuple[Row, ...]

    def targets(self) -> list[Target]:
        by = {(row.arrivals, row.sharing): row for row in self.rows}
        ratios = [
            Target(
                f"first token under a common beginning of {ALIKE:,} tokens, {arrivals}: over without sharing",
                by[arrivals, True].seconds / by[arrivals, False].seconds, "<=", LIMIT, "x",
            )
            for arrivals in (TOGETHER, AFTER)
        ]  # fmt: skip
        first = self.rows[0].texts
        differing = sum(a != b for row in self.rows for a, b in zip(row.texts, first, strict=True))
        return [*ratios, Target("texts that differ with and without sharing", differing, "<=", 0)]


def alike(context: Context) -> Measured:
    """Judge both ways of arriving, and that the texts stay the same."""
    with context.stage("prompts that begin alike, with and without sharing") as progress:
        result = measure(progress=progress)
    rows = [asdict(row) for row in result.rows]
    return result.targets(), {"rows": [{name: row[name] for name in row if name != "texts"} for row in rows]}


def measure(prompts: int = 16, hidden: int = 256, progress: Progress = silent) -> Alike:
    """Measure both ways of arriving, with and without sharing, one after another."""
    torch.set_num_threads(1)
    generator = random_generator(
        "random", 2048, vocab_size=512, hidden_size=hidden, intermediate_size=11 * hidden // 4, num_hidden_layers=4,
        num_attention_heads=hidden // 32, num_key_value_heads=hidden // 64, initializer_range=0.1,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    begin = rng.integers(3, 512, ALIKE).tolist()
    texts = [(*begin, *rng.integers(3, 512, OWN).tolist()) for _ in range(prompts)]
    pages = prompts * -(-(ALIKE + OWN + OUTPUT) // 16)
    memory = Memory(pages=pages, page_tokens=16, step_tokens=256, sequences=prompts)
    rows = []
    for arrivals in (TOGETHER, AFTER):
        for sharing in (False, True):
            engine = PagedEngine(load_generator(generator, device()), memory)
            engine.enter(1)
            rows.append(_serve(engine, memory, texts, arrivals, sharing))
            engine.close()
            progress(len(rows), 4)
    return Alike(tuple(rows))


def _serve(engine: PagedEngine, memory: Memory, texts: Sequence[tuple[int, ...]], arrivals: str, sharing: bool) -> Row:
    """Serve all texts and return the figures, on a clock that begins with the first arrival."""
    scheduler = PackingScheduler(Rules("default", 2048, share=sharing), memory)
    quantiles = (float(OUTPUT),) * 8
    waiting = [
        Prompt(id, 0.0, len(ids), OUTPUT, quantiles, beginnings=beginnings(ids, 16, b"benchmark"))
        for id, ids in enumerate(texts)
    ]
    first, outputs = dict[int, float](), [list[int]() for _ in texts]
    came, finished = dict[int, float](), tuple[int, ...]()
    read = most = 0
    started = clock()
    while len(first) < len(texts) or any(len(tokens) < OUTPUT for tokens in outputs):
        now = clock() - started
        count = len(waiting) if arrivals == TOGETHER else int(not scheduler.running or len(finished) > 0)
        arrived = tuple(replace(prompt, arrival=now) for prompt in waiting[:count])
        waiting = waiting[count:]
        for prompt in arrived:
            came[prompt.id] = now
            engine.add(prompt.id, texts[prompt.id], OUTPUT)
        plan = scheduler.handle(StepInput(arrived, finished), now)
        engine.carry_out(plan)
        most = max(most, engine.pages_used)
        read += sum(chunk.tokens for chunk in plan.prefill_chunks)
        step = engine.step()
        now = clock() - started
        for id, token, _ in step.tokens:
            first.setdefault(id, now)
            outputs[id].append(token)
        finished = tuple(id for id, _, last in step.tokens if last)
    mean = float(np.mean([first[id] - came[id] for id in first]))
    return Row(arrivals, sharing, mean, read, most, tuple(map(tuple, outputs)))
