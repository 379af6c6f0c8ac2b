"""The demo's stages by system, with what each costs (benchmarks/demo_estimate.py says in which units)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.demo_estimate import Stage

TEXTS = "texts"
START = (Stage("Prefect's server", wait=12),)
STAGES: Mapping[str, Sequence[Stage]] = {
    "tokens": (
        Stage("foundation", wait=18),
        Stage("task digit", wait=10),
        Stage("task loops", wait=14),
        Stage("latency profile", wait=10),
        Stage("gate", wait=1),
        Stage("publish", wait=6),
        Stage("endpoints", wait=8),
        Stage("capacity at gamma 0", wait=2),
        Stage("load at gamma 0", wait=12),
        Stage("load with adaptation", wait=12),
    ),
    "bins": (
        Stage("texts", wait=6),
        Stage("package: encoder", wait=25),
        Stage("package: lengths", wait=1),
        Stage("package: compile, latency profile", wait=9),
        Stage("package: bins", wait=2),
        Stage("publish", wait=3),
        Stage("two bins endpoints, up", wait=10),
        Stage("what the machine bears", wait=5),
        Stage("texts of all lengths in turns", wait=15),
    ),
    "cascade": (
        Stage("package: train small", wait=3),
        Stage("package: train large", wait=12),
        Stage("package: outputs, profiling", wait=4),
        Stage("package: outputs, test", wait=3),
        Stage("package: latency profile", wait=1),
        Stage("publish", wait=3),
        Stage("the cascade and its large model under one load", wait=24),
    ),
    "packing": (Stage("packing: chats in turns", wait=40),),
}


def stages_of(systems: Sequence[str]) -> dict[str, tuple[Stage, ...]]:
    """Return what comes in a demo of these systems, by system: the embedded texts are read once, by whoever is first."""
    seen: set[str] = set()
    stages = {}
    for system in systems:
        stages[system] = tuple(stage for stage in STAGES[system] if stage.name != TEXTS or TEXTS not in seen)
        seen |= {stage.name for stage in STAGES[system]}
    return stages
