"""How an iteration grows with the batch: Pliant's engine and transformers', in turns.

Every sequence has some tokens in the cache and generates one more in each iteration. The generator has the shape of the
embedded one and random weights, on which no iteration's length depends.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch

from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.packing.transformers_engine import ContinuousBatching
from pliant.benchmarks.packing.turns import device, random_generator
from pliant.benchmarks.results import Target
from pliant.packing.engine.model import load_generator
from pliant.packing.engine.paged_engine import PagedEngine
from pliant.packing.scheduling.request import Chunk, Memory, StepPlan
from pliant.progress import Progress, silent

OURS, THEIRS = "Pliant's", "transformers'"
FEW, MANY = 12, 128  # sequences that are compared
SEQUENCES = (1, FEW, 32, 64, MANY)
CACHED = 100  # tokens of each sequence when the measurement begins
ROUNDS, WARM = 25, 3  # iterations that count, after so many that do not
PAGE, CONTEXT = 16, 384


@dataclass(frozen=True, slots=True)
class Row:
    engine: str
    sequences: int
    seconds: float  # median of an iteration

    @property
    def speed(self) -> float:
        """Tokens a second."""
        return self.sequences / self.seconds


@dataclass(frozen=True, slots=True)
class Batches:
    rows: tuple[Row, ...]
    pairs: int  # of a query and a key that Pliant's attention computed in an iteration of MANY, a head and layer
    needed: int

    def targets(self) -> list[Target]:
        speed = {(row.engine, row.sequences): row.speed for row in self.rows}
        wide = speed[OURS, MANY]
        return [
            Target(f"tokens/s at {MANY} sequences over {FEW}", wide / speed[OURS, FEW], ">=", 1.0, "x"),
            Target(f"tokens/s at {MANY} over transformers' attention", wide / speed[THEIRS, MANY], ">=", 3.0, "x"),
            Target(f"pairs computed over needed at {MANY} sequences", self.pairs / self.needed, "<=", 1.0, "x"),
        ]


def batches(context: Context) -> Measured:
    """Measure both engines with every number of sequences."""
    with context.stage("iterations of growing batches, two engines in turns") as progress:
        result = measure(progress=progress)
    return result.targets(), asdict(result)


def measure(sequences: Sequence[int] = SEQUENCES, rounds: int = ROUNDS, progress: Progress = silent) -> Batches:
    """Measure both engines with each number of sequences, an iteration of one after an iteration of the other."""
    torch.set_num_threads(1)
    most = max(sequences)
    generator = random_generator(
        "embedded shape", CONTEXT, vocab_size=1024, hidden_size=96, intermediate_size=256, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=True,
    )  # fmt: skip
    memory = Memory(pages=most * -(-CONTEXT // PAGE), page_tokens=PAGE, step_tokens=512, sequences=most)
    ours = PagedEngine(load_generator(generator, device()), memory)
    theirs = ContinuousBatching(load_generator(generator, device()), memory)
    engines: dict[str, PagedEngine | ContinuousBatching] = {OURS: ours, THEIRS: theirs}
    for engine in engines.values():
        engine.enter(1)
    rows, pairs, needed = list[Row](), 0, 0
    for number, count in enumerate(sequences):
        for engine in engines.values():
            _fill(engine, count)
        taken: dict[str, list[float]] = {name: [] for name in engines}
        for _ in range(WARM + rounds):
            before = ours.pairs
            for name, engine in engines.items():
                start = time.perf_counter()
                if isinstance(engine, PagedEngine):
                    engine.carry_out(StepPlan())
                engine.step()
                taken[name].append(time.perf_counter() - start)
        layers_and_heads = 2 * 4
        pairs, needed = (ours.pairs - before) // layers_and_heads, count * (CACHED + WARM + rounds)
        rows += [Row(name, count, float(np.median(times[WARM:]))) for name, times in taken.items()]
        for engine in engines.values():
            for id in range(count):
                engine.cancel(id)
        progress(number + 1, len(sequences))
    ours.close()
    return Batches(tuple(rows), pairs, needed)


def _fill(engine: PagedEngine | ContinuousBatching, count: int) -> None:
    """Have so many sequences generate. Transformers' go on with those that have been read while others are."""
    if isinstance(engine, ContinuousBatching):
        for id in range(count):
            engine.add(id, [1] * CACHED, CONTEXT - CACHED)
        while len(engine.step().tokens) < count:
            pass
        return
    for id in range(count):
        engine.add(id, [1] * CACHED, 1 << 30)
        chunks = (Chunk(id, CACHED),)
        engine.carry_out(StepPlan(admitted=(id,), prefill_chunks=chunks, stalled=tuple(range(id))))
        engine.step()
