"""What a tokens scheduler knows, from stored artifacts."""

from __future__ import annotations

from collections.abc import Sequence

from pliant.tokens.artifact import Profile, Task
from pliant.tokens.policy import Knowledge


def knowledge(profile: Profile, tasks: Sequence[Task]) -> Knowledge:
    """Return what `profile` and `tasks` say, for the gammas that were profiled and that every task was measured at.

    Accuracies are those of the precision that was profiled.
    """
    table, tasks = profile.latency, [task.served_in(profile.precision) for task in tasks]
    latency = table.only([g for g in table.settings if all(g in task.accuracy for task in tasks)])
    return Knowledge(latency, {task.name: dict(task.accuracy) for task in tasks}, profile.rule)
