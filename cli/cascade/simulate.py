"""`pliant simulate cascade`: what a load would cost on the champion's profile, by the scheduler that serves it.

Texts are those of the champion's test split, of which every level's output is kept in the store.
"""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pliant import loads
from pliant.cascade.artifact import Cascade, Outputs
from pliant.cascade.knowledge import Knowledge, knowledge, numbers
from pliant.cascade.route import number_of
from pliant.cascade.scheduler import CascadeScheduler
from pliant.cascade.simulated import (
    BY_BAG,
    ReferenceConfig,
    SimulatedCascade,
    Walks,
    capacity,
    play,
    reference_load,
    walks,
)
from pliant.cli import journal, options
from pliant.cli.plan import Play, Simulation, with_shares
from pliant.errors import InputError, RegistryError
from pliant.flows import settings
from pliant.flows.cascade.champions import outputs_on_test
from pliant.flows.champions import load_champions
from pliant.flows.release import open_registry
from pliant.protocol import Request
from pliant.registry.store import FolderStore
from pliant.report import Observation, summarise
from pliant.worlds import Course

MOST_REQUESTS = 200_000
DEADLINE = 0.5
KINDS = f"{loads.DRAWN} or trace:FILE"
SHARES = sum(ReferenceConfig().quiet) + sum(ReferenceConfig().loud)
COMPARED = ("default", "tabi", "single", "voting")
HEADINGS = ("candidate", "requests", "utility", "in time", "acc.", "p50 ms", "p99 ms", "level", "dropped")


@dataclass(frozen=True, slots=True)
class Served:
    """A task's champion, its outputs on the test split, the steps of its candidates, and when it was published."""

    cascade: Cascade
    outputs: Outputs
    steps: Walks
    published: str

    @property
    def lengths(self) -> Any:
        """Return [R] the tokens of the texts, as the first level reads them."""
        return self.outputs.levels[0].length


def run(args: Namespace) -> None:
    """`pliant simulate cascade`: print a table for every task with a champion, one line a candidate.

    Raises `InputError`, `RegistryError`.
    """
    printed = list[dict[str, Any]]()
    for served in _champions(settings.prepare()):
        cascade = served.cascade
        requests, rows = _load(args.load, [served], args.workers, args.seed)
        chosen = [number for number, each in enumerate(cascade.candidates) if each.name in COMPARED]
        if args.candidate is not None:
            chosen = [number_of(cascade, args.candidate)]
        for number in chosen:
            rng = np.random.default_rng(args.seed)
            result = summarise(_played([served], requests, rows, {cascade.task: number}, args.workers, rng))
            levels = _levels(cascade, number, result.settings)
            about = {"task": cascade.task, "candidate": cascade.candidates[number].name, "levels": levels}
            printed.append({**about, **asdict(result)})
        if not args.json:
            title = f"{cascade.task}: {args.load} on {args.workers} x {cascade.device}"
            options.show(title, HEADINGS, [_cells(row) for row in printed if row["task"] == cascade.task])
    if args.json:
        options.print_json(printed)


def _champions(project: settings.Settings) -> list[Served]:
    """Return each task's champion. Raises `RegistryError`."""
    tasks = load_champions(open_registry(project, "cascade"), Cascade)
    if not tasks:
        raise RegistryError("the registry holds no champion of the cascade system: run `pliant train cascade` first")
    champions = []
    for champion in tasks.values():
        cascade, outputs = champion.artifact, outputs_on_test(champion, FolderStore(project.store))
        if outputs is None:
            raise RegistryError(
                f"the saved outputs of {cascade.task} are gone from the store: run `pliant train cascade` again"
            )
        champions.append(Served(cascade, outputs, walks(cascade, outputs), champion.published.created))
    return champions


def setting_names() -> dict[int, str]:
    """Return the champions' models by number, such as things/large. Raises `RegistryError` without one."""
    return _names([served.cascade for served in _champions(settings.prepare())])


def _names(cascades: Sequence[Cascade]) -> dict[int, str]:
    levels = {cascade.task: cascade.levels for cascade in cascades}
    return {n: f"{task}/{levels[task][at].name}" for (task, at, _), n in numbers(cascades).items()} | {BY_BAG: "bag"}


def simulations(project: settings.Settings, load: str, candidate: str | None = None) -> list[Simulation]:
    """Return that of all tasks under a load. Raises `InputError`, `RegistryError` without a champion."""
    champions = _champions(project)
    cascades = [served.cascade for served in champions]
    chosen = {each.task: number_of(each, candidate) if candidate is not None else 0 for each in cascades}
    names = _names(cascades)

    def draw(seed: int) -> tuple[Sequence[Request], Play]:
        requests, rows = _load(load, champions, 1, seed)

        def played(some: Sequence[Request], devices: int, course: Course | None) -> list[Observation]:
            return _played(champions, some, rows, chosen, devices, np.random.default_rng(seed), course)

        return requests, with_shares(played, names)

    def lasted(path: Path) -> list[tuple[float, float]]:
        return journal.lasted(path, "cascade", _device(champions, *_load(load, champions, 1, 0), chosen)[-1])

    published = min(served.published for served in champions)
    return [Simulation(", ".join(each.task for each in cascades), cascades[0].device, published, draw, lasted)]


