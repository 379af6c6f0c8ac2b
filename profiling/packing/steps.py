"""Measures how long an iteration of generation takes on the device, by what it reads and what is cached.

Every point is a state of the engine's cache: a number of sequences of one length that all generate, and beside them one
prompt of some tokens, or none. What is timed is the engine's iteration with its own bookkeeping,
as it is served (pliant/packing/engine/paged_engine.py), without the scheduler.
The same tokens over and over: what they are does not change how long it takes.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from pliant.errors import InputError
from pliant.packing.artifact import Generator
from pliant.packing.engine.model import load_generator
from pliant.packing.engine.paged_engine import PagedEngine
from pliant.packing.scheduling.iteration_cost import Point
from pliant.packing.scheduling.request import Chunk, Memory, StepPlan
from pliant.progress import Progress, silent

NEWCOMER = 1 << 40  # id of the prompt that is read beside the others


@dataclass(frozen=True, slots=True)
class StepsConfig:
    """`fills`: shares of the cache; `prompts`: shares of an iteration's queries that the prompt beside them takes."""

    sequences: tuple[int, ...] = (1, 4, 16, 64)
    fills: tuple[float, ...] = (0.1, 0.4, 0.8)
    prompts: tuple[float, ...] = (0.0, 0.25, 1.0)
    warmup: int = 2  # iterations of each point
    repeats: int = 7  # iterations after those, of which the median counts

    def __post_init__(self) -> None:
        if not self.sequences or min(self.sequences) < 1:
            raise InputError("sequences", self.sequences, "at least one number, each at least 1")
        for name, shares in (("fills", self.fills), ("prompts", self.prompts)):
            if not shares or not all(0 <= share <= 1 for share in shares):
                raise InputError(name, shares, "at least one share from 0 to 1")
        if self.warmup < 0 or self.repeats < 1:
            raise InputError("warmup and repeats", (self.warmup, self.repeats), "at least 0 and at least 1")


@dataclass(frozen=True, slots=True)
class Profile:
    """`swap`: seconds to move one token's keys and values to the host or back, the mean of both; 0 without host pages."""

    points: list[Point]
    swap: float


def profile(
    generator: Generator,
    memory: Memory,
    config: StepsConfig = StepsConfig(),
    device: str = "cpu",
    threads: int = 1,
    progress: Progress = silent,
    clock: Callable[[], float] = time.perf_counter,
) -> Profile:
    """Measure every combination that fits into the memory and the generator's context.

    Raises `InputError` where none does, and what the engine raises.
    """
    points_at = states(config, memory, generator.context)
    lab = _Lab(generator, memory, config, device, threads, clock)
    points = []
    for number, (sequences, length) in enumerate(points_at):
        points += lab.measure(sequences, length)
        progress(number + 1, len(points_at) + 1)
    swap = lab.swap()
    progress(len(points_at) + 1, len(points_at) + 1)
    lab.close()
    return Profile(points, swap)


def states(config: StepsConfig, memory: Memory, context: int, ahead: int = 1) -> list[tuple[int, int]]:
    """Return (sequences, tokens cached of each), without repeats and with room for the iterations that are measured.

    `ahead`: iterations that an engine takes at most until a prompt has its first token.

    Raises `InputError` where nothing has room.
    """
    distinct: dict[tuple[int, int], None] = {}
    grown = (config.warmup + config.repeats) * (1 + len(config.prompts)) * ahead + 1
    for sequences, fill in itertools.product(config.sequences, config.fills):
        most = memory.pages // sequences * memory.page_tokens
        length = min(max(int(fill * most), 1), most - grown, context - grown)
        if length >= 1 and sequences <= min(memory.sequences, memory.step_tokens):
            distinct[sequences, length] = None
    if not distinct:
        raise InputError("memory", memory, f"room for one of the sequences {config.sequences}")
    return list(distinct)


class _Lab:
    """The engine and its clock."""

    def __init__(
        self, generator: Generator, memory: Memory, config: StepsConfig, device: str, threads: int,
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._memory, self._config, self._clock, self._context = memory, config, clock, generator.context
        self._device = torch.device(device)
        self._engine = PagedEngine(load_generator(generator, device), memory)
        self._engine.enter(threads)

    def measure(self, sequences: int, length: int) -> list[Point]:
        """Measure one point for each share of a prompt that finds room beside these sequences."""
        for id in range(sequences):
            self._read(id, length)
        points, cached = [], sequences * length
        for tokens in self._prompts(sequences):
            rounds = self._config.warmup + self._config.repeats
            seconds = [self._iteration(tokens) for _ in range(rounds)][self._config.warmup :]
            middle = cached + sequences * (self._config.warmup + (self._config.repeats + 1) // 2) + tokens
            points.append(Point(sequences + tokens, sequences + (tokens > 0), middle, float(np.median(seconds))))
            cached += sequences * rounds
        for id in range(sequences):
            self._engine.cancel(id)
        return points

    def swap(self) -> float:
        """Measure a sequence of half the host's pages, or as long as the context allows; seconds a token and way."""
        memory = self._memory
        length = min(memory.host_pages // 2, memory.pages - 1) * memory.page_tokens
        length = min(length, self._context - 2)
        if length < 1:
            return 0.0
        self._read(0, length)
        taken = []
        for _ in range(self._config.warmup + self._config.repeats):
            start = self._clock()
            self._engine.carry_out(StepPlan(offloaded=(0,)))
            self._engine.carry_out(StepPlan(admitted=(0,), stalled=(0,)))
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)  # copies to and from pinned memory are not waited for
            taken.append(self._clock() - start)
        self._engine.cancel(0)
        return float(np.median(taken[self._config.warmup :])) / 2 / length

    def close(self) -> None:
        self._engine.close()

    def _read(self, id: int, length: int) -> None:
        """Read a sequence of `length` tokens into the cache; those before it wait meanwhile."""
        self._engine.add(id, [1] * length, 1 << 30)
        admitted: tuple[int, ...] = (id,)
        for start in range(0, length, self._memory.step_tokens):
            chunk = Chunk(id, min(self._memory.step_tokens, length - start))
            self._engine.carry_out(StepPlan(admitted=admitted, prefill_chunks=(chunk,), stalled=tuple(range(id))))
            self._engine.step()
            admitted = ()

    def _prompts(self, sequences: int) -> list[int]:
        """Return the tokens of prompts that find room: in the iteration, the context, and the pages that will be free."""
        if sequences == self._memory.sequences:
            return [0]
        spare = self._memory.step_tokens - sequences
        grown = (self._config.warmup + self._config.repeats) * len(self._config.prompts)
        pages = self._memory.pages - self._engine.pages_used - sequences * self._memory.need(grown)
        most = min(spare, self._context - 1, pages * self._memory.page_tokens)
        wanted = {int(share * spare) for share in self._config.prompts}
        return sorted(tokens for tokens in wanted if tokens <= max(most, 0))

    def _iteration(self, tokens: int) -> float:
        """Return the seconds while all sequences generate and a prompt of `tokens` is read, which is dropped afterwards."""
        decision = StepPlan()
        if tokens:
            self._engine.add(NEWCOMER, [1] * tokens, 2)
            decision = StepPlan(admitted=(NEWCOMER,), prefill_chunks=(Chunk(NEWCOMER, tokens),))
        start = self._clock()
        self._engine.carry_out(decision)
        self._engine.step()
        seconds = self._clock() - start
        self._engine.cancel(NEWCOMER)
        return seconds
