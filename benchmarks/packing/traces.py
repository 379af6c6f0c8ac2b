"""Loads of text generation from recorded traces: when requests arrive, how long their prompts and outputs are.

Vicuna-on-Alpaca, ShareGPT and Azure's LLM conversations of 2023, from the shared data folder. The first two have lengths
alone; the last has arrivals too. Knows no forecast and no scheduler. Every draw comes from the seed.
"""

from __future__ import annotations

from collections.abc import Mapping
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


@dataclass(frozen=True)
class Load:
    """Requests in order of arrival. `arrivals` in seconds from the start; `rows` of the lengths that each one takes."""

    name: str
    arrivals: Floats
    rows: Ints


SOURCES: Mapping[str, tuple[str, tuple[str, str], str]] = {
    # Prompts are not recorded: `prompt` holds the reference answer's tokens (see benchmarks/packing/vicuna.py).
    "vicuna": ("vicuna_alpaca_output_lengths.parquet", ("L_gt", TEMPERATURE), ""),
    "sharegpt": ("sharegpt_lengths.parquet", ("prompt_tokens", "output_tokens"), ""),
    "azure": ("azure_llm_2023_conversation.parquet", ("context_tokens", "generated_tokens"), "seconds"),
}
"""Name -> file, columns of prompt and output, and that of the seconds, if they are recorded."""


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
    file, columns, times = SOURCES[name]
    table = pandas.read_parquet(folder / file)
    prompt, output = (table[column].to_numpy(np.int64) for column in columns)
    if not times:
        return Lengths(name, prompt, output, np.empty(0))
    seconds = table[times].to_numpy(float)
    return Lengths(name, prompt, output, seconds - seconds.min()).part(np.argsort(seconds, kind="stable"))


def at_rate(of: Lengths, rate: float, seconds: float, seed: int) -> Load:
    """Return Poisson arrivals, each with the lengths of a row drawn anew (without repeats while there are enough)."""
    rng = np.random.default_rng([seed, 1])
    times, rows = poisson(rate, seconds, rng), len(of.prompt)
    turns = [rng.permutation(rows) for _ in range(-(-len(times) // max(rows, 1)))]
    drawn = np.concatenate(turns)[: len(times)] if turns else np.empty(0, np.int64)
    return Load(f"{of.name}, {rate:.3g}/s for {seconds:g} s", times, drawn)
