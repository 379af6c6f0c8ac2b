"""Measures vLLM's iterations in a process of its own environment, under Pliant's scheduler, as they are served.

Every point is a state of the cache: a number of sequences of one length that all generate, and beside them one prompt of
some tokens, or none. An iteration lasts from one step's tokens to the next step's. vLLM may decide on a step while the one
before it runs: what a prompt costs is therefore taken from all iterations until its first token, less those without it.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import IO, Any

from pliant.errors import WorkerError
from pliant.packing.scheduling.iteration_cost import Point
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory
from pliant.progress import Progress, silent
from pliant.serving.workers.child_process import Interpreter, pack, receive, sentence, spawn

ENTRY = "pliant.serving.packing.vllm.measuring:main"
AHEAD = 3  # iterations until a prompt's first token, at most, that vLLM takes for one that one iteration reads
EMPTY_STEPS = 1000  # steps without a token after which a measurement has failed


@dataclass(frozen=True, slots=True)
class MeasuringSpec:
    """What to measure. `states`: sequences and the tokens that each has in the cache; `prompts`: shares of a step's tokens.

    `folder`: of the model, as vLLM reads it; `token_bytes`: of one token's keys and values; `log`: what vLLM prints.
    """

    folder: Path
    context: int
    precision: str
    memory: Memory
    token_bytes: int
    device: str
    threads: int | None
    states: tuple[tuple[int, int], ...]
    prompts: tuple[float, ...]
    warmup: int
    repeats: int
    log: Path


def measure(interpreter: Interpreter, spec: MeasuringSpec, progress: Progress = silent) -> list[Point]:
    """Return the measured iterations. Raises `WorkerError` where vLLM fails."""
    channel, process = spawn(ENTRY, interpreter=interpreter)
    try:
        with channel, channel.makefile("rb") as incoming:
            channel.sendall(pack(spec))
            while True:
                kind, value = receive(incoming)
                if kind == "points":
                    points: list[Point] = value
                    return points
                if kind == "failed":
                    raise WorkerError(f"vLLM could not be measured: {value}; see {spec.log}")
                progress(value, len(spec.states) + 1)
    except (EOFError, ConnectionError):
        raise WorkerError(
            f"vLLM's process ended with status {process.wait()} while it was measured; see {spec.log}"
        ) from None
    finally:
        process.kill()
        process.wait()


def main(channel: socket.socket, incoming: IO[bytes]) -> None:
    """Measure what the parent asks for, and send it `progress`, and then `points` or `failed`."""
    spec: MeasuringSpec = receive(incoming)
    with spec.log.open("ab") as log:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(log.fileno(), stream.fileno())
    try:
        channel.sendall(pack(("points", _points(spec, lambda done: channel.sendall(pack(("progress", done)))))))
    except Exception as error:  # anything from vLLM: the parent says it
        channel.sendall(pack(("failed", sentence(error, "vLLM could not be measured"))))


def _points(spec: MeasuringSpec, report: Callable[[int], None]) -> list[Point]:
    from pliant.packing.vllm.adapter import Embedding
    from pliant.serving.packing.vllm.running import llm_engine, set_variables

    set_variables(spec.memory, spec.token_bytes, spec.device, spec.threads)
    embedding = Embedding(Rules("paged", spec.context + 1), spec.memory.sequences, None)
    on_cpu = spec.device == "cpu"
    lab = Lab(spec, llm_engine(spec.folder, spec.context, spec.memory, embedding, spec.precision, on_cpu))
    report(1)
    points: list[Point] = []
    for number, (sequences, length) in enumerate(spec.states):
        points += lab.measure(sequences, length)
        report(number + 2)
    return points


class Lab:
    """vLLM's engine and its clock."""

    def __init__(self, spec: MeasuringSpec, engine: Any, clock: Callable[[], float] = time.perf_counter) -> None:
        self._spec, self._engine, self._clock = spec, engine, clock
        self._number = 0

    def measure(self, sequences: int, length: int) -> list[Point]:
        """Measure a point for each share of a prompt that finds room beside sequences of `length` tokens in the cache."""
        names = [self._add(length, self._spec.context - length) for _ in range(sequences)]
        begun: set[str] = set()
        while len(begun) < sequences:
            begun |= self._iterate()[1]
        points, passed = list[Point](), 1
        for tokens in self._prompts(sequences, length):
            seconds, passing = self._plain() if not tokens else self._beside(tokens, points[0].seconds)
            cached = sequences * (length + passed + passing // 2) + tokens
            points.append(Point(sequences + tokens, sequences + (tokens > 0), cached, seconds))
            passed += passing
        self._engine.abort_request(names)
        while self._engine.has_unfinished_requests():
            self._engine.step()
        return points

    def _prompts(self, sequences: int, length: int) -> list[int]:
        """Return the tokens of prompts that find room: in the iteration, the context, and the pages that will be free."""
        spec, memory = self._spec, self._spec.memory
        if sequences >= memory.sequences:
            return [0]
        spare = memory.step_tokens - sequences
        grown = length + (spec.warmup + spec.repeats) * len(spec.prompts) * AHEAD + 1
        pages = memory.pages - sequences * memory.need(grown)
        most = min(spare, spec.context - 2, pages * memory.page_tokens)
        wanted = {int(share * spare) for share in spec.prompts}
        return sorted({0} | {tokens for tokens in wanted if tokens <= max(most, 0)})

    def _plain(self) -> tuple[float, int]:
        """Return the median seconds of an iteration in which all sequences generate, and how many iterations passed."""
        rounds = self._spec.warmup + self._spec.repeats
        return median([self._iterate()[0] for _ in range(rounds)][self._spec.warmup :]), rounds

    def _beside(self, tokens: int, plain: float) -> tuple[float, int]:
        """Return the median seconds of an iteration that reads a prompt of `tokens`, too, and how many iterations passed."""
        seconds, passed = [], 0
        for _ in range(self._spec.warmup + self._spec.repeats):
            name, taken, iterations, has = self._add(tokens, 1), 0.0, 0, set[str]()
            while name not in has:
                each, has = self._iterate()
                taken, iterations = taken + each, iterations + 1
            seconds.append(taken - (iterations - 1) * plain)
            passed += iterations
        return max(median(seconds[self._spec.warmup :]), plain), passed

    def _add(self, tokens: int, limit: int) -> str:
        """Add a text whose prompt nobody shares, and return its name."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        self._number += 1
        name = str(self._number)
        prompt = {"prompt_token_ids": [1] * tokens, "cache_salt": name}
        sampling = SamplingParams(
            temperature=0.0,
            max_tokens=limit,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        self._engine.add_request(name, prompt, sampling)
        return name

    def _iterate(self) -> tuple[float, set[str]]:
        """Run steps until one has tokens. Returns the seconds and the names of the texts that got one."""
        start = self._clock()
        for _ in range(EMPTY_STEPS):
            names = {output.request_id for output in self._engine.step() if output.outputs[0].token_ids}
            if names:
                return self._clock() - start, names
        raise WorkerError(f"no token in {EMPTY_STEPS} steps")
