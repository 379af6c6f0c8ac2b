"""`make ledger`: measure every promise, write benchmarks/ledger.json, print a table; ends with 1 if a promise is lost."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pliant.benchmarks.ledger import measure
from pliant.benchmarks.ledger.entries import ELSEWHERE, ENTRIES, Entry
from pliant.benchmarks.ledger.measure import Figure, Line, Measure, Origin
from pliant.benchmarks.results import git
from pliant.flows import settings

LEDGER = Path("benchmarks/ledger.json")
STYLES = {"met": "green", "elsewhere": "dim", "missed": "red", "missed twice": "bold red"}
"""Colours of verdicts; the others are yellow."""


def landed(path: Path = LEDGER) -> dict[str, Figure]:
    """Return the figures that landed last, by name: those of the last commit, where this is a checkout with one."""
    committed = "" if path.is_absolute() else git("show", f"HEAD:./{path.as_posix()}")
    return stored(path, committed)


def stored(path: Path, text: str = "") -> dict[str, Figure]:
    """Return the figures of a text, or of a file where it is empty, by name. None without the file."""
    text = text or (path.read_text(encoding="utf-8") if path.is_file() else "[]")
    return {each["name"]: Figure(**each) for each in json.loads(text)}


def kept(lines: Sequence[Line], before: Mapping[str, Figure], accepted: Sequence[str] = ()) -> list[Figure]:
    """Return the figures of the next ledger: those that were there `before`, in their order, and what was measured now.

    Neither a lost figure, unless its name is `accepted`, nor a skipped one takes the place of the one that landed: a
    promise is given up by its name, never by measuring.
    """
    figures = dict(before)
    for line in lines:
        stays = (line.lost and line.now.name not in accepted) or line.verdict == "skipped"
        figures[line.now.name] = line.landed if stays and line.landed is not None else line.now
    return list(figures.values())


def table(lines: Sequence[Line]) -> Table:
    """Return the table of the ledger."""
    shown = Table("promise", "covers", "limit", "landed", "now", "", "s")
    for line in lines:
        verdict = f"[{STYLES.get(line.verdict, 'yellow')}]{line.verdict}[/]"
        landed = "" if line.landed is None else f"{line.landed.measured} ({line.landed.date})"
        now, seconds = (
            escape(line.now.skipped) or line.now.measured,
            f"{line.now.seconds:.0f}" if line.now.seconds else "",
        )
        shown.add_row(line.now.name, line.now.covers, line.now.bound, landed, now, verdict, seconds)
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
        rows = ",\n".join(json.dumps(each.plain()) for each in kept(lines, before, accepted))
        path.write_text(f"[\n{rows}\n]\n", encoding="utf-8")
        progress = f"{len(lines)} of {len(entries)}, {time.monotonic() - began:.0f} s"
        console.print(
            f"{progress}: {line.now.name}: {line.now.skipped or line.now.measured}, {line.verdict}", markup=False
        )
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
            last = f"last measured on {line.now.date} ({line.now.commit})" if line.now.date else "never measured"
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
    settings.prepare()
    return run(entries, origin, measure.measure_part, options.accept, LEDGER)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