def _played(
    champions: Sequence[Served],
    requests: Sequence[Request],
    rows: Mapping[int, int],
    chosen: Mapping[str, int],
    workers: int,
    rng: np.random.Generator,
    course: Course | None = None,
) -> list[Observation]:
    """Return what becomes of requests. `rows`: by request, the text in its task; `chosen`: the candidate of each task."""
    jitter = 0.05 if course is None else 0.0
    known, walked, numbered, device = _device(champions, requests, rows, chosen, workers, rng, jitter)
    texts = [rows[request.id] for request in requests]
    return play(CascadeScheduler(known, workers), known, walked, numbered, texts, device, course)


def _device(
    champions: Sequence[Served],
    requests: Sequence[Request],
    rows: Mapping[int, int],
    chosen: Mapping[str, int],
    workers: int = 1,
    rng: np.random.Generator | None = None,
    jitter: float = 0.0,
) -> tuple[Knowledge, dict[str, Walks], list[Request], SimulatedCascade]:
    """Return what a device knows, the steps by task, the requests with their candidates, and the device."""
    known = knowledge([served.cascade for served in champions], workers)
    walked = {served.cascade.task: served.steps for served in champions}
    numbered = [replace(request, setting=chosen[request.task]) for request in requests]
    texts = [rows[request.id] for request in requests]
    device = SimulatedCascade(known, walked, numbered, texts, rng or np.random.default_rng(0), jitter=jitter)
    return known, walked, numbered, device


def _load(load: str, champions: Sequence[Served], workers: int, seed: int) -> tuple[list[Request], dict[int, int]]:
    """Return the load's requests, equally many of each task, and the text of each in its task. Raises `InputError`."""
    rng, of = np.random.default_rng(seed), {served.cascade.task: served for served in champions}
    if load == "reference":
        known = knowledge([served.cascade for served in champions], workers)
        throughput = workers * capacity(known, {task: served.steps for task, served in of.items()})
        longest = MOST_REQUESTS / 10 / (SHARES * throughput)
        config = ReferenceConfig(seconds=min(ReferenceConfig().seconds, longest))
        lengths = {task: [int(n) for n in served.lengths] for task, served in of.items()}
        drawn = reference_load(lengths, throughput, seed, config)
        return list(drawn.requests), dict(enumerate(drawn.rows))
    if load.startswith(loads.JOURNAL):
        requests = journal.recorded(load, "cascade", MOST_REQUESTS)
        orders = {task: np.argsort(served.lengths) for task, served in of.items()}
        rows = {request.id: _row(request, of, orders, rng) for request in requests}
        return [replace(r, length=int(of[r.task].lengths[rows[r.id]])) for r in requests], rows
    if load.startswith(loads.TRACE):
        times = loads.trace(load, (), MOST_REQUESTS)[loads.SECONDS]
    else:
        times = loads.drawn(load, KINDS, MOST_REQUESTS, rng)
    requests, rows, tasks = [], {}, list(of)
    for number, at in enumerate(times.tolist()):
        task = tasks[int(rng.integers(len(tasks)))]
        rows[number] = int(rng.integers(len(of[task].lengths)))
        requests.append(Request(number, at, at + DEADLINE, task, 1.0, int(of[task].lengths[rows[number]])))
    return requests, rows


def _row(request: Request, champions: Mapping[str, Served], orders: Mapping[str, Any], rng: np.random.Generator) -> int:
    """Return a text of about the length of a journal's request, which holds none; `orders`: by it. Raises `InputError`."""
    if request.task not in champions:
        raise InputError("task", request.task, f"one of {', '.join(champions)}")
    lengths, order = champions[request.task].lengths, orders[request.task]
    low, high = (int(np.searchsorted(lengths[order], request.length, side)) for side in ("left", "right"))
    return int(order[int(rng.integers(low, high)) if low < high else min(low, len(order) - 1)])


def _levels(cascade: Cascade, number: int, used: Mapping[int, int]) -> dict[str, float]:
    """Return the share of the answers that each level gave."""
    answered = max(1, sum(used.values()))
    level_of = {number: level for (_, level, _), number in numbers([cascade]).items()}
    given = Counter[str]()
    for model, count in used.items():
        level = cascade.candidates[number].levels[0] if model == BY_BAG else level_of[model]
        given[cascade.levels[level].name] += count
    return {name: count / answered for name, count in given.items()}


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        row["candidate"],
        str(row["requests"]),
        f"{row['utility']:.0f}",
        f"{row['attainment']:.1%}",
        f"{row['accuracy']:.3f}",
        f"{1e3 * row['p50']:.1f}",
        f"{1e3 * row['p99']:.1f}",
        " ".join(f"{level}:{share:.0%}" for level, share in row["levels"].items()),
        ", ".join(f"{reason}: {count}" for reason, count in row["drops"].items()) or "-",
    )
