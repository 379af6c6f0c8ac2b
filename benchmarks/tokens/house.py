"""The targets of the house and its main job, over HTTP on the champion: replay, overhead, scheduler, faults.

One of the parts of `pliant bench tokens` (see bench.py).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.results import Target
from benchmarks.tokens.demo import print_table
from benchmarks.tokens.endpoint import address, serving, test_examples
from benchmarks.tokens.faults import FAULTS, altered_artifact, bad_inputs, terminated
from benchmarks.tokens.overhead import at_rate, one_in_flight
from benchmarks.tokens.replay import ADAPTIVE, ReplayConfig, Replayed, Stage, compare
from benchmarks.tokens.scheduler import event_rate
from flows.tokens.stages import Bundle
from pliant.tokens.knowledge import knowledge as tokens_knowledge
from pliant.tokens.reference import ReferenceConfig


@dataclass(frozen=True, slots=True)
class Setting:
    """How long to measure."""

    stretch: float = 4.0  # seconds per stretch of the replayed load
    seeds: int = 1
    overhead_requests: int = 1000
    overhead_seconds: float = 60.0


QUICK, FULL = Setting(), Setting(stretch=10.0, seeds=3, overhead_requests=5000)


def measure(bundle: Bundle, full: bool, stage: Stage) -> tuple[list[Target], dict[str, Any]]:
    """Bars, and everything measured."""
    setting = FULL if full else QUICK
    replays = _replays(bundle, setting, stage)
    loud, quiet = (float(np.mean([r.ratio(half) for r in replays])) for half in (True, False))
    targets = [
        Target("utility against gamma 0, loud half", loud, ">=", 1.15, "x"),
        Target("utility against gamma 0, quiet half", quiet, ">=", 0.98, "x"),
        Target("requests without any answer, both replays", sum(r.unanswered() for r in replays), "<=", 0),
    ]
    found, overhead = _overheads(bundle, setting, replays[0].capacity, stage)
    scheduled, rate = _scheduler(bundle, stage)
    measured = {"overhead": overhead, "scheduler": rate, "device": bundle.profile.device}
    details = {"replays": [r.plain() for r in replays], **measured}
    return [*targets, *found, *scheduled, *_faults(bundle, stage)], details


def _replays(bundle: Bundle, setting: Setting, stage: Stage) -> list[Replayed]:
    reference = ReferenceConfig(seconds=setting.stretch)
    pool = test_examples(bundle)
    made = []
    for seed in range(setting.seeds):
        made.append(compare(address, pool, ReplayConfig(seed=seed, reference=reference), stage))
        print_table(Console(), made[-1])
    return made


def _overheads(bundle: Bundle, setting: Setting, capacity: float, stage: Stage) -> tuple[list[Target], dict[str, Any]]:
    pool = test_examples(bundle)
    with serving(ADAPTIVE) as service:
        with stage("overhead, one in flight") as progress:
            single = one_in_flight(service.url, pool, setting.overhead_requests, progress)
        with stage("overhead at a third of capacity") as progress:
            third = at_rate(service.url, pool, capacity / 3, setting.overhead_seconds, progress)
    targets = [
        Target("overhead, one in flight, median", 1000 * single.p50, "<=", 3.0, "ms"),
        Target(
            f"overhead at a third of capacity, p99 over {setting.overhead_seconds:.0f} s",
            1000 * third.p99,
            "<=",
            15.0,
            "ms",
        ),
    ]
    return targets, {"one_in_flight": asdict(single), "third_of_capacity": asdict(third), "rate": capacity / 3}


def _scheduler(bundle: Bundle, stage: Stage) -> tuple[list[Target], dict[str, Any]]:
    with stage("scheduler in the simulator") as progress:
        rate = event_rate(tokens_knowledge(bundle.profile, bundle.tasks))
        progress(1, 1)
    targets = [Target(f"scheduler events per second, {rate.depth:.0f} batches waiting", rate.per_second, ">=", 20_000)]
    return targets, asdict(rate)


def _faults(bundle: Bundle, stage: Stage) -> list[Target]:
    pool = test_examples(bundle)
    with stage("bad input, SIGTERM, altered artifact") as progress:
        with serving(ADAPTIVE) as service:
            refused = bad_inputs(service.url, pool)
        progress(1, 3)
        answered, status = terminated(pool, 64)
        progress(2, 3)
        caught = altered_artifact(bundle)
        progress(3, 3)
    return [
        Target(
            f"bad inputs refused with a reason, the next request served, of {len(FAULTS)}",
            refused,
            ">=",
            len(FAULTS),
        ),
        Target("requests in flight at SIGTERM that were answered, of 64", answered, ">=", 64),
        Target("exit status after SIGTERM", status, "<=", 0),
        Target("altered or truncated artifacts refused by name and both digests, of 2", caught, ">=", 2),
    ]
