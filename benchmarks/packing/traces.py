"""Loads of text generation from recorded traces: when requests arrive, how long prompts and outputs are, and forecasts.

Vicuna-on-Alpaca, ShareGPT and Azure's LLM conversations of 2023, from the shared data folder. The first two have lengths
alone; the last has arrivals too. Knows no scheduler. Every draw comes from the seed.

Forecasts are what a predictor would have said of the outputs, fitted on some rows, used on others. A predictor is known here
by one score a request (more: longer). `Conditional` turns scores into quantiles of the output's tokens, as the rows that it
was fitted on had them. Where nothing but a prompt's length is recorded, that is the score. Shapes: N requests, L levels, B
bins.
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
from pliant.packing.artifact import BUCKETS
from pliant.packing.scheduling.forecast import QUANTILES
from pliant.workload import poisson

FOLDER = SHARED / "traces"
TEMPERATURE = "L_t0.0"  # of Vicuna's columns: greedy
BINS = 20  # of scores

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


@dataclass(frozen=True)
class Foretold:
    """Requests with what was said of them before they ran."""

    lengths: Lengths
    forecasts_NL: Floats  # tokens
    buckets: Ints  # [N] upper bound of the predicted class, tokens
    context: int  # tokens of a prompt and its output together
    limit: int  # tokens of an output, as clients ask for it


@dataclass(frozen=True)
class Conditional:
    """Quantiles and class of the output's tokens, given a score: linear between the bins' centres."""

    centres: Floats  # [B] ascending
    logs_BL: Floats
    buckets: Ints  # [B] commonest class, as its upper bound in tokens
    edges: Floats  # [B - 1] between the bins

    @staticmethod
    def fit(scores: Floats, tokens: Ints, width: int) -> Conditional:
        """Fit bins with equally many rows each; `width` tokens have the classes."""
        bins = np.array_split(np.argsort(scores, kind="stable"), BINS)
        centres = np.array([scores[rows].mean() for rows in bins])
        logs = np.array([np.log(np.quantile(tokens[rows], QUANTILES)) for rows in bins])
        classes = [np.bincount(classes_of(tokens[rows], width)).argmax() for rows in bins]
        edges = np.array([scores[rows[0]] for rows in bins[1:]])
        return Conditional(centres, logs, (np.array(classes) + 1) * width, edges)

    def forecasts(self, scores: Floats) -> Floats:
        """Return tokens [N, L]."""
        columns = [np.interp(scores, self.centres, column) for column in self.logs_BL.T]
        tokens: Floats = np.exp(np.stack(columns, axis=1))
        return tokens

    def classes(self, scores: Floats) -> Ints:
        """Return upper bounds [N] in tokens."""
        return self.buckets[np.searchsorted(self.edges, scores, side="right")]


def classes_of(tokens: Ints, width: int) -> Ints:
    """Return the number [N] of the class that an output belongs to: the first holds up to `width` tokens."""
    return np.minimum((tokens - 1) // width, BUCKETS - 1)


def foretold(scores: Floats, of: Lengths, fitted: Ints, kept: Ints, context: int, limit: int = 0) -> Foretold:
    """Forecast the rows `kept` by quantiles fitted on the rows `fitted`. Without a `limit` the context is it.

    Classes are equal parts of the longest output (S3, section 3.1).
    """
    limit = limit or context
    width = -(-limit // BUCKETS)
    conditional = Conditional.fit(scores[fitted], of.output[fitted], width)
    forecasts, buckets = conditional.forecasts(scores[kept]), conditional.classes(scores[kept])
    return Foretold(of.part(kept), forecasts, buckets, context, limit)


def by_prompt(of: Lengths, context: int, share: float = 0.5) -> Foretold:
    """Forecast by nothing but the prompt's tokens, fitted on the first `share` of the recording, for the rest of it.

    Clients are taken to ask for at most the trace's longest output. Raises `InputError` where too few requests fit.
    """
    fits = of.part(of.prompt + of.output <= context)
    if len(fits.prompt) < 2 * BINS:
        raise InputError("context", context, f"one that holds at least {2 * BINS} requests of {of.name}")
    rows = np.arange(len(fits.prompt))
    cut = int(share * len(rows))
    scores = fits.prompt + 1e-3 * np.random.default_rng(0).random(len(rows))  # equal prompts: in no order
    limit = int(fits.output.max())
    return foretold(scores, fits, rows[:cut], rows[cut:], context, limit)
