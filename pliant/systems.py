"""The one list of systems: what each stores, how its scheduler is made, and the load it is judged by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pliant.protocol import Scheduler
from pliant.tokens.artifact import Backbone, Profile, Task
from pliant.tokens.reference import ReferenceLoad, reference_load
from pliant.tokens.scheduler import TokensConfig, TokensScheduler


@dataclass(frozen=True, slots=True)
class System:
    """`artifacts`: dataclasses that the registry holds for it. `load(tasks, capacity, seed)`: its reference workload."""

    name: str
    artifacts: tuple[type, ...]
    scheduler: Callable[..., Scheduler]
    load: Callable[[Sequence[str], float, int], ReferenceLoad]


def tokens_config(
    profile: Profile, tasks: Sequence[Task], gammas: Sequence[int] | None = None, max_waiting: int = 2048
) -> TokensConfig:
    """A scheduler's configuration from stored artifacts; `gammas` restricts it, (0,) being the PetS baseline."""
    wanted = profile.latency.settings if gammas is None else gammas
    allowed = [g for g in wanted if g in profile.latency.settings]
    allowed = [g for g in allowed if all(g in task.accuracy for task in tasks)]
    accuracy = {task.name: dict(task.accuracy) for task in tasks}
    return TokensConfig(profile.latency, accuracy, profile.rule, tuple(sorted(allowed)), max_waiting=max_waiting)


TOKENS = System("tokens", (Backbone, Task, Profile), TokensScheduler, reference_load)

SYSTEMS = {system.name: system for system in (TOKENS,)}
