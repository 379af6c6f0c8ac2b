"""`pliant bench tokens`: every bar of the tokens system, measured on the champion, printed and written as JSON.

Without a champion in the registry the flow runs first. Quick: about four minutes; full: longer stretches and three seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.results import Bar, exit_status, write
from benchmarks.tokens_endpoint import address, live_bundle, serving, test_examples
from benchmarks.tokens_faults import FAULTS, altered_artifact, bad_inputs, terminated
from benchmarks.tokens_overhead import at_rate, one_in_flight
from benchmarks.tokens_replay import ADAPTIVE, ReplayConfig, Replayed, compare
from benchmarks.tokens_scheduler import event_rate
from flows import settings
from flows.tokens_publish import champion
from flows.tokens_run import run_flow
from flows.tokens_stages import Bundle
from pliant.progress import Progress
from pliant.systems import tokens_config
from pliant.tokens.reference import ReferenceConfig

RESULTS = Path("benchmarks/results")

Stage = Callable[[str], AbstractContextManager[Progress]]


@dataclass(frozen=True, slots=True)
class Setting:
    """How long to measure."""

    stretch: float = 4.0  # seconds per stretch of the replayed load
    seeds: int = 1
    overhead_requests: int = 1000
    overhead_seconds: float = 60.0


QUICK, FULL = Setting(), Setting(stretch=10.0, seeds=3, overhead_requests=5000)


def bench(full: bool) -> int:
    """Measure, print, write; 1 if a bar falls short."""
    told = settings.read()
    settings.prepare(told)
    if champion(told) is None:
        run_flow(None, {})
    from flows.progress import stage

    bundle = live_bundle()
    bars, details = _measure(bundle, FULL if full else QUICK, stage)
    _print(bars)
    path = write(RESULTS, "tokens-full" if full else "tokens", bars, details)
    Console().print(f"Written to {path}")
    return exit_status(bars)


def _measure(bundle: Bundle, setting: Setting, stage: Stage) -> tuple[list[Bar], dict[str, Any]]:
    replays = _replays(bundle, setting, stage)
    loud, quiet = (float(np.mean([r.ratio(half) for r in replays])) for half in (True, False))
    bars = [
        Bar("utility against gamma 0, loud half", loud, ">=", 1.15, "x"),
        Bar("utility against gamma 0, quiet half", quiet, ">=", 0.98, "x"),
        Bar("requests without any answer, both replays", sum(r.unanswered() for r in replays), "<=", 0),
    ]
    found, overhead = _overheads(bundle, setting, replays[0].capacity, stage)
    scheduled, rate = _scheduler(bundle, stage)
    measured = {"overhead": overhead, "scheduler": rate, "device": bundle.profile.device}
    details = {"replays": [r.plain() for r in replays], **measured}
    return [*bars, *found, *scheduled, *_faults(bundle, stage)], details


def _replays(bundle: Bundle, setting: Setting, stage: Stage) -> list[Replayed]:
    reference = ReferenceConfig(seconds=setting.stretch)
    pool = test_examples(bundle)
    made = []
    for seed in range(setting.seeds):
        made.append(compare(address, pool, ReplayConfig(seed=seed, reference=reference), stage))
        _print_replay(made[-1])
    return made


def _overheads(bundle: Bundle, setting: Setting, capacity: float, stage: Stage) -> tuple[list[Bar], dict[str, Any]]:
    pool = test_examples(bundle)
    with serving(ADAPTIVE) as service:
        with stage("overhead, one in flight") as progress:
            single = one_in_flight(service.url, pool, setting.overhead_requests, progress)
        with stage("overhead at a third of capacity") as progress:
            third = at_rate(service.url, pool, capacity / 3, setting.overhead_seconds, progress)
    bars = [
        Bar("overhead, one in flight, median", 1000 * single.p50, "<=", 3.0, "ms"),
        Bar(
            f"overhead at a third of capacity, p99 over {setting.overhead_seconds:.0f} s",
            1000 * third.p99,
            "<=",
            15.0,
            "ms",
        ),
    ]
    return bars, {"one_in_flight": asdict(single), "third_of_capacity": asdict(third), "rate": capacity / 3}


def _scheduler(bundle: Bundle, stage: Stage) -> tuple[list[Bar], dict[str, Any]]:
    with stage("scheduler in the simulator") as progress:
        rate = event_rate(tokens_config(bundle.profile, bundle.tasks))
        progress(1, 1)
    bars = [Bar(f"scheduler events per second, {rate.depth:.0f} batches waiting", rate.per_second, ">=", 20_000)]
    return bars, asdict(rate)


def _faults(bundle: Bundle, stage: Stage) -> list[Bar]:
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
        Bar(
            f"bad inputs refused with a reason, the next request served, of {len(FAULTS)}",
            refused,
            ">=",
            len(FAULTS),
        ),
        Bar("requests in flight at SIGTERM that were answered, of 64", answered, ">=", 64),
        Bar("exit status after SIGTERM", status, "<=", 0),
        Bar("altered or truncated artifacts refused by name and both digests, of 2", caught, ">=", 2),
    ]


def _print_replay(replayed: Replayed) -> None:
    from benchmarks.tokens_demo import print_table

    print_table(Console(), replayed)


def _print(bars: list[Bar]) -> None:
    table = Table("bar", "measured", "limit", "")
    for bar in bars:
        measured, limit = f"{bar.measured:,.6g} {bar.unit}", f"{bar.sense} {bar.limit:,g} {bar.unit}"
        table.add_row(bar.name, measured, limit, f"[{'green' if bar.holds else 'red'}]{bar.verdict}[/]")
    Console().print(table)
