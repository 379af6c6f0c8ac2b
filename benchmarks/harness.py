"""Runs a system's benchmark: the parts that are named, or all that there is time for; prints and writes the figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from benchmarks import console
from benchmarks.budget import begin
from benchmarks.results import Target, write
from flows import settings
from pliant.errors import InputError, PliantError
from pliant.progress import Progress

RESULTS = Path("benchmarks/results")

T = TypeVar("T")

Stage = Callable[[str], AbstractContextManager[Progress]]
Measured = tuple[list[Target], dict[str, Any]]
"""The targets of a part, and the details that are written beside them."""


class Skipped(PliantError):  # noqa: N818
    """A part cannot be measured here; says what is missing."""


class Context:
    """What every part is given: the setting, and how a stage shows its progress.

    The setting is the quick one, or `full`, or the `smallest`, in which the ledger measures (benchmarks/ledger).
    """

    def __init__(self, full: bool, stage: Stage, smallest: bool = False) -> None:
        self.full, self.stage, self.smallest = full, stage, smallest

    def choose(self, quick: T, full: T, smallest: T) -> T:
        """Return the one that belongs to the setting."""
        return full if self.full else smallest if self.smallest else quick


@dataclass(frozen=True, slots=True)
class Part:
    """How a part is measured, and the seconds of its quick setting on the machine of the slow setting (CONTRIBUTING.md).

    `training`: seconds there of what is trained or compiled for it first, or a function of the context that gives them.
    """

    measure: Callable[[Any], Measured]
    seconds: float
    training: Callable[[Any], float] | float = 0.0


def run(
    system: str,
    parts: Mapping[str, Part],
    full: bool,
    names: Sequence[str],
    make: Callable[[bool, Stage], Any] = Context,
) -> int:
    """Measure the named parts (without names: all that there is time for), print, write; return the budget's exit status.

    A part that cannot be measured here is left out with the reason; other errors end the run only where parts are named.
    """
    if unknown := [name for name in names if name not in parts]:
        raise InputError("part", unknown[0], f"one of {', '.join(parts)}")
    settings.prepare(settings.read())
    from flows.progress import stage

    context, budget = make(full, stage), begin(system, full, names)
    targets: list[Target] = []
    for name in names or parts:
        Console().rule(name)
        part = parts[name]
        try:
            training = part.training(context) if callable(part.training) else part.training
            if not budget.allows(name, part.seconds, training):
                continue
            measured, details = part.measure(context)
        except PliantError as error:  # what other parts measured is not lost
            if names and not isinstance(error, Skipped):
                raise
            budget.leave_out(name, str(error))
            continue
        targets += measured
        if measured:
            console.targets(measured)
        if details:
            path = write(RESULTS, f"{system}-{name}", measured, details | {"setting": "full" if full else "quick"})
            Console().print(f"Written to {path}")
    Console().rule("all targets")
    console.targets(targets)
    return budget.status(targets)


def need(missing: str) -> None:
    """Raise `Skipped` with the reason `missing`, unless it is empty."""
    if missing:
        raise Skipped(missing)
