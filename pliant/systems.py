"""The one list of systems: what each stores, how its scheduler is made, and the load it is judged by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pliant.bins.artifact import Bins, Encoder
from pliant.bins.reference import ReferenceLoad as BinsLoad
from pliant.bins.reference import reference_load as bins_load
from pliant.bins.scheduler import BinsScheduler
from pliant.cascade.artifact import Cascade, Outputs
from pliant.cascade.reference import ReferenceLoad as CascadeLoad
from pliant.cascade.reference import reference_load as cascade_load
from pliant.cascade.scheduler import CascadeScheduler
from pliant.latency import LatencyTable
from pliant.models.artifact import Classifier
from pliant.packing.artifact import Generator, Packing, Predictor
from pliant.packing.scheduling.reference import ReferenceLoad as PackingLoad
from pliant.packing.scheduling.reference import reference_load as packing_load
from pliant.packing.scheduling.scheduler import Packer
from pliant.protocol import Scheduler
from pliant.tokens.artifact import Backbone, Profile, Task, Variant
from pliant.tokens.policies import make
from pliant.tokens.policy import Knowledge
from pliant.tokens.reference import ReferenceLoad, reference_load


@dataclass(frozen=True, slots=True)
class System:
    """`artifacts`: dataclasses that the registry holds for it. `load(tasks, capacity, seed)`: its reference workload.

    Tasks are names, or where lengths matter (cascade, bins) the lengths of texts by name; bins then takes its SLOs by name.
    packing takes a plan and its generator's context. Its scheduler decides once an iteration
    (pliant/packing/scheduling/request.py), the others at every event.
    """

    name: str
    artifacts: tuple[type, ...]
    scheduler: Callable[..., Scheduler | Packer]
    load: Callable[..., ReferenceLoad | BinsLoad | CascadeLoad | PackingLoad]


def tokens_knowledge(profile: Profile, tasks: Sequence[Task]) -> Knowledge:
    """What stored artifacts say, for the gammas that were profiled and that every task was measured at."""
    table = profile.latency
    gammas = tuple(g for g in table.settings if all(g in task.accuracy for task in tasks))
    latency = LatencyTable(gammas, table.batches, tuple(table.row(gamma) for gamma in gammas))
    return Knowledge(latency, {task.name: dict(task.accuracy) for task in tasks}, profile.rule)


TOKENS = System("tokens", (Backbone, Task, Profile, Variant), make, reference_load)
BINS = System("bins", (Encoder, Bins), BinsScheduler, bins_load)
CASCADE = System("cascade", (Classifier, Outputs, Cascade), CascadeScheduler, cascade_load)
PACKING = System("packing", (Generator, Predictor, Packing), Packer, packing_load)

SYSTEMS = {system.name: system for system in (TOKENS, BINS, CASCADE, PACKING)}
