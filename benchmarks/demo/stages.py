"""What the demo does, in the order in which it comes, and what each stage costs (see estimate.py). Imports nothing heavy.

Stages of less than a second count to those after them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.demo.estimate import Stage

TEXTS = Stage("texts", python=4.9)
START = (Stage("Prefect's server", pair=2.4, python=6.4),)


@dataclass(frozen=True, slots=True)
class Words:
    """What a system's flow and its load are called, its stages, and the path of its page of documentation."""

    flow: str
    load: str
    stages: tuple[Stage, ...]
    page: str = "/v1/docs"


SYSTEMS: Mapping[str, Words] = {
    "tokens": Words(
        "train, profile, judge, publish",
        "the same bursty load with gamma 0 and with adaptation",
        (
            Stage("foundation", tensor=4.9, python=1.5),
            Stage("task digit", tensor=2.5),
            Stage("task loops", tensor=2.2),
            Stage("latency profile", tensor=0.6, python=1.5),
            Stage("gate", python=1.2),
            Stage("publish", python=3.0),
            Stage("endpoints", pair=7.1, python=0.3),
            Stage("capacity at gamma 0", pair=0.3, wait=2.5),
            Stage("the load in turns", python=1.1, wait=18.5),
        ),
    ),
    "bins": Words(
        "train, compile, profile, choose bins, judge, publish",
        "the same texts of all lengths, with bins and without",
        (
            TEXTS,
            Stage("package: encoder", tensor=4.8, python=3.6),
            Stage("package: lengths", tensor=0.7, python=0.3),
            Stage("package: compile, latency profile", tensor=0.8, python=7.6),
            Stage("package: bins", tensor=0.2, python=1.9),
            Stage("package: gate", python=1.4),
            Stage("publish", tensor=0.1, python=0.9),
            Stage("two bins endpoints, up", pair=7.6, python=2.0),
            Stage("what the machine bears", wait=3.0),
            Stage("texts of all lengths in turns", pair=0.3, python=2.6, wait=15.0),
        ),
        "/docs",
    ),
    "cascade": Words(
        "train, calibrate, profile, plan, judge, publish",
        "the same texts with the cascade and with its large model",
        (
            TEXTS,
            Stage("package: train small", tensor=2.8, python=6.0),
            Stage("package: train large", tensor=3.0, python=5.6),
            Stage("package: outputs, profiling", tensor=0.6, python=2.1),
            Stage("package: outputs, test", tensor=0.8, python=1.9),
            Stage("package: latency profile", tensor=0.2, python=0.8),
            Stage("package: gate", python=0.6),
            Stage("publish", tensor=0.1, python=1.0),
            Stage("the cascade and its large model under one load", python=9.4, wait=16.5),
        ),
    ),
    "packing": Words(
        "train, observe lengths, predict, profile, plan, judge, publish",
        "the same chats, packed by predicted lengths and first come, first served",
        (
            TEXTS,
            Stage("docstrings: generator", tensor=2.1, python=16.0),
            Stage("docstrings: lengths", python=10.0),
            Stage("docstrings: predictor", tensor=0.1, python=2.9),
            Stage("docstrings: step profile", python=2.0),
            Stage("docstrings: plan", python=1.8),
            Stage("publish", python=1.6),
            Stage("packing: chats in turns", pair=12.0, wait=33.0),
        ),
    ),
}


def stages_of(names: Sequence[str]) -> dict[str, tuple[Stage, ...]]:
    """Return what comes in a demo of these systems, by system: the embedded texts are read once, by whoever is first."""
    stages: dict[str, tuple[Stage, ...]] = {}
    for name in names:
        read = any(TEXTS in earlier for earlier in stages.values())
        stages[name] = tuple(stage for stage in SYSTEMS[name].stages if stage != TEXTS or not read)
    return stages
