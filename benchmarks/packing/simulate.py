"""`pliant simulate packing`: what a load would cost on the champion's profile, by the scheduler that serves it and others.

Prompts, outputs and forecasts are those that the champion's plan was made with; the recorded traces bring lengths of their
own and forecasts by their prompts' length (benchmarks/packing/forecasts.py), and what the model's context or the cache
cannot hold is left out and told. `oracle` is told every output's length, which nobody knows before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Column, Table

from benchmarks.packing import traces
from benchmarks.packing.forecasts import by_prompt
from benchmarks.packing.traces import as_recorded, at_rate
from flows import settings
from flows.packing import live
from pliant.errors import InputError, RegistryError
from pliant.packing.artifact import Packing
from pliant.packing.scheduling.plan import rules_of
from pliant.packing.scheduling.policy import POLICIES
from pliant.packing.scheduling.reference import ReferenceConfig, capacity, reference_load
from pliant.packing.scheduling.request import Prompt
from pliant.packing.scheduling.simulated import Summary, simulate, summary
from pliant.workload import poisson

MOST_REQUESTS = 50_000
HEADINGS = (
    *("policy", "asked", "requests/s", "tokens/s", "mean s", "p50 s", "p99 s", "ms/token"),
    *("preemptions", "recomputed", "batch"),
)
KINDS = (
    "reference, poisson:RATE:SECONDS, azure[:SECONDS], sharegpt:RATE:SECONDS or a parquet file with the columns seconds, "
    "prompt_tokens and output_tokens"
)
COLUMNS = ("seconds", "prompt_tokens", "output_tokens")
AZURE_SECONDS = 300.0


@dataclass(frozen=True)
class Asked:
    prompts: tuple[Prompt, ...]
    left_out: int = 0  # requests that the model cannot hold


def simulate_load(load: str, policy: str | None, seed: int) -> None:
    """Print a table for every live model: one line a policy. Raises `InputError`, `RegistryError` without a champion."""
    told = settings.read()
    settings.prepare(told)
    registry = live.open_registry(told)
    found = live.live(registry)
    if not found:
        raise RegistryError("the registry holds no champion of the packing system: run `pliant train packing` first")
    for one in found.values():
        context = live.generator(registry, one).context
        Console(emoji=False).print(compared(one.packing, context, load, policy, seed))


def compared(packing: Packing, context: int, load: str, policy: str | None, seed: int) -> Table:
    """The same requests under each policy (or one): `context` is the generator's."""
    if policy is not None and policy not in POLICIES:
        raise InputError("policy", policy, f"one of {', '.join(POLICIES)}")
    asked = requests(load, packing, context, seed)
    first, *others = HEADINGS
    out = f" ({asked.left_out} requests too long, left out)" if asked.left_out else ""
    title = f"{packing.name}: {load} on {packing.device_class}, {packing.memory.pages} pages{out}"
    table = Table(Column(first, no_wrap=True), *others, title=title)
    for name in [policy] if policy else POLICIES:
        table.add_row(*_row(packing, context, name, asked.prompts))
    return table


def _row(packing: Packing, context: int, policy: str, prompts: Sequence[Prompt]) -> tuple[str, ...]:
    rules = rules_of(packing, context, policy)
    run = simulate(prompts, {one.id: one.exact for one in prompts}, rules, packing.memory, packing.steps)
    return policy, str(len(prompts)), *_figures(summary(run))


def _figures(told: Summary) -> tuple[str, ...]:
    seconds = (f"{x:.3g}" for x in (told.completion, told.p50, told.p99))
    speed = f"{told.sequences_per_second:.2f}", f"{told.tokens_per_second:,.0f}"
    again = str(told.preemptions), f"{told.recomputed:.1%}"
    return *speed, *seconds, f"{1e3 * told.per_token:.1f}", *again, f"{told.batch:.1f}"


def requests(load: str, packing: Packing, context: int, seed: int) -> Asked:
    """The load's prompts, in order. Raises `InputError` for a load that is none, or too large."""
    kind, *told = load.split(":")
    if load == "reference":
        asked = reference_load(packing, context, capacity(packing), seed, ReferenceConfig()).prompts
        return Asked(asked)
    if kind == "poisson":
        rate, seconds = _numbers(load, told, 2)
        return _observed(packing, context, *_rated(load, rate, seconds), seed)
    if kind == "sharegpt":
        rate, seconds = _rated(load, *_numbers(load, told, 2))
        return _traced(packing, context, "sharegpt", (rate, seconds), seed)
    if kind == "azure":
        (seconds,) = _numbers(load, told or [str(AZURE_SECONDS)], 1)
        return _traced(packing, context, "azure", (0.0, seconds), seed)
    return _read(Path(load), packing, context)


