"""`pliant bench watch`: the targets of watching, trials and rollbacks, measured, printed and written as JSON.

Stands beside the systems: what is watched and tried is the same in all four. Knows what each part is given.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks import harness
from benchmarks.harness import Context, Measured, Part
from benchmarks.watch import alarms, quiet, rollout


def _quiet(context: Context) -> Measured:
    with context.stage("quiet months") as progress:
        return quiet.quiet(context.full, progress)


def _alarms(context: Context) -> Measured:
    with context.stage("planted changes") as progress:
        return alarms.alarms(context.full, progress)


PARTS: Mapping[str, Part] = {
    "rollout": Part(rollout.measure, 200.0, 40.0),
    "quiet": Part(_quiet, 60.0),
    "alarms": Part(_alarms, 240.0),
}


def bench(full: bool, names: list[str]) -> int:
    """Run the named parts, or all for which there is time, and return the exit status."""
    return harness.run("watch", PARTS, full, names)
