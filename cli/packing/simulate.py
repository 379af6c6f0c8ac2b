"""`pliant simulate packing`: what a load would cost on the champion's profile, by the scheduler that serves it and others.

Prompts, outputs and forecasts are those that the champion's plan was made with; a recorded trace brings its own lengths.
Requests that the model's context or the cache cannot hold are left out, and the title says how many. `oracle` knows
every output's length, which no policy can know in service.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant import comparison, loads
from pliant.cli import journal, options
from pliant.cli.packing.journal import as_request, lasted, prompts_of
from pliant.cli.plan import Play, Simulation, Uses
from pliant.errors import InputError, RegistryError
from pliant.flows import settings
from pliant.flows.champions import Champion, load_champions
from pliant.flows.packing import champions
from pliant.flows.release import open_registry
from pliant.packing.artifact import Packing
from pliant.packing.scheduling.policy import POLICIES
from pliant.packing.scheduling.reference import ReferenceConfig, capacity, reference_load, rules_of
from pliant.packing.scheduling.request import Prompt
from pliant.packing.scheduling.simulated import Observer, simulate, summary
from pliant.report import Observation
from pliant.worlds import Course

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

    @property
    def note(self) -> str:
        return f" ({self.left_out} requests too long, left out)" if self.left_out else ""


def run(args: Namespace) -> None:
    """Print a table for every champion: one line a policy. Raises `InputError`, `RegistryError` without a champion."""
    printed = []
    for champion, context in _champions(settings.prepare()):
        packing = champion.artifact
        requests = requests_of(args.load, packing, context, args.seed)
        rows = compared(packing, context, requests, args.policy)
        printed += [{"name": packing.name, "left_out": requests.left_out, **row} for row in rows]
        if not args.json:
            title = (
                f"{packing.name}{requests.note}: {args.load} on {packing.device_class}, {packing.memory.pages} pages"
            )
            options.show(title, HEADINGS, map(_cells, rows))
    if args.json:
        options.print_json(printed)


def _champions(project: settings.Settings) -> list[tuple[Champion[Packing], int]]:
    """Return the champions, each with its generator's context. Raises `RegistryError` without one."""
    registry = open_registry(project, "packing")
    models = load_champions(registry, Packing).values()
    if not models:
        raise RegistryError("the registry holds no champion of the packing system: run `pliant train packing` first")
    return [(champion, champions.fetch_generator(registry, champion).context) for champion in models]


def setting_names() -> dict[int, str]:
    """Return what a launch is called where it has no setting: an iteration of the engine."""
    return {0: "iterations of the engine"}


def compared(packing: Packing, context: int, requests: Load, policy: str | None) -> list[dict[str, Any]]:
    """Return the figures of the same requests under every policy, or under `policy` alone. Raises `InputError`.

    `context`: tokens of a prompt and its output together that the generator can hold.
    """
    names = [policy] if policy else POLICIES
    rules = {name: rules_of(packing, context, comparison.resolve("packing", name)) for name in names}
    rows, lengths = [], {prompt.id: prompt.exact for prompt in requests.prompts}
    for name, by in rules.items():
        run = simulate(requests.prompts, lengths, by, packing.memory, packing.steps)
        rows.append({"policy": name, "requests": len(requests.prompts), **asdict(summary(run))})
    return rows


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    latency = (f"{row[name]:.3g}" for name in ("completion", "p50", "p99"))
    return (
        *(row["policy"], str(row["requests"]), f"{row['sequences_per_second']:.2f}"),
        *(f"{row['tokens_per_second']:,.0f}", *latency, f"{1e3 * row['per_token']:.1f}"),
        *(str(row["preemptions"]), f"{row['recomputed']:.1%}", f"{row['batch']:.1f}"),
    )


def simulations(project: settings.Settings, load: str, policy: str = "default") -> list[Simulation]:
    """Return each champion's under a load. Raises `InputError`, `RegistryError` without one.

    A service has one device: several are as many services, to which requests go in turn.
    """

    def simulation(champion: Champion[Packing], context: int) -> Simulation:
        packing = champion.artifact
        rules = rules_of(packing, context, comparison.resolve("packing", policy))
        memory = packing.memory

        def play(
            prompts: Sequence[Prompt], workers: int, course: Course | None = None
        ) -> tuple[list[Observation], Uses]:
            seen, pages = list[Observation](), [0]
            lengths, of = {p.id: p.exact for p in prompts}, {p.id: as_request(p) for p in prompts}
            for own in (prompts[worker::workers] for worker in range(workers)):
                note: Observer = lambda _now, _given, _plan, scheduler: pages.append(scheduler.pages_used)  # noqa: E731
                for fate in simulate(own, lengths, rules, memory, packing.steps, observe=note, course=course).fates:
                    ended = None if fate.dropped else fate.ended
                    seen.append(Observation(of[fate.id], ended, dropped=fate.dropped or None))
            return seen, {f"of {memory.pages} pages at most": max(pages) / memory.pages}

        def draw(seed: int) -> tuple[Sequence[Prompt], Play]:
            return requests_of(load, packing, context, seed).prompts, play

        note = requests_of(load, packing, context, 0).note
        about = packing.name + note, packing.device_class, champion.published.created
        return Simulation(*about, draw, lambda path: lasted(path, packing.steps))

    return [simulation(champion, context) for champion, context in _champions(project)]


def requests_of(load: str, packing: Packing, context: int, seed: int) -> Load:
    """Return the load's prompts in order of arrival. Raises `InputError` for an unknown load, or one too large."""
    if load == "reference":
        return Load(reference_load(packing, context, capacity(packing), seed, ReferenceConfig()).prompts)
    if load.startswith(loads.JOURNAL):
        return _recorded(load, packing, context)
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


def _recorded(load: str, packing: Packing, context: int) -> Load:
    """Return a journal's prompts. Raises `InputError` for longer ones than the champion can hold.

    Prompts that were refused or left are as long as the median of the others, since nobody knows what they would have been.
    """
    journal.recorded(load, "packing", MOST_REQUESTS)
    prompts, known = prompts_of(Path(load.removeprefix(loads.JOURNAL)))
    usual = sorted(known.values())[len(known) // 2] if known else 1
    most = min(context, packing.memory.pages * packing.memory.page_tokens)
    if longer := sum(prompt.tokens + prompt.limit > most for prompt in prompts):
        limit = f"within the {most} tokens that the champion can hold"
        raise InputError("journal", f"{longer} longer prompts", limit)
    return Load(tuple(replace(each, exact=min(known.get(each.id, usual), each.limit)) for each in prompts))


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
