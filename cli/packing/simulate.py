"""`pliant simulate packing`: what a load would cost on the champion's profile, by the scheduler that serves it and others.

Prompts, outputs and forecasts are those that the champion's plan was made with; a recorded trace brings lengths of its own.
What the model's context or the cache cannot hold is left out and told. `oracle` is told every output's length, which nobody
knows before.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Column, Table

from cli import loads
from flows import settings
from flows.packing import live
from pliant.errors import InputError, RegistryError
from pliant.packing.artifact import Packing
from pliant.packing.scheduling.plan import rules_of
from pliant.packing.scheduling.policy import POLICIES
from pliant.packing.scheduling.reference import ReferenceConfig, capacity, reference_load
from pliant.packing.scheduling.request import Prompt
from pliant.packing.scheduling.simulated import Summary, simulate, summary

MOST_REQUESTS = 50_000
HEADINGS = (
    *("policy", "asked", "requests/s", "tokens/s", "mean s", "p50 s", "p99 s", "ms/token"),
    *("preemptions", "recomputed", "batch"),
)
COLUMNS = ("prompt_tokens", "output_tokens")  # of a trace, beside `seconds`
AZURE_SECONDS = "300"


@dataclass(frozen=True)
class Asked:
    prompts: tuple[Prompt, ...]
    left_out: int = 0  # requests that the model cannot hold


def run(args: Namespace) -> None:
    """`pliant simulate packing`."""
    simulate_load(args.load, args.policy, args.seed)


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
    kind, *numbers = load.split(":")
    if load == "reference":
        asked = reference_load(packing, context, capacity(packing), seed, ReferenceConfig()).prompts
        return Asked(asked)
    if kind in ("azure", "sharegpt"):
        return _traced(load, kind, numbers, packing, context, seed)
    rng = np.random.default_rng(seed)
    drawn = loads.drawn(load, MOST_REQUESTS, rng)
    if drawn is not None:
        return _observed(packing, context, drawn, rng)
    if not load.startswith(loads.TRACE):
        if not Path(load).is_file():
            raise InputError(
                "load", load, f"{loads.DRAWN} or trace:FILE, with the columns seconds, {', '.join(COLUMNS)}"
            )
        loads.warn("FILE", "trace:FILE")
    return _read(loads.trace(load, COLUMNS, MOST_REQUESTS), load, packing, context)


def _observed(packing: Packing, context: int, times: NDArray[np.float64], rng: np.random.Generator) -> Asked:
    """Observed requests at random, at these arrivals."""
    rows = rng.integers(len(packing.output_tokens), size=len(times))
    return _asked(
        packing,
        context,
        times,
        (packing.prompt_tokens[rows], packing.output_tokens[rows]),
        packing.forecasts[rows],
        packing.buckets[rows],
    )


def _traced(load: str, name: str, numbers: Sequence[str], packing: Packing, context: int, seed: int) -> Asked:
    """azure[:SECONDS] as recorded, or sharegpt:RATE:SECONDS, from data beside a checkout."""
    from benchmarks.packing import traces
    from benchmarks.packing.forecasts import by_prompt

    loads.warn(name, f"trace:FILE, with the columns seconds, {', '.join(COLUMNS)}")
    if name == "azure":
        rate, seconds = 0.0, _seconds(load, numbers)
    else:
        rate, seconds = loads.rate_and_seconds(load, numbers, MOST_REQUESTS)
    known = by_prompt(traces.lengths(name), context)
    start = float(known.lengths.seconds[0]) if len(known.lengths.seconds) else 0.0
    recorded = (
        traces.at_rate(known.lengths, rate, seconds, seed)
        if rate
        else traces.as_recorded(known.lengths, start, seconds)
    )
    rows = recorded.rows
    lengths = known.lengths.prompt[rows], known.lengths.output[rows]
    asked = _asked(packing, context, recorded.arrivals, lengths, known.forecasts_NL[rows], known.buckets[rows])
    return replace(asked, left_out=asked.left_out + known.left_out)


def _seconds(load: str, numbers: Sequence[str]) -> float:
    try:
        (seconds,) = (float(number) for number in numbers or [AZURE_SECONDS])
    except ValueError:
        raise InputError("load", load, "azure or azure:SECONDS, a number") from None
    if not 0 < seconds < float("inf"):
        raise InputError("load", load, "azure:SECONDS, above 0")
    return seconds


def _read(trace: Mapping[str, NDArray[np.float64]], load: str, packing: Packing, context: int) -> Asked:
    """Recorded requests; every one is forecast what was observed of all."""
    prompt, output = (trace[name].astype(np.int64) for name in COLUMNS)
    if min(prompt.min(), output.min()) < 1:
        raise InputError("load", load, "prompts and outputs of at least 1 token")
    same = np.tile(np.median(packing.forecasts, axis=0), (len(prompt), 1))
    bucket = np.full(len(prompt), np.bincount(packing.buckets).argmax())
    return _asked(packing, context, trace[loads.SECONDS], (prompt, output), same, bucket)


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
