"""`pliant bench watch`: the targets of watching, trials and rollbacks, measured, printed and written as JSON.

Stands beside the systems: what is watched and tried is the same in all four. Knows what each part is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from benchmarks import harness
from benchmarks.harness import Context, Measured, Part
from benchmarks.watch import alarms, quiet, rollout
from flows import settings
from pliant import systems

TRAINING = 120.0  # seconds, of a champion of tokens in the demo's sizes


def _quiet(context: Context) -> Measured:
    with context.stage("quiet months") as progress:
        return quiet.quiet(context.full, progress)


def _alarms(context: Context) -> Measured:
    with context.stage("planted changes") as progress:
        return alarms.alarms(context.full, progress)


def _live(name: str, context: Context) -> Measured:
    """Measure at running services of tokens, whose champion is the quickest to get."""
    measured: Measured = getattr(systems.system("tokens").part("benchmarks", "watch_live"), name)(context)
    return measured


def _training(_context: Context) -> float:
    """Return the seconds of training the live parts' champion, which is kept."""
    kept = settings.read().home / "bench" / "watch" / "mlruns" / "mlflow.db"
    return 0.0 if kept.is_file() else TRAINING


PARTS: Mapping[str, Part] = {
    "rollout": Part(rollout.measure, 200.0, 40.0),
    "quiet": Part(_quiet, 60.0),
    "alarms": Part(_alarms, 240.0),
    "rollback": Part(partial(_live, "rollback"), 60.0, _training),
    "requests": Part(partial(_live, "requests"), 90.0, _training),
    "shadow": Part(partial(_live, "shadow"), 90.0, _training),
    "cost": Part(partial(_live, "cost"), 130.0, _training),
}


def bench(full: bool, names: list[str]) -> int:
    """Run the named parts, or all for which there is time, and return the exit status."""
    return harness.run("watch", PARTS, full, names)
