"""`make ledger`: measure every promise, write benchmarks/ledger.json, print a table; ends with 1 if a promise is lost."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pliant.benchmarks.ledger import measure
from pliant.benchmarks.ledger.entries import ELSEWHERE, ENTRIES, Entry
from pliant.benchmarks.ledger.measure import Measure, Origin
from pliant.benchmarks.ledger.rule import Figure, Line, figure, from_plain, kept, limit, to_plain
from pliant.benchmarks.results import git
from pliant.flows import settings

LEDGER = Path("benchmarks/ledger.json")


def landed(path: Path = LEDGER) -> dict[str, Figure]:
    """Return the figures that landed last, by name: those of the last commit, where this is a checkout with one."""
    committed = "" if path.is_absolute() else git("show", f"HEAD:./{path.as_posix()}")
    return _figures(committed) if committed else stored(path)


def stored(path: Path) -> dict[str, Figure]:
    """Return the figures of a file, by name: those that landed, and what was measured since. None without the file."""
    return _figures(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _figures(text: str) -> dict[str, Figure]:
    return {each.name: each for each in map(from_plain, json.loads(text))}


def write(figures: Sequence[Figure], path: Path = LEDGER) -> None:
    """Write the figures as JSON, one line each."""
    rows = ",\n".join(json.dumps(to_plain(each)) for each in figures)
    path.write_text(f"[\n{rows}\n]\n", encoding="utf-8")


STYLES = {"met": "green", "elsewhere": "dim", "missed": "red", "missed twice": "bold red"}
"""Colours of verdicts; the others are yellow."""


def table(lines: Sequence[Line]) -> Table:
    """Return the table of the ledger."""
    shown = Table("promise", "covers", "limit", "landed", "now", "", "s")
    for line in lines:
        target, verdict = line.now.target, f"[{STYLES.get(line.verdict, 'yellow')}]{line.verdict}[/]"
        landed = "" if line.landed is None else f"{figure(line.landed.target)} ({line.landed.day})"
        now, bound = figure(target), f"{target.sense} {limit(target)}"
        if line.now.skipped:
            now, bound = escape(line.now.skipped), ""
        seconds = f"{line.now.seconds:.0f}" if line.now.seconds else ""
        shown.add_row(line.now.name, line.now.covers, bound, landed, now, verdict, seconds)
    return shown


def run(
    entries: Sequence[Entry], origin: Origin, part: Callable[[str, str], Measure], accepted: Sequence[str], path: Path
) -> int:
    """Measure the entries beside what landed at `path`, print, write there; return 1 if a promise is lost, else 0.

    It is written after every figure, so that what was measured is kept where it is interrupted.
    """
    console, former, before, began, lines = Console(), landed(path), stored(path), time.monotonic(), list[Line]()
    for line in measure.lines(entries, former, origin, part):
        lines.append(line)
        write(kept(lines, before, accepted), path)
        said = line.now.skipped or figure(line.now.target)
        progress = f"{len(lines)} of {len(entries)}, {time.monotonic() - began:.0f} s"
        console.print(f"{progress}: {line.now.name}: {said}, {line.verdict}", markup=False)
    console.print(table(lines))
    lost = [line for line in lines if line.lost and line.now.name not in accepted]
    for line in lost:
        console.print(line.sentence, style="bold red", markup=False)
    return 1 if lost else 0


def outside(today: date) -> None:
    """Print what is measured elsewhere, and how what is stale is measured again."""
    console, lines = Console(), [measure.known(each, today) for each in ELSEWHERE]
    console.print(table(lines))
    for each, line in zip(ELSEWHERE, lines, strict=True):
        if line.verdict == "stale":
            last = f"last measured on {line.now.day} ({line.now.commit})" if line.now.day else "never measured"
            console.print(f"{each.name} is stale, {last}: {each.command}", markup=False)


def main(words: Sequence[str]) -> int:
    """Measure, print and write what is asked for; return the exit status."""
    parser = argparse.ArgumentParser(prog="make ledger", description=__doc__)
    parser.add_argument("--only", default="", help="those alone whose name, bench or part holds this word")
    parser.add_argument("--accept", action="append", default=[], help="the name of a promise that is given up")
    parser.add_argument("--ci", action="store_true", help="those alone that CI measures, in virtual time")
    options = parser.parse_args(words)
    chosen = [each for each in ENTRIES if each.in_ci or not options.ci]
    entries = [each for each in chosen if options.only in f"{each.name} {each.bench} {each.part}"]
    origin = measure.here()
    if not options.only and not options.ci:
        outside(origin.today)
    settings.prepare(settings.read())
    return run(entries, origin, measure.measure_part, options.accept, LEDGER)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