def _numbers(load: str, told: Sequence[str], count: int) -> tuple[float, ...]:
    try:
        values = tuple(float(part) for part in told)
    except ValueError:
        raise InputError("load", load, KINDS) from None
    if len(values) != count or not all(0 < value < float("inf") for value in values):
        raise InputError("load", load, f"{KINDS}, with numbers above 0")
    return values


def _rated(load: str, rate: float, seconds: float) -> tuple[float, float]:
    if rate * seconds > MOST_REQUESTS:
        raise InputError("load", load, f"at most {MOST_REQUESTS:,} requests")
    return rate, seconds


def _observed(packing: Packing, context: int, rate: float, seconds: float, seed: int) -> Asked:
    """Observed requests at random, at Poisson arrivals."""
    rng = np.random.default_rng(seed)
    times = poisson(rate, seconds, rng)
    rows = rng.integers(len(packing.output_tokens), size=len(times))
    return _asked(
        packing,
        context,
        times,
        (packing.prompt_tokens[rows], packing.output_tokens[rows]),
        packing.forecasts[rows],
        packing.buckets[rows],
    )


def _traced(packing: Packing, context: int, name: str, told: tuple[float, float], seed: int) -> Asked:
    """`told`: rate and seconds; a rate of 0 takes the recorded arrivals."""
    of = by_prompt(traces.lengths(name), context)
    rate, seconds = told
    start = float(of.lengths.seconds[0]) if len(of.lengths.seconds) else 0.0
    load = at_rate(of.lengths, rate, seconds, seed) if rate else as_recorded(of.lengths, start, seconds)
    rows = load.rows
    lengths = of.lengths.prompt[rows], of.lengths.output[rows]
    found = _asked(packing, context, load.arrivals, lengths, of.forecasts_NL[rows], of.buckets[rows])
    return replace(found, left_out=found.left_out + of.left_out)


def _read(path: Path, packing: Packing, context: int) -> Asked:
    """Recorded requests; every one is forecast what was observed of all."""
    import pandas

    if not path.is_file():
        raise InputError("load", path, KINDS)
    try:
        table = pandas.read_parquet(path)[list(COLUMNS)].astype(float).sort_values("seconds")
    except Exception as error:
        raise InputError("load", path, f"a parquet file with numbers in {', '.join(COLUMNS)}") from error
    seconds, prompt, output = (table[name].to_numpy(float) for name in COLUMNS)
    if (
        not 0 < len(table) <= MOST_REQUESTS
        or not np.isfinite(table).all(axis=None)
        or min(prompt.min(), output.min()) < 1
    ):
        limit = f"1 to {MOST_REQUESTS:,} requests, none with a missing number or fewer than 1 token"
        raise InputError("load", path, limit)
    whole = prompt.astype(np.int64), output.astype(np.int64)
    same = np.tile(np.median(packing.forecasts, axis=0), (len(table), 1))
    bucket = np.full(len(table), np.bincount(packing.buckets).argmax())
    return _asked(packing, context, seconds - seconds[0], whole, same, bucket)


def _asked(
    packing: Packing,
    context: int,
    times: NDArray[np.float64],
    lengths: tuple[NDArray[np.integer], NDArray[np.integer]],
    forecasts: NDArray[np.floating],
    buckets: NDArray[np.integer],
) -> Asked:
    """Prompts in order of arrival, without those that can never run."""
    memory = packing.memory
    most = min(context, memory.pages * memory.page_tokens)
    made = []
    for number, (at, prompt, output) in enumerate(zip(times.tolist(), *(x.tolist() for x in lengths), strict=True)):
        if prompt + output <= most:
            told = tuple(forecasts[number].tolist())
            made.append(Prompt(number, at, prompt, most - prompt, told, int(buckets[number]), exact=output))
    if not made:
        raise InputError(
            "load", f"{len(times)} requests", f"at least one whose prompt and output are within {most} tokens"
        )
    return Asked(tuple(made), len(times) - len(made))
