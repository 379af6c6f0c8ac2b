"""`make ledger`: measure every promise, write benchmarks/ledger.json, print a table; ends with 1 if a promise is lost."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.ledger import measure
from benchmarks.ledger.entries import ELSEWHERE, ENTRIES
from benchmarks.ledger.rule import Figure, Line, figure, from_plain, kept, limit, to_plain
from benchmarks.results import git
from flows import settings

LEDGER = Path("benchmarks/ledger.json")


def landed(path: Path = LEDGER) -> dict[str, Figure]:
    """Return the figures that landed last, by name: those of the last commit, where this is a checkout with one."""
    text = git("show", f"HEAD:./{path.as_posix()}") or (path.read_text(encoding="utf-8") if path.is_file() else "[]")
    return {each.name: each for each in map(from_plain, json.loads(text))}


def write(figures: Sequence[Figure], path: Path = LEDGER) -> None:
    """Write the figures as JSON, one line each."""
    rows = ",\n".join(json.dumps(to_plain(each)) for each in figures)
    path.write_text(f"[\n{rows}\n]\n", encoding="utf-8")


def table(lines: Sequence[Line]) -> Table:
    """Return the table of the ledger."""
    shown = Table("promise", "covers", "limit", "landed", "now", "", "s")
    for line in lines:
        target = line.now.target
        before = "" if line.landed is None else f"{figure(line.landed.target)} ({line.landed.day})"
        now, bound = (line.now.skipped, "") if line.now.skipped else (figure(target), f"{target.sense} {limit(target)}")
        style = {"met": "green", "elsewhere": "dim", "missed twice": "bold red", "missed": "red"}.get(
            line.verdict, "yellow"
        )
        seconds = f"{line.now.seconds:.0f}" if line.now.seconds else ""
        shown.add_row(line.now.name, line.now.covers, bound, before, now, f"[{style}]{line.verdict}[/]", seconds)
    return shown


def main(words: Sequence[str]) -> int:
    """Measure, print and write; return the exit status."""
    parser = argparse.ArgumentParser(prog="make ledger", description=__doc__)
    parser.add_argument(
        "--only", default="", help="measure the entries whose name, bench or part holds this word alone"
    )
    parser.add_argument("--accept", action="append", default=[], help="the name of a promise that is given up")
    parser.add_argument("--ci", action="store_true", help="measure those alone that CI measures, in virtual time")
    asked = parser.parse_args(words)
    settings.prepare(settings.read())
    chosen = [each for each in ENTRIES if each.in_ci or not asked.ci]
    entries = [each for each in chosen if asked.only in f"{each.name} {each.bench} {each.part}"]
    console, former, origin, began = Console(), landed(), measure.here(), time.monotonic()
    lines: list[Line] = []
    for line in measure.lines(entries, former, origin, measure.measure_part):
        lines.append(line)
        said = line.now.skipped or figure(line.now.target)
        console.rule(f"{len(lines)} of {len(entries)}, {time.monotonic() - began:.0f} s: {line.now.name}: {said}")
    outside = [] if asked.only or asked.ci else [measure.known(each, origin.today) for each in ELSEWHERE]
    console.print(table([*lines, *outside]))
    _tell(console, outside)
    names = {each.name for each in ENTRIES}
    write([each for each in kept(lines, former, asked.accept) if each.name in names])
    lost = [line for line in lines if line.lost and line.now.name not in asked.accept]
    for line in lost:
        console.print(line.sentence, style="bold red", markup=False)
    return 1 if lost else 0


def _tell(console: Console, outside: Sequence[Line]) -> None:
    """Say how the figures that are measured elsewhere and are stale are measured again."""
    commands: Mapping[str, str] = {each.name: each.command for each in ELSEWHERE}
    for line in outside:
        if line.verdict == "stale":
            last = f"last measured on {line.now.day} ({line.now.commit})" if line.now.day else "never measured"
            console.print(f"{line.now.name} is stale, {last}: {commands[line.now.name]}", markup=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
