"""`pliant bench watch`: the targets of watching, trials and rollbacks, measured, printed and written as JSON.

Stands beside the systems: what is watched and tried is the same in all four. Knows what each part is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from rich.console import Console

from benchmarks import harness
from benchmarks.harness import Context, Measured, Part, Skipped
from benchmarks.results import Target
from benchmarks.watch import alarms, quiet, rollout
from benchmarks.watch.changes import changes
from flows import settings
from pliant import systems

TRAINING, PACKING_TRAINING = 120.0, 100.0  # seconds, of a champion of tokens in the demo's sizes, and of packing
CHANGES, CHANGES_TRAINING = 600.0, 120.0
"""Seconds of two planted changes of a system, which is more than the quick setting has, and of its first release."""
COSTLY = ("tokens", "packing")
"""Systems whose cost of watching is measured: the most counting a request, and the most requests a process."""


def _quiet(context: Context) -> Measured:
    with context.stage("quiet months") as progress:
        return quiet.quiet(context.full, progress)


def _alarms(context: Context) -> Measured:
    with context.stage("planted changes") as progress:
        return alarms.alarms(context.full, progress)


def _live(name: str, context: Context, system: str = "tokens") -> Measured:
    """Measure at running services of a system: by default of tokens, whose champion is the quickest to get."""
    measured: Measured = getattr(systems.system(system).part("benchmarks", "watch.live"), name)(context)
    return measured


def _cost(context: Context) -> Measured:
    """Measure the cost in both systems; one that cannot be measured here is left out with the reason."""
    targets, details = list[Target](), dict[str, Any]()
    for system in COSTLY:
        try:
            own, details[system] = _live("cost", context, system)
        except Skipped as error:
            Console().print(f"{system} is left out: {error}")
            details[system] = {"left out": str(error)}
        else:
            targets += own
    return targets, details


def _training(_context: Context) -> float:
    """Return the seconds of training the live parts' champion, which is kept."""
    kept = settings.read().home / "bench" / "watch" / "mlruns" / "mlflow.db"
    return 0.0 if kept.is_file() else TRAINING


def _training_both(context: Context) -> float:
    """Return the seconds of training the champions of `_cost`. One that was watched before is there."""
    watched = settings.read().home / "bench" / "watch" / "watch" / "packing.json"
    return _training(context) + (0.0 if watched.is_file() else PACKING_TRAINING)


PARTS: Mapping[str, Part] = {
    "rollout": Part(rollout.measure, 200.0, 40.0),
    "quiet": Part(_quiet, 60.0),
    "alarms": Part(_alarms, 240.0),
    "rollback": Part(partial(_live, "rollback"), 60.0, _training),
    "requests": Part(partial(_live, "requests"), 90.0, _training),
    "shadow": Part(partial(_live, "shadow"), 90.0, _training),
    "cost": Part(_cost, 150.0, _training_both),
    **{f"changes-{system}": Part(partial(changes, system), CHANGES, CHANGES_TRAINING) for system in systems.names()},
}


def bench(full: bool, names: list[str]) -> int:
    """Run the named parts, or all for which there is time, and return the exit status."""
    return harness.run("watch", PARTS, full, names)
