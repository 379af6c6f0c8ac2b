"""`pliant bench robust`: every system's decisions in worlds that differ from the profile, printed and written as JSON.

Stands beside the systems; a part is a system. Knows how many seeds a setting has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from benchmarks import console, harness
from benchmarks.harness import Context, Measured, Part, need
from benchmarks.results import Target
from benchmarks.robust import contest
from benchmarks.robust.clients import CLIENTS
from pliant import systems
from pliant.progress import Progress

SEEDS, QUICK_SEEDS = 9, 3
SECONDS = 100.0  # of a system's quick setting, on one core of the slow setting
PROCESSES = 2


def _measure(system: str, seeds: int | None, context: Context) -> Measured:
    need("" if systems.system(system).has("benchmarks", "robust") else f"{system} has no worlds to be tried in")
    count = seeds or (SEEDS if context.full else QUICK_SEEDS)
    with context.stage(f"{system} in worlds that differ from its profile") as progress:
        compared = contest.measure(system, count, progress, PROCESSES)
    title = f"{system}: ours over the best rival, median of {count} seeds (worst)"
    patient = [each for each in compared if each.cell.clients == CLIENTS[0]]
    console.table(title, *contest.table(patient))
    console.table(f"{title}, other clients", *contest.table([each for each in compared if each not in patient]))
    recoveries = contest.recoveries(system, count, PROCESSES)
    back = [(disturbance, *map("{:.2f}".format, (np.median(of), max(of)))) for disturbance, of in recoveries.items()]
    console.table(f"{system}: deadlines until it is back after", ["disturbance", "median", "most"], back)
    own: Callable[[int, Progress], list[Target]] | None = getattr(contest.contestant(system), "own_targets", None)
    further: list[Target] = []
    if own is not None:
        with context.stage(f"{system}: targets of its own") as progress:
            further = own(count, progress)
    details: dict[str, Any] = {"seeds": count, "map": contest.plain(compared), "recoveries": recoveries}
    return [*contest.targets(compared, recoveries), *further], details


def parts(seeds: int | None = None) -> Mapping[str, Part]:
    """Return one part a system. `seeds`: how many runs a place has; by default by the setting."""
    return {system: Part(partial(_measure, system, seeds), SECONDS) for system in systems.names()}


PARTS: Mapping[str, Part] = parts()


def bench(full: bool, names: list[str], seeds: int | None = None) -> int:
    """Run the named parts, or all for which there is time, and return the exit status."""
    return harness.run("robust", parts(seeds), full, names)
