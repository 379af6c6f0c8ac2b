"""Runs a bench: the parts that are named, or all for which there is time; prints and writes the figures.

The quick setting ends within ten minutes: before every part the bench compares the seconds that the part takes on the
machine of the slow setting (CONTRIBUTING.md) with what is left. What was left out is told with its command and does not
count as met.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from pliant.benchmarks.parts import PARTS, Part
from pliant.benchmarks.results import Target, exit_status, write
from pliant.errors import InputError, PliantError
from pliant.flows import settings
from pliant.progress import Progress

RESULTS = Path("benchmarks/results")
LIMIT = 570.0  # seconds of the quick setting
SHOWN = 40  # rows of a table
INCOMPLETE = 3
"""Exit status where every measured target is met, but parts were left out."""

T = TypeVar("T")
Stage = Callable[[str], AbstractContextManager[Progress]]
Measured = tuple[list[Target], dict[str, Any]]
"""The targets of a part, and the details that are written beside them."""


class Skipped(PliantError):  # noqa: N818
    """A part cannot be measured here; says what is missing."""


def need(missing: str) -> None:
    """Raise `Skipped` with the reason `missing`, unless it is empty."""
    if missing:
        raise Skipped(missing)


@dataclass(frozen=True, slots=True)
class Context:
    """What every part is given: the setting, and how a stage shows its progress.

    The setting is the quick one, or `full`, or the `smallest`, in which the ledger measures (benchmarks/ledger).
    `seeds`: how many, where a command line says so.
    """

    full: bool
    stage: Stage
    smallest: bool = False
    seeds: int | None = None

    def choose(self, quick: T, full: T, smallest: T) -> T:
        """Return the one that belongs to the setting."""
        return full if self.full else smallest if self.smallest else quick


def bench(name: str, full: bool, parts: Sequence[str], seeds: int | None = None) -> int:
    """Run a bench of benchmarks/parts.py and return its exit status."""
    return run(name, PARTS.get(name, {}), full, parts, seeds)


def run(name: str, parts: Mapping[str, Part], full: bool, names: Sequence[str], seeds: int | None = None) -> int:
    """Measure the named parts (without names: all that there is time for), print, write; return the exit status.

    It is 1 if a target is missed, 3 if nothing or not all was measured. A part that cannot be measured here is left out
    with the reason; other errors end the run only where parts are named.
    """
    if unknown := [part for part in names if part not in parts]:
        raise InputError("part", unknown[0], f"one of {', '.join(parts)}")
    settings.prepare()
    from pliant.flows.progress import stage

    context, start = Context(full, stage, seeds=seeds), time.monotonic()
    targets, left_out = list[Target](), list[str]()
    for part in names or parts:
        Console().rule(part)
        try:
            seconds, used = parts[part].seconds, time.monotonic() - start
            if not (full or names) and used + seconds > LIMIT:
                raise Skipped(f"it takes about {seconds:.0f} s, and {used:.0f} of {LIMIT:.0f} s are used")
            measured, details = parts[part].function()(context)
        except PliantError as error:  # what other parts measured is not lost
            if names and not isinstance(error, Skipped):
                raise
            left_out.append(part)
            Console().print(f"Left out: {error}. To run it: pliant bench {name} --part {part}", markup=False)
            continue
        targets += measured
        if measured:
            show_targets(measured)
        if details:
            show_rows(part, details)
            setting = {"setting": "full" if full else "quick"}
            Console().print(f"Written to {write(RESULTS, f'{name}-{part}', measured, details | setting)}")
    Console().rule("all targets")
    show_targets(targets)
    if left_out:
        Console().print(f"Not measured, so not met: {', '.join(left_out)}")
    return exit_status(targets) or (0 if targets and not left_out else INCOMPLETE)


def table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows of texts under headings."""
    printed = Table(*headings, title=title)
    for row in rows:
        printed.add_row(*row)
    Console().print(printed)


def show_rows(title: str, details: Mapping[str, Any]) -> None:
    """Print what of the details is rows alike, `SHOWN` of each at most: figures and texts, no lists within a row."""
    for name, value in details.items():
        if isinstance(value, Mapping):
            show_rows(f"{title}, {name}", value)
        elif isinstance(value, Sequence) and value and all(isinstance(row, Mapping) and row for row in value):
            kept = [key for key, cell in value[0].items() if isinstance(cell, str | int | float)]
            cells = [[row.get(key, "") for key in kept] for row in value[:SHOWN]]
            rows = [[f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row] for row in cells]
            table(f"{title}: {name}" + (f", {SHOWN} of {len(value)}" if len(value) > SHOWN else ""), kept, rows)


def show_targets(measured: Sequence[Target]) -> None:
    """Print each target, what was measured, its limit, and whether it is met."""
    rows = Table("target", "measured", "limit", "")
    for target in measured:
        figure, limit = f"{target.measured:,.6g} {target.unit}", f"{target.sense} {target.limit:,g} {target.unit}"
        rows.add_row(target.name, figure, limit, f"[{'green' if target.met else 'red'}]{target.verdict}[/]")
    Console().print(rows)
