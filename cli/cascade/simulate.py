"""`pliant simulate cascade`: what a load would cost on the champion's profile, by the scheduler that serves it.

Texts are those of the champion's test split, of which every level's output is kept in the store.
"""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from dataclasses import replace

import numpy as np
from rich.console import Console
from rich.table import Column, Table

from pliant import loads
from pliant.cascade.artifact import Cascade, Outputs
from pliant.cascade.knowledge import knowledge, numbers
from pliant.cascade.route import number_of
from pliant.cascade.scheduler import CascadeScheduler
from pliant.cascade.simulated import (
    BY_BAG,
    ReferenceConfig,
    SimulatedCascade,
    capacity,
    play,
    reference_load,
    walks,
)
from pliant.errors import RegistryError
from pliant.flows import settings
from pliant.flows.cascade.champions import outputs_on_test
from pliant.flows.champions import load_champions
from pliant.flows.release import open_registry
from pliant.protocol import Request
from pliant.registry.store import FolderStore
from pliant.report import Report, summarise
from pliant.workload import ReferenceLoad

MOST_REQUESTS = 200_000
DEADLINE = 0.5
KINDS = f"{loads.DRAWN} or trace:FILE"
SHARES = sum(ReferenceConfig().quiet) + sum(ReferenceConfig().loud)
COMPARED = ("default", "tabi", "single", "voting")
HEADINGS = ("candidate", "requests", "utility", "in time", "acc.", "p50 ms", "p99 ms", "level", "dropped")


def run(args: Namespace) -> None:
    """`pliant simulate cascade`: print a table for every task with a champion, one line a candidate.

    Raises `InputError`, `RegistryError`.
    """
    project = settings.prepare()
    tasks = load_champions(open_registry(project, "cascade"), Cascade)
    if not tasks:
        raise RegistryError("the registry holds no champion of the cascade system: run `pliant train cascade` first")
    for champion in tasks.values():
        cascade, outputs = champion.artifact, outputs_on_test(champion, FolderStore(project.store))
        if outputs is None:
            raise RegistryError(
                f"the saved outputs of {cascade.task} are gone from the store: run `pliant train cascade` again"
            )
        known, walked = knowledge([cascade], args.workers), {cascade.task: walks(cascade, outputs)}
        load = _load(args.load, cascade, outputs, args.workers * capacity(known, walked), args.seed)
        numbers = [number for number, each in enumerate(cascade.candidates) if each.name in COMPARED]
        if args.candidate is not None:
            numbers = [number_of(cascade, args.candidate)]
        first, *others = HEADINGS
        title = f"{cascade.task}: {args.load} on {args.workers} x {cascade.device}"
        table = Table(Column(first, no_wrap=True), *others, title=title)
        for number in numbers:
            requests = [replace(request, setting=number) for request in load.requests]
            rng = np.random.default_rng(args.seed)
            device = SimulatedCascade(known, walked, requests, load.rows, rng, jitter=0.05)
            seen = play(CascadeScheduler(known, args.workers), known, walked, requests, load.rows, device)
            table.add_row(*_row(cascade, number, summarise(seen)))
        Console(emoji=False).print(table)


def _load(load: str, cascade: Cascade, outputs: Outputs, throughput: float, seed: int) -> ReferenceLoad:
    """Return the load's requests. `throughput`: requests a second that the devices can answer. Raises `InputError`."""
    lengths = outputs.levels[0].length
    if load == "reference":
        longest = MOST_REQUESTS / 10 / (SHARES * throughput)
        config = ReferenceConfig(seconds=min(ReferenceConfig().seconds, longest))
        return reference_load({cascade.task: [int(n) for n in lengths]}, throughput, seed, config)
    rng = np.random.default_rng(seed)
    if load.startswith(loads.TRACE):
        times = loads.trace(load, (), MOST_REQUESTS)[loads.SECONDS]
    else:
        times = loads.drawn(load, KINDS, MOST_REQUESTS, rng)
    rows = [int(row) for row in rng.integers(len(lengths), size=len(times))]
    requests = tuple(
        Request(number, float(at), float(at) + DEADLINE, cascade.task, 1.0, int(lengths[row]))
        for number, (at, row) in enumerate(zip(times, rows, strict=True))
    )
    return ReferenceLoad(requests, rows=tuple(rows))


def _row(cascade: Cascade, number: int, result: Report) -> tuple[str, ...]:
    answered = max(1, sum(result.settings.values()))
    level_of = {number: level for (_, level, _), number in numbers([cascade]).items()}
    given = Counter[str]()
    for model, count in result.settings.items():
        level = cascade.candidates[number].levels[0] if model == BY_BAG else level_of[model]
        given[cascade.levels[level].name] += count
    return (
        cascade.candidates[number].name,
        str(result.requests),
        f"{result.utility:.0f}",
        f"{result.attainment:.1%}",
        f"{result.accuracy:.3f}",
        f"{1e3 * result.p50:.1f}",
        f"{1e3 * result.p99:.1f}",
        " ".join(f"{name}:{count / answered:.0%}" for name, count in given.items()),
        ", ".join(f"{reason}: {count}" for reason, count in result.drops.items()) or "-",
    )
