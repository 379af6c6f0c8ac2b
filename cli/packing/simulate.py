"""`pliant simulate packing`: what a load would cost on the champion's profile, by the scheduler that serves it and others.

Prompts, outputs and forecasts are those that the champion's plan was made with; a recorded trace brings its own lengths.
Requests that the model's context or the cache cannot hold are left out, and the title says how many. `oracle` knows
every output's length, which no policy can know in service.
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Column, Table

from pliant import comparison, loads
from pliant.errors import InputError, RegistryError
from pliant.flows import settings
from pliant.flows.champions import load_champions
from pliant.flows.packing import champions
from pliant.flows.release import open_registry
from pliant.packing.artifact import Packing
from pliant.packing.scheduling.policy import POLICIES
from pliant.packing.scheduling.reference import ReferenceConfig, capacity, reference_load, rules_of
from pliant.packing.scheduling.request import Prompt
from pliant.packing.scheduling.simulated import simulate, summary

MOST_REQUESTS = 50_000
HEADINGS = (
    *("policy", "requests", "requests/s", "tokens/s", "mean s", "p50 s", "p99 s", "ms/token"),
    *("preemptions", "recomputed", "batch"),
)
COLUMNS = ("prompt_tokens", "output_tokens")  # of a trace, beside `seconds`


@dataclass(frozen=True)
class Load:
    """Requests in order of arrival; `left_out`: how many are not among them since the model cannot hold them."""

    prompts: tuple[Prompt, ...]
    left_out: int = 0


def run(args: Namespace) -> None:
    """Print a table for every champion: one line a policy. Raises `InputError`, `RegistryError` without a champion."""
    project = settings.prepare()
    registry = open_registry(project, "packing")
    models = load_champions(registry, Packing)
    if not models:
        raise RegistryError("the registry holds no champion of the packing system: run `pliant train packing` first")
    for champion in models.values():
        context = champions.fetch_generator(registry, champion).context
        Console(emoji=False).print(compared(champion.artifact, context, args.load, args.policy, args.seed))


def compared(packing: Packing, context: int, load: str, policy: str | None, seed: int) -> Table:
    """Return a table of the same requests under every policy, or under `policy` alone. Raises `InputError`.

    `context`: tokens of a prompt and its output together that the generator can hold.
    """
    own = comparison.resolve("packing", policy) if policy else ""
    if policy is not None and policy == own and policy not in POLICIES:
        raise InputError("policy", policy, f"one of {', '.join(POLICIES)}")
    requests = requests_of(load, packing, context, seed)
    first, *others = HEADINGS
    out = f" ({requests.left_out} requests too long, left out)" if requests.left_out else ""
    title = f"{packing.name}: {load} on {packing.device_class}, {packing.memory.pages} pages{out}"
    table = Table(Column(first, no_wrap=True), *others, title=title)
    for name in [policy] if policy else POLICIES:
        rules = rules_of(packing, context, name if isinstance(own, str) else "default")
        rules = rules if isinstance(own, str) else replace(rules, policy=own)
        lengths = {prompt.id: prompt.exact for prompt in requests.prompts}
        result = summary(simulate(requests.prompts, lengths, rules, packing.memory, packing.steps))
        latency = (f"{seconds:.3g}" for seconds in (result.completion, result.p50, result.p99))
        table.add_row(
            *(name, str(len(requests.prompts)), f"{result.sequences_per_second:.2f}"),
            *(f"{result.tokens_per_second:,.0f}", *latency, f"{1e3 * result.per_token:.1f}"),
            *(str(result.preemptions), f"{result.recomputed:.1%}", f"{result.batch:.1f}"),
        )
    return table


def requests_of(load: str, packing: Packing, context: int, seed: int) -> Load:
    """Return the load's prompts in order of arrival. Raises `InputError` for an unknown load, or one too large."""
    if load == "reference":
        return Load(reference_load(packing, context, capacity(packing), seed, ReferenceConfig()).prompts)
    rng = np.random.default_rng(seed)
    if not load.startswith(loads.TRACE):  # each is one of those observed
        kinds = f"{loads.DRAWN} or trace:FILE, with the columns seconds, {', '.join(COLUMNS)}"
        drawn = loads.drawn(load, kinds, MOST_REQUESTS, rng)
        rows = rng.integers(len(packing.output_tokens), size=len(drawn))
        lengths = packing.prompt_tokens[rows], packing.output_tokens[rows]
        return _fitting(packing, context, drawn, lengths, packing.forecasts[rows], packing.buckets[rows])
    trace = loads.trace(load, COLUMNS, MOST_REQUESTS)  # each with the median of the observed forecasts
    prompt, output = (trace[name].astype(np.int64) for name in COLUMNS)
    if min(prompt.min(), output.min()) < 1:
        raise InputError("load", load, "prompts and outputs of at least 1 token")
    same = np.tile(np.median(packing.forecasts, axis=0), (len(prompt), 1))
    bucket = np.full(len(prompt), np.bincount(packing.buckets).argmax())
    return _fitting(packing, context, trace[loads.SECONDS], (prompt, output), same, bucket)


def _fitting(
    packing: Packing,
    context: int,
    times: NDArray[np.float64],
    lengths: tuple[NDArray[np.integer], NDArray[np.integer]],
    forecasts: NDArray[np.floating],
    buckets: NDArray[np.integer],
) -> Load:
    """Return prompts in order of arrival, without those that the model's context or the cache cannot hold."""
    memory = packing.memory
    most = min(context, memory.pages * memory.page_tokens)
    prompts = []
    for number, (at, prompt, output) in enumerate(zip(times.tolist(), *(x.tolist() for x in lengths), strict=True)):
        if prompt + output <= most:
            forecast = tuple(forecasts[number].tolist())
            prompts.append(Prompt(number, at, prompt, most - prompt, forecast, int(buckets[number]), exact=output))
    if not prompts:
        raise InputError(
            "load", f"{len(times)} requests", f"at least one whose prompt and output are within {most} tokens"
        )
    return Load(tuple(prompts), len(times) - len(prompts))
