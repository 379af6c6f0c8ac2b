"""`pliant demo [SYSTEM ...]`: flow, registry, endpoint, replayed load, end to end, one system after the other.

Tokens come first, with their picture as soon as it is there. What an interrupted demo has made is kept, and not made again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial

from rich.console import Console

from benchmarks.demo import estimate
from benchmarks.demo.comparison import Comparison, conclude
from benchmarks.demo.estimate import Speed, Stage, Stopwatch
from benchmarks.demo.stages import START, SYSTEMS, stages_of
from flows import servers, settings
from flows.progress import observed
from flows.run import show, with_prefect
from flows.settings import Settings
from pliant import systems

FIRST_PORT = 3000


def demo(names: Sequence[str], keep: bool, check: bool = False) -> int:
    """Run the demo of the systems `names` in the order of the list (all, where none is named). With `keep`, all stays up.

    Returns the exit status: with `check` 1 where Pliant is not ahead in every comparison, else 0.
    """
    chosen = [name for name in systems.names() if name in names or not names]
    project, console, stages = settings.read(), Console(), stages_of(chosen)
    first = Stopwatch(frozenset(stage.name for stage in START))
    load = partial(_load, project, chosen[0])
    with observed(first.end), with_prefect(project, 4200 if keep else 0, load) as prefect:
        speed = estimate.probe()
        estimate.announce(console, speed, stages)
        watches: dict[str, Stopwatch] = {}
        comparisons: dict[str, Comparison] = {}
        for system in chosen:
            watches[system], comparisons[system] = _run(system, stages[system], project, console)
        console.rule("Done")
        took = {system: watch.seconds for system, watch in watches.items()}
        estimate.compare(console, speed, stages, took)
        _record(project, speed, {"start": first, **watches}, comparisons)
        behind = conclude(console, comparisons)
        _point_on(console)
        if keep:
            _keep(console, project, prefect, chosen)
    return 1 if check and behind else 0


def _load(project: Settings, system: str) -> None:
    """Do what takes seconds while Prefect's server starts: load torch and the flow, and make MLflow's new database."""
    systems.system(system).part("flows", "flow")
    from flows.release import open_registry

    open_registry(project, system).create()


def _run(system: str, stages: Sequence[Stage], project: Settings, console: Console) -> tuple[Stopwatch, Comparison]:
    """Run one system's flow and comparison; return what its stages took, and how the comparison ended."""
    watch = Stopwatch(frozenset(stage.name for stage in stages))
    listed = systems.system(system)
    words = SYSTEMS[system]
    part, flow = listed.part("benchmarks", "demo"), listed.part("flows", "run")
    with observed(watch.end):
        console.rule(f"{system}, flow: {words.flow}")
        show(flow.run_connected(None, part.OVERRIDES))
        console.rule(f"{system}, endpoint: {words.load}")
        comparison: Comparison = part.demo(project, console)
    return watch, comparison


def _record(
    project: Settings, speed: Speed, watches: Mapping[str, Stopwatch], comparisons: Mapping[str, Comparison]
) -> None:
    """Keep what the probe measured, what the stages took and how the comparisons ended beside the state, as JSON."""
    took = {system: {"seconds": watch.seconds, "stages": watch.heard} for system, watch in watches.items()}
    ratios = {system: comparison.ratio for system, comparison in comparisons.items()}
    kept = {"speed": asdict(speed), "took": took, "ratios": ratios}
    (project.home / "demo.json").write_text(json.dumps(kept, indent=1) + "\n")


def _point_on(console: Console) -> None:
    console.print("Look further (pliant is .venv/bin/pliant):")
    console.print("  pliant demo --keep       MLflow, Prefect and the endpoints, left running")
    console.print("  pliant serve SYSTEM      an endpoint alone; docs/SYSTEM.md says what it answers")
    console.print("  pliant simulate SYSTEM   the same load in virtual time")
    console.print("  pliant train SYSTEM      the flow in its own size, larger than here")
    console.print("  pliant bench SYSTEM      every target, measured")


def _keep(console: Console, project: Settings, prefect: str, chosen: Sequence[str]) -> None:
    from benchmarks.endpoint import serving
    from flows.progress import stage

    with ExitStack() as stack:
        with stage("MLflow's server"):
            mlflow = stack.enter_context(servers.mlflow_server(project, servers.free_port(5000)))
        addresses = {}
        for number, system in enumerate(chosen):
            with stage(f"endpoint of {system}"):
                addresses[system] = stack.enter_context(serving(system, FIRST_PORT + number))
        console.rule("Left running until Ctrl-C")
        console.print(f"MLflow    {mlflow}\nPrefect   {prefect}")
        for system, address in addresses.items():
            page = SYSTEMS[system].page
            console.print(f"{system:<10}{address}{page}")
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            console.print("Stopping.")
