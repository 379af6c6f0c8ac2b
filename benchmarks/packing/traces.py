"""Loads of text generation from recorded traces: when requests arrive, how long their prompts and outputs are.

Vicuna-on-Alpaca, ShareGPT and Azure's LLM conversations of 2023, from the shared data folder. The first two have lengths
alone; the last has arrivals too. Knows no forecast and no scheduler. Every draw comes from the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.benchmarks import places
from pliant.benchmarks.places import SHARED
from pliant.errors import InputError
from pliant.workload import poisson

FOLDER = SHARED / "traces"
TEMPERATURE = "L_t0.0"  # of Vicuna's columns: greedy

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Lengths:
    """n requests in their recorded order. `prompt` and `output` in tokens, `seconds` from the first; empty: not recorded."""

    name: str
    prompt: Ints
    output: Ints
    seconds: Floats

    def part(self, rows: NDArray[Any]) -> Lengths:
        """Return those rows alone."""
        seconds = self.seconds[rows] if len(self.seconds) else self.seconds
        return replace(self, prompt=self.prompt[rows], output=self.output[rows], seconds=seconds)

    def fitting(self, context: int) -> tuple[Lengths, int]:
        """Return those whose prompt and output a model of so many tokens can hold, and how many it cannot."""
        fits = self.prompt + self.output <= context
        return self.part(fits), int((~fits).sum())


@dataclass(frozen=True)
class Load:
    """Requests in order of arrival. `arrivals` in seconds from the start; `rows` of the lengths that each one takes."""

    name: str
    arrivals: Floats
    rows: Ints
    offline: bool = False


def _vicuna(table: Any) -> tuple[Ints, Ints, Floats]:
    """Prompts are not recorded: `prompt` holds the reference answer's tokens (see benchmarks/packing/vicuna.py)."""
    return _whole(table["L_gt"]), _whole(table[TEMPERATURE]), np.empty(0)


def _sharegpt(table: Any) -> tuple[Ints, Ints, Floats]:
    return _whole(table["prompt_tokens"]), _whole(table["output_tokens"]), np.empty(0)


def _azure(table: Any) -> tuple[Ints, Ints, Floats]:
    return _whole(table["context_tokens"]), _whole(table["generated_tokens"]), table["seconds"].to_numpy(float)


def _whole(column: Any) -> Ints:
    whole: Ints = column.to_numpy(np.int64)
    return whole


SOURCES: Mapping[str, tuple[str, Callable[[Any], tuple[Ints, Ints, Floats]]]] = {
    "vicuna": ("vicuna_alpaca_output_lengths.parquet", _vicuna),
    "sharegpt": ("sharegpt_lengths.parquet", _sharegpt),
    "azure": ("azure_llm_2023_conversation.parquet", _azure),
}


def missing(*names: str, folder: Path = FOLDER) -> str:
    """Return why these traces (none named: all) cannot be read here; empty if they can."""
    return places.missing(*(folder / SOURCES[name][0] for name in names or SOURCES))


def lengths(name: str, folder: Path = FOLDER) -> Lengths:
    """Return all that the trace records. Raises `InputError` for one that is unknown or missing."""
    import pandas

    if name not in SOURCES:
        raise InputError("trace", name, f"one of {', '.join(SOURCES)}")
    if reason := missing(name, folder=folder):
        raise InputError("trace", name, f"a recorded one ({reason})")
    file, read = SOURCES[name]
    prompt, output, seconds = read(pandas.read_parquet(folder / file))
    order = np.argsort(seconds, kind="stable") if len(seconds) else np.arange(len(prompt))
    return Lengths(name, prompt, output, seconds - seconds.min() if len(seconds) else seconds).part(order)


def at_rate(of: Lengths, rate: float, seconds: float, seed: int) -> Load:
    """Return Poisson arrivals, each with the lengths of a row drawn anew (without repeats while there are enough)."""
    rng = np.random.default_rng([seed, 1])
    times = poisson(rate, seconds, rng)
    return Load(f"{of.name}, {rate:.3g}/s for {seconds:g} s", times, _drawn(len(of.prompt), len(times), rng))


def at_once(of: Lengths, count: int, seed: int) -> Load:
    """Return a batch that is there at the start."""
    rows = _drawn(len(of.prompt), count, np.random.default_rng([seed, 2]))
    return Load(f"{of.name}, {count:,} at once", np.zeros(count), rows, offline=True)


def _drawn(rows: int, count: int, rng: np.random.Generator) -> Ints:
    turns = [rng.permutation(rows) for _ in range(-(-count // max(rows, 1)))]
    return np.concatenate(turns)[:count] if turns else np.empty(0, np.int64)
