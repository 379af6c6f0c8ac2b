"""Measures the entries of the ledger, each part once, and judges each figure beside the one that landed last.

A promise is lost only where the figure that landed was met and two measurements of now, one after the other, are missed:
the second tells a change of the code from a machine that was busy with something else.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from pliant.benchmarks.harness import RESULTS, Context, Skipped
from pliant.benchmarks.ledger.entries import Elsewhere, Entry
from pliant.benchmarks.parts import PARTS
from pliant.benchmarks.places import ROOT
from pliant.benchmarks.results import Target, commit, git, read, targets_of
from pliant.errors import PliantError
from pliant.flows import settings
from pliant.flows.progress import stage

STALE = 14
"""Days after which a figure that is measured elsewhere no longer counts as known."""
Measure = Callable[[], Sequence[Target]]


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure, as a line of the ledger's file. `figure` is None where nothing was measured; `date`: ISO.

    `seconds`: what the measurement took, with all others of the same part; 0 where it is not known. `machine`: its cores and
    the widest instructions that torch uses there. `skipped`: why it could not be measured here.
    """

    name: str
    covers: str
    target: str
    figure: float | None
    sense: str
    limit: float
    unit: str
    met: bool
    date: str
    commit: str
    seconds: float = 0.0
    machine: Mapping[str, Any] | None = None
    skipped: str = ""

    @property
    def measured(self) -> str:
        """Return what was measured as text, with its unit."""
        return "-" if self.figure is None else f"{self.figure:,.4g} {self.unit}".strip()

    @property
    def bound(self) -> str:
        """Return the limit as text, with its unit."""
        return "" if self.skipped else f"{self.sense} {self.limit:,g} {self.unit}".strip()

    def plain(self) -> dict[str, Any]:
        """Return it for JSON."""
        values = asdict(self)
        return values if self.skipped else {name: value for name, value in values.items() if name != "skipped"}


@dataclass(frozen=True, slots=True)
class Line:
    """A figure of now beside the one that landed last, which is None for an entry that is new.

    `verdict`: met, met at the second, missed (the first time, or as before: no loss), missed twice, skipped, or, of what is
    measured elsewhere, elsewhere or stale.
    """

    now: Figure
    verdict: str
    landed: Figure | None = None

    @property
    def lost(self) -> bool:
        return self.verdict == "missed twice"

    @property
    def sentence(self) -> str:
        """What is wrong and what to do, for a figure that is lost."""
        assert self.landed is not None
        name, now, landed = self.now.name, self.now, self.landed
        bound = landed.bound if now.figure is None else now.bound  # what broke knows no limit
        return (
            f"{name}: {now.target} is {now.measured} where {bound} is promised, twice in a row, and was {landed.measured} "
            f"on {landed.date} ({landed.commit}): mend what changed it, or give the promise up with ACCEPT={name!r}."
        )


@dataclass(frozen=True, slots=True)
class Origin:
    """When, of which code and where figures are measured."""

    today: date
    commit: str
    machine: Mapping[str, Any]


def here() -> Origin:
    """Return the present day, commit and machine."""
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Origin(date.today(), commit(), {"cores": cores, "avx": torch.backends.cpu.get_cpu_capability()})


def lines(
    entries: Sequence[Entry], landed: Mapping[str, Figure], origin: Origin, part: Callable[[str, str], Measure]
) -> Iterator[Line]:
    """Measure the entries and yield their lines as they come, those of a part together; `part` gives how it is measured.

    A part that misses what was met is measured once more.
    """
    for bench, name in dict.fromkeys((entry.bench, entry.part) for entry in entries):
        group = [entry for entry in entries if (entry.bench, entry.part) == (bench, name)]
        measure = part(bench, name)
        first = _figures(group, measure, origin)
        doubtful = any(_in_doubt(now, landed.get(now.name)) for now in first)
        second = _figures(group, measure, origin) if doubtful else first
        for now, again in zip(first, second, strict=True):
            former = landed.get(now.name)
            if not _in_doubt(now, former):
                yield Line(now, "skipped" if now.skipped else "met" if now.met else "missed", former)
            else:
                yield Line(again, "met at the second" if again.met else "missed twice", former)


def _in_doubt(now: Figure, landed: Figure | None) -> bool:
    """Whether a figure is measured once more: it is missed, and the one that landed was met."""
    return not now.skipped and not now.met and landed is not None and landed.met


def _figures(entries: Sequence[Entry], measure: Measure, origin: Origin) -> list[Figure]:
    """Measure a part and return the figures of its entries.

    What cannot be measured here is skipped; a part that breaks has no figure, which misses.
    """
    began, skipped, targets = time.monotonic(), "", dict[str, Target]()
    try:
        measured = measure()
        targets = {entry.name: named(measured, entry.target) for entry in entries}
    except Skipped as error:
        skipped = str(error)
    except PliantError as error:
        broken = Target(f"the part ended ({error}), its figure", math.nan, ">=", 0.0)
        targets = dict.fromkeys((entry.name for entry in entries), broken)
    seconds = 0.0 if skipped else round(time.monotonic() - began, 1)
    machine = None if skipped else origin.machine
    where = (origin.today.isoformat(), origin.commit, seconds, machine, skipped)
    return [_figure(entry, targets.get(entry.name), *where) for entry in entries]


def _figure(each: Entry | Elsewhere, target: Target | None, *where: Any) -> Figure:
    target = target or Target("", math.nan, ">=", 0.0)
    measured = None if math.isnan(target.measured) else float(f"{target.measured:.4g}")
    return Figure(
        each.name, each.covers, target.name, measured, target.sense, target.limit, target.unit, target.met, *where
    )


def named(targets: Sequence[Target], words: str) -> Target:
    """Return the target whose name holds these words. Raises `LookupError` unless there is one alone."""
    matching = [target for target in targets if words in target.name]
    if len(matching) != 1:
        raise LookupError(f"{len(matching)} targets are called {words!r}: {[target.name for target in targets]}")
    return matching[0]


def measure_part(bench: str, name: str) -> Measure:
    """Return what measures a part of a bench in its smallest setting."""
    if bench == "demo":
        return lambda: [_demo(name)]
    return lambda: list(PARTS[bench][name].function()(Context(False, stage, smallest=True))[0])


def _demo(system: str) -> Target:
    """Run a system's demo in a process of its own, whose champion stays; return how far Pliant is ahead in it."""
    command = [sys.executable, "-m", "pliant", "demo", system]
    done = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
    if done.returncode != 0:
        raise PliantError(f"pliant demo {system} ended with status {done.returncode}")
    ratios: Mapping[str, float] = json.loads((settings.read().home / "demo.json").read_text()).get("ratios", {})
    if system not in ratios:
        raise Skipped(f"pliant demo {system} told no comparison")
    return Target(f"demo of {system}: Pliant over doing without, live", ratios[system], ">=", 1.0, "x")


def known(each: Elsewhere, today: date, folder: Path = RESULTS) -> Line:
    """Return the line of a figure that is measured elsewhere, from the results' file of its last run.

    It is stale after two weeks, and where it was never measured, so that there is no file.
    """
    path = folder / f"{each.result}.json"
    if not path.is_file():
        return Line(_figure(each, None, "", "", 0.0, None, f"run {each.command}"), "stale")
    content = read(path)
    # Files that are older than their date say by git when they were written.
    day = content.get("date") or git("log", "-1", "--format=%cs", "--", str(path))
    now = _figure(each, named(targets_of(content), each.target), day, content["commit"])
    stale = not day or (today - date.fromisoformat(day)).days > STALE
    return Line(now, "stale" if stale else "elsewhere", now)
