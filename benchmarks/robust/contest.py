"""A system's decisions against doing nothing clever, on the same arrivals, in every world: a map and its targets.

Knows no system. What a system offers is in its module `benchmarks/SYSTEM/robust.py` (`Contestant`), and every value is in
virtual time. A cell of the map compares ours with each rival seed by seed; the rival that does best there counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pliant import systems
from pliant.benchmarks.harness import Context, Measured, table
from pliant.benchmarks.results import Target
from pliant.benchmarks.robust.clients import CLIENTS, Contestant
from pliant.benchmarks.runs import run_all
from pliant.progress import Progress, silent
from pliant.protocol import Action, Answer, Arrived, Drop, Event, Finished, Launch, Request
from pliant.worlds import worlds

Choose = Callable[[Sequence[Request]], tuple[int, int]]
"""From the first waiting requests, in order, to how many of them run together (at least one), and with which setting."""


class FirstCome:
    """Does nothing clever: requests are served in the order in which they came, whatever anybody believes.

    A request is given up when its deadline has passed. Nothing else is refused or reordered, and no seconds are expected.
    `workers` devices, numbered from 0; the first `most` waiting requests are what `choose` sees.
    """

    def __init__(self, workers: int, most: int, choose: Choose) -> None:
        self._most, self._choose = most, choose
        self._free = deque(range(workers))
        self._waiting: deque[Request] = deque()
        self._running: dict[int, Launch] = {}
        self._launches = 0

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take one event and return what is to be done now. Knows arrivals and ends of launches that succeed."""
        actions: list[Action] = []
        match event:
            case Arrived(request):
                self._waiting.append(request)
            case Finished(launch):
                ended = self._running.pop(launch)
                self._free.append(ended.worker)
                actions += [Answer(request, launch) for request in ended.requests]
        while self._free and self._waiting:
            if self._waiting[0].deadline <= now:
                actions.append(Drop(self._waiting.popleft().id, "late"))
            else:
                actions.append(self._launch())
        return actions

    def _launch(self) -> Launch:
        first = [self._waiting[at] for at in range(min(self._most, len(self._waiting)))]
        count, setting = self._choose(first)
        requests = tuple(self._waiting.popleft().id for _ in range(count))
        launch = Launch(self._launches, self._free.popleft(), requests, setting)
        self._launches += 1
        self._running[launch.id] = launch
        return launch

    def wake_at(self) -> float | None:
        """Return None: nothing happens but by arrivals and ends."""
        return None

    def check(self) -> None:
        """Raise AssertionError unless devices idle only where nothing waits."""
        assert not (self._free and self._waiting), "a device idles while requests wait"


MEDIAN, WORST = 0.97, 0.9  # of the best rival's value: the median over seeds, the worst seed
SEEDS, QUICK_SEEDS = 9, 3
PROCESSES = 2
EVERYTHING = "everything at once"
"""The world in which, beside the true one, clients are not only patient."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A place of the map."""

    system: str
    world: str
    load: float
    clients: str = "patient"


@dataclass(frozen=True, slots=True)
class Compared:
    """Ours over the rival that did best in a cell: the median over seeds, and the worst seed against any rival."""

    cell: Cell
    rival: str
    median: float
    worst: float
    ours: float  # the median value


def robust(system: str, context: Context) -> Measured:
    """Measure a system's map, and targets of its own, if there are any."""
    count = context.seeds or (SEEDS if context.full else QUICK_SEEDS)
    with context.stage(f"{system} in worlds that differ from its profile") as progress:
        compared = measure(system, count, progress, PROCESSES)
    title = f"{system}: ours over the best rival, median of {count} seeds (worst)"
    patient = [each for each in compared if each.cell.clients == CLIENTS[0]]
    table(title, *map_of(patient))
    table(f"{title}, other clients", *map_of([each for each in compared if each not in patient]))
    measured = targets(compared)
    if (own := contestant(system).own_targets) is not None:
        with context.stage(f"{system}: targets of its own") as progress:
            measured += own(count, progress)
    places = [asdict(c.cell) | {k: v for k, v in asdict(c).items() if k != "cell"} for c in compared]
    return measured, {"seeds": count, "map": places}


def contestant(system: str) -> Contestant:
    """Return what a system offers. Raises `InputError` for an unknown one."""
    offered: Contestant = systems.system(system).part("benchmarks", "robust").CONTESTANT
    return offered


def cells(system: str) -> Iterator[Cell]:
    """Yield the places of a system's map: every world and load, and other clients in two of the worlds."""
    offered = contestant(system)
    every = worlds(offered.deadline, offered.seconds)
    for world in every:
        for load in offered.loads:
            yield Cell(system, world.name, load)
    for name in (every[0].name, EVERYTHING):
        for clients in CLIENTS[1:]:
            yield Cell(system, name, 1.0, clients)


def measure(
    system: str, seeds: int, progress: Progress = silent, processes: int = 1, places: Sequence[Cell] | None = None
) -> list[Compared]:
    """Run every policy in every place (default: all of the map) with so many seeds."""
    places = list(cells(system)) if places is None else list(places)
    policies = (contestant(system).ours, *contestant(system).rivals)
    jobs = [(place, policy, seed) for place in places for policy in policies for seed in range(seeds)]
    values = np.reshape(run_all(_value, jobs, processes, progress), (len(places), len(policies), seeds))
    return [_compared(place, policies[1:], of) for place, of in zip(places, values, strict=True)]


def _value(job: tuple[Cell, str, int]) -> float:
    cell, policy, seed = job
    offered = contestant(cell.system)
    world = next(each for each in worlds(offered.deadline, offered.seconds) if each.name == cell.world)
    return offered.value(policy, world, cell.load, seed, cell.clients)


def _compared(cell: Cell, rivals: Sequence[str], value_PS: Any) -> Compared:
    """Return the comparison of values [policies, seeds], ours first."""
    ours_S, rival_RS = value_PS[0], value_PS[1:]
    ratio_RS = np.where(rival_RS > 0, ours_S / np.where(rival_RS > 0, rival_RS, 1.0), 1.0)
    median_R = np.median(ratio_RS, axis=1)
    best = int(median_R.argmin())
    return Compared(cell, rivals[best], float(median_R[best]), float(ratio_RS.min()), float(np.median(ours_S)))


def targets(compared: Sequence[Compared]) -> list[Target]:
    """Return the targets of one system's map."""
    system = compared[0].cell.system
    least, worst = min(c.median for c in compared), min(c.worst for c in compared)
    return [
        Target(f"{system}: over doing nothing clever, least median", least, ">=", MEDIAN, "x"),
        Target(f"{system}: the same, worst seed", worst, ">=", WORST, "x"),
    ]


def map_of(compared: Sequence[Compared]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return headings and rows of the map: a row a world, a column a load or kind of clients: median, worst seed."""
    places = {(c.cell.world, c.cell.load, c.cell.clients): c for c in compared}
    columns = list(dict.fromkeys((load, clients) for _, load, clients in places))
    headings = [f"{load:g}x" + ("" if clients == "patient" else f", {clients}") for load, clients in columns]
    names = dict.fromkeys(world for world, _, _ in places)
    rows = [(world, *(_text(places.get((world, *column))) for column in columns)) for world in names]
    return ["world", *headings], rows


def _text(compared: Compared | None) -> str:
    if compared is None:
        return ""
    missed = compared.median < MEDIAN or compared.worst < WORST
    text = f"{compared.median:.2f} ({compared.worst:.2f})"
    return f"[red]{text} {compared.rival}[/]" if missed else text
