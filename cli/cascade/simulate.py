"""`pliant simulate cascade`: what a load would cost on the champion's profile, by the scheduler that serves it.

Texts are those of the champion's test split, of which every level's output is kept in the store.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from rich.console import Console
from rich.table import Column, Table

from pliant.cascade.artifact import Cascade, Outputs
from pliant.cascade.knowledge import Knowledge, knowledge
from pliant.cascade.route import number_of
from pliant.cascade.scheduler import CascadeScheduler
from pliant.cascade.simulated import (
    ReferenceConfig,
    ReferenceLoad,
    SimulatedCascade,
    Walks,
    capacity,
    reference_load,
    walks,
)
from pliant.cli import loads
from pliant.errors import InputError, RegistryError
from pliant.flows import settings
from pliant.flows.cascade.champions import load_champions, outputs_on_test
from pliant.flows.champions import Champion
from pliant.flows.release import open_registry
from pliant.protocol import Request
from pliant.registry.store import FolderStore
from pliant.report import Report, report
from pliant.simulator import simulate

MOST_REQUESTS = 200_000
DEADLINE = 0.5
KINDS = f"{loads.DRAWN} or trace:FILE"
SHARES = sum(ReferenceConfig().quiet) + sum(ReferenceConfig().loud)
COMPARED = ("default", "tabi", "single", "voting")
HEADINGS = ("candidate", "requests", "utility", "in time", "acc.", "p50 ms", "p99 ms", "level", "dropped")


def run(args: Namespace) -> None:
    """`pliant simulate cascade`."""
    simulate_load(args.load, args.candidate, args.workers, args.seed)


def simulate_load(load: str, candidate: str | None, workers: int, seed: int) -> None:
    """Print a table for every task with a champion: one line a candidate. Raises `InputError`, `RegistryError`."""
    project = settings.read()
    settings.prepare(project)
    tasks = load_champions(open_registry(project, "cascade"))
    if not tasks:
        raise RegistryError("the registry holds no champion of the cascade system: run `pliant train cascade` first")
    for champion in tasks.values():
        _simulate(champion, FolderStore(project.store), load, candidate, workers, seed)


def _simulate(
    champion: Champion[Cascade], store: FolderStore, load: str, candidate: str | None, workers: int, seed: int
) -> None:
    cascade, outputs = champion.artifact, outputs_on_test(champion, store)
    if outputs is None:
        raise RegistryError(
            f"the saved outputs of {cascade.task} are gone from the store: run `pliant train cascade` again"
        )
    known, walked = knowledge([cascade], workers), {cascade.task: walks(cascade, outputs)}
    offered = _load(load, cascade, outputs, workers * capacity(known, walked), seed)
    first, *others = HEADINGS
    table = Table(Column(first, no_wrap=True), *others, title=f"{cascade.task}: {load} on {workers} x {cascade.device}")
    for number in _numbers(cascade, candidate):
        table.add_row(*_row(cascade, number, _run(known, walked, offered, number, workers, seed)))
    Console(emoji=False).print(table)


def _numbers(cascade: Cascade, candidate: str | None) -> Sequence[int]:
    if candidate is not None:
        return [number_of(cascade, candidate)]
    return [number for number, known in enumerate(cascade.candidates) if known.name in COMPARED]


def _load(load: str, cascade: Cascade, outputs: Outputs, throughput: float, seed: int) -> ReferenceLoad:
    """Return the load's requests. `throughput`: requests a second that the devices can answer. Raises `InputError`."""
    lengths = outputs.levels[0].length
    if load == "reference":
        longest = MOST_REQUESTS / 10 / (SHARES * throughput)
        config = ReferenceConfig(seconds=min(ReferenceConfig().seconds, longest))
        return reference_load({cascade.task: [int(n) for n in lengths]}, throughput, seed, config)
    rng = np.random.default_rng(seed)
    drawn = loads.drawn(load, MOST_REQUESTS, rng)
    if drawn is None and not load.startswith(loads.TRACE):
        raise InputError("load", load, KINDS)
    times = loads.trace(load, (), MOST_REQUESTS)[loads.SECONDS] if drawn is None else drawn
    rows = [int(row) for row in rng.integers(len(lengths), size=len(times))]
    requests = tuple(
        Request(number, float(at), float(at) + DEADLINE, cascade.task, 1.0, int(lengths[row]))
        for number, (at, row) in enumerate(zip(times, rows, strict=True))
    )
    return ReferenceLoad(requests, tuple(rows), (), frozenset())


def _run(
    known: Knowledge, walked: dict[str, Walks], load: ReferenceLoad, number: int, workers: int, seed: int
) -> Report:
    requests = [replace(request, setting=number) for request in load.requests]
    device = SimulatedCascade(known, walked, requests, load.rows, np.random.default_rng(seed), jitter=0.05)
    return report(simulate(CascadeScheduler(known, workers), requests, device))


def _row(cascade: Cascade, number: int, result: Report) -> tuple[str, ...]:
    answered = max(1, sum(result.settings.values()))
    names = [level.name for level in cascade.levels]
    return (
        cascade.candidates[number].name,
        str(result.requests),
        f"{result.utility:.0f}",
        f"{result.attainment:.1%}",
        f"{result.accuracy:.3f}",
        f"{1e3 * result.p50:.1f}",
        f"{1e3 * result.p99:.1f}",
        " ".join(f"{names[model]}:{count / answered:.0%}" for model, count in result.settings.items()),
        ", ".join(f"{reason}: {count}" for reason, count in result.drops.items()) or "-",
    )
