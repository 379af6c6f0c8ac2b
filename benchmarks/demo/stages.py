"""The demo's stages, in the order in which they come. What a system adds is in its own `stages.py`."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.demo.estimate import Stage
from pliant import systems

TEXTS = Stage("texts", python=4.9)
START = (Stage("Prefect's server", pair=2.4, python=6.4),)


def stages_of(names: Sequence[str]) -> dict[str, tuple[Stage, ...]]:
    """Return what comes in a demo of these systems, by system: the embedded texts are read once, by whoever is first."""
    stages: dict[str, tuple[Stage, ...]] = {}
    for name in names:
        read = any(TEXTS in earlier for earlier in stages.values())
        own = systems.system(name).part("benchmarks", "stages").STAGES
        stages[name] = tuple(stage for stage in own if stage != TEXTS or not read)
    return stages
