"""Measures the entries of the ledger one after the other, each part once, and once more what is missed and was met."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from pliant.benchmarks.harness import RESULTS, Context, Skipped
from pliant.benchmarks.ledger.entries import Elsewhere, Entry
from pliant.benchmarks.ledger.rule import Figure, Line, Machine, elsewhere, judge, must_repeat
from pliant.benchmarks.parts import PARTS
from pliant.benchmarks.places import ROOT
from pliant.benchmarks.results import Target, commit, git, read
from pliant.errors import PliantError
from pliant.flows import settings
from pliant.flows.progress import stage

NOTHING = Target("", float("nan"), ">=", 0.0)
Measure = Callable[[], Sequence[Target]]


@dataclass(frozen=True, slots=True)
class Origin:
    """When, of which code and where figures are measured."""

    today: date
    commit: str
    machine: Machine

    def figure(self, entry: Entry, target: Target = NOTHING, seconds: float = 0.0, skipped: str = "") -> Figure:
        machine = None if skipped else self.machine
        return Figure(entry.name, entry.covers, target, self.today.isoformat(), self.commit, seconds, machine, skipped)


def here() -> Origin:
    """Return the present day, commit and machine."""
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Origin(date.today(), commit(), Machine(cores, torch.backends.cpu.get_cpu_capability()))


def lines(
    entries: Sequence[Entry],
    landed: Mapping[str, Figure],
    origin: Origin,
    part: Callable[[str, str], Measure],
) -> Iterator[Line]:
    """Measure the entries and yield their lines as they come, those of a part together; `part` gives how it is measured.

    A part that misses what was met is measured once more.
    """
    for bench, name in dict.fromkeys((entry.bench, entry.part) for entry in entries):
        group = [entry for entry in entries if (entry.bench, entry.part) == (bench, name)]
        measure = part(bench, name)
        first = _figures(group, measure, origin)
        promised = [landed.get(figure.name) for figure in first]
        doubtful = any(must_repeat(*each) for each in zip(first, promised, strict=True))
        second = _figures(group, measure, origin) if doubtful else [None] * len(group)
        for now, former, again in zip(first, promised, second, strict=True):
            yield judge(now, former, again)


def _figures(entries: Sequence[Entry], measure: Measure, origin: Origin) -> list[Figure]:
    """Measure a part and return the figures of its entries.

    What cannot be measured here is skipped; a part that breaks has no figure, which misses.
    """
    began = time.monotonic()
    try:
        targets = measure()
    except Skipped as error:
        return [origin.figure(entry, skipped=str(error)) for entry in entries]
    except PliantError as error:
        seconds = time.monotonic() - began
        return [
            origin.figure(entry, replace(NOTHING, name=f"the part ended ({error}), its figure"), seconds)
            for entry in entries
        ]
    seconds = time.monotonic() - began
    return [origin.figure(entry, named(targets, entry.target), seconds) for entry in entries]


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
    return lambda: list(PARTS[bench][name].run(Context(False, stage, smallest=True))[0])


def _demo(system: str) -> Target:
    """Run a system's demo in a process of its own, whose champion stays; return how far Pliant is ahead in it."""
    command = [sys.executable, "-m", "pliant.cli", "demo", system]
    done = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
    if done.returncode != 0:
        raise PliantError(f"pliant demo {system} ended with status {done.returncode}")
    ratios: Mapping[str, float] = json.loads((settings.read().home / "demo.json").read_text()).get("ratios", {})
    if system not in ratios:
        raise Skipped(f"pliant demo {system} told no comparison")
    return Target(f"demo of {system}: Pliant over doing without, live", ratios[system], ">=", 1.0, "x")


def known(each: Elsewhere, today: date, folder: Path = RESULTS) -> Line:
    """Return the line of a figure that is measured elsewhere, from the results' file of its last run.

    A figure without a file has never been measured, and is stale.
    """
    path = folder / f"{each.result}.json"
    if not path.is_file():
        return elsewhere(Figure(each.name, each.covers, NOTHING, "", "", skipped=f"run {each.command}"), today)
    content = read(path)
    rows = [{**row, "measured": _number(row["measured"])} for row in content["targets"]]
    for row in rows:
        row.pop("verdict")
    target = named([Target(**row) for row in rows], each.target)
    # Files that are older than their date say by git when they were written.
    day = content.get("date") or git("log", "-1", "--format=%cs", "--", str(path))
    return elsewhere(Figure(each.name, each.covers, target, day, content["commit"]), today)


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)
