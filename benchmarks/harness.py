"""Runs a bench: the parts that are named, or all for which there is time; prints and writes the figures.

The quick setting ends within ten minutes. Before every part the bench compares the seconds that the part takes on the
machine of the slow setting (CONTRIBUTING.md) with what is left; a probe of a second says how much slower this machine is.
What was left out is told with its command and does not count as met.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
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
INCOMPLETE = 3
"""Exit status where every measured target is met, but parts were left out."""
GFLOPS, LOOPS = 100.0, 80e6  # a second of the slow setting: float32 products, rounds of an empty Python loop
PROBE = 0.4  # seconds, each of the two

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


@dataclass(slots=True)
class Budget:
    """The time of one bench. `limit` is None where nothing is left out: with --full, and where parts are named.

    `slowness`: of this machine over that of the slow setting; `products`: the same of matrix products alone.
    """

    bench: str
    limit: float | None
    slowness: float = 1.0
    products: float = 1.0
    clock: Callable[[], float] = time.monotonic
    start: float = 0.0
    left_out: list[str] = field(default_factory=list)

    def allows(self, part: str, seconds: float, training: float = 0.0) -> bool:
        """Return whether `part` ends within the limit; say so where it does not.

        It takes `seconds` on the slow setting, and before that `training`, which is nothing but matrix products.
        """
        used, expected = self.clock() - self.start, seconds * self.slowness + training * self.products
        if self.limit is None or used + expected <= self.limit:
            return True
        self.leave_out(part, f"it takes about {expected:.0f} s here, and {used:.0f} of {self.limit:.0f} s are used")
        return False

    def leave_out(self, part: str, reason: str) -> None:
        """Tell that `part` is not measured, why, and how to run it."""
        self.left_out.append(part)
        command = f"pliant bench {self.bench} --part {part}"
        Console().print(f"Left out: {reason}. To run it: {command}", highlight=False, markup=False)

    def status(self, targets: Sequence[Target]) -> int:
        """Return the exit status of the bench: 1 if a target is missed, 3 if nothing or not all was measured."""
        if self.left_out:
            commands = " ".join(f"--part {part}" for part in self.left_out)
            Console().print(f"Not measured, so not met: pliant bench {self.bench} {commands}", highlight=False)
        if not targets:
            Console().print("Nothing was measured.")
        return exit_status(targets) or (0 if targets and not self.left_out else INCOMPLETE)


def bench(name: str, full: bool, parts: Sequence[str], seeds: int | None = None) -> int:
    """Run a bench of benchmarks/parts.py and return its exit status."""
    return run(name, PARTS.get(name, {}), full, parts, seeds)


def run(name: str, parts: Mapping[str, Part], full: bool, names: Sequence[str], seeds: int | None = None) -> int:
    """Measure the named parts (without names: all that there is time for), print, write; return the budget's exit status.

    A part that cannot be measured here is left out with the reason; other errors end the run only where parts are named.
    """
    if unknown := [part for part in names if part not in parts]:
        raise InputError("part", unknown[0], f"one of {', '.join(parts)}")
    settings.prepare(settings.read())
    from pliant.flows.progress import stage

    context, budget = Context(full, stage, seeds=seeds), begin(name, full, names)
    targets: list[Target] = []
    for part in names or parts:
        Console().rule(part)
        try:
            if not budget.allows(part, parts[part].seconds, parts[part].training_seconds()):
                continue
            measured, details = parts[part].run(context)
        except PliantError as error:  # what other parts measured is not lost
            if names and not isinstance(error, Skipped):
                raise
            budget.leave_out(part, str(error))
            continue
        targets += measured
        if measured:
            show_targets(measured)
        if details:
            setting = {"setting": "full" if full else "quick"}
            Console().print(f"Written to {write(RESULTS, f'{name}-{part}', measured, details | setting)}")
    Console().rule("all targets")
    show_targets(targets)
    return budget.status(targets)


def begin(name: str, full: bool, parts: Sequence[str]) -> Budget:
    """Return the budget of a bench that starts now; the machine is probed only where there is a limit."""
    start = time.monotonic()
    if full or parts:
        return Budget(name, None, start=start)
    products, python = probe()
    return Budget(name, LIMIT, max(products, python), products, start=start)


def probe() -> tuple[float, float]:
    """Return how many times as long as the slow setting this machine takes for matrix products, and for Python."""
    import torch

    def empty(rounds: int = 10_000) -> None:
        for _ in range(rounds):
            pass

    left, right = torch.ones(256, 256), torch.ones(256, 256)
    gflops = 2e-9 * 256**3 * _per_second(lambda: torch.mm(left, right))
    return GFLOPS / gflops, LOOPS / (10_000 * _per_second(empty))


def _per_second(act: Callable[[], object]) -> float:
    act()
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < PROBE:
        act()
        count += 1
    return count / (time.perf_counter() - start)


def table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows of texts under headings."""
    printed = Table(*headings, title=title)
    for row in rows:
        printed.add_row(*row)
    Console().print(printed)


def show_targets(measured: Sequence[Target]) -> None:
    """Print each target, what was measured, its limit, and whether it is met."""
    rows = Table("target", "measured", "limit", "")
    for target in measured:
        figure, limit = f"{target.measured:,.6g} {target.unit}", f"{target.sense} {target.limit:,g} {target.unit}"
        rows.add_row(target.name, figure, limit, f"[{'green' if target.met else 'red'}]{target.verdict}[/]")
    Console().print(rows)


def picture(figure: Any, name: str) -> None:
    """Save a figure beside the results, where no commit takes it, and print where it is."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.png"
    figure.savefig(path, dpi=100)
    Console().print(f"Picture: {path}")
