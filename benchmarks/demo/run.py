"""`pliant demo [SYSTEM ...]`: flow, registry, endpoint, replayed load, end to end, one system after the other.

Tokens come first, with their picture as soon as it is there. What an interrupted demo has made is kept, and not made again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from importlib import import_module
from typing import Any

from rich.console import Console

from benchmarks.demo import estimate
from benchmarks.demo.estimate import Speed, Stage, Stopwatch
from benchmarks.demo.stages import STAGES, START, stages_of
from flows import servers, settings
from flows.progress import observed
from flows.run import show, with_prefect
from flows.settings import Settings

FLOWS = {
    "tokens": "train, profile, judge, publish",
    "bins": "train, compile, profile, choose bins, judge, publish",
    "cascade": "train, calibrate, profile, plan, judge, publish",
    "packing": "train, observe lengths, predict, profile, plan, judge, publish",
}
LOADS = {
    "tokens": "the same bursty load with gamma 0 and with adaptation",
    "bins": "the same texts of all lengths, with bins and without",
    "cascade": "the same texts with the cascade and with its large model",
    "packing": "the same chats, packed by predicted lengths and first come, first served",
}
PORTS = {"tokens": 3000, "cascade": 3001, "bins": 3002, "packing": 3003}
PAGES = {"tokens": "/v1/docs", "bins": "/docs", "cascade": "/v1/docs", "packing": "/v1/docs"}


def demo(systems: Sequence[str], keep: bool) -> int:
    """Run the demo of `systems` in their order in `STAGES` (all, where none is named). With `keep`, everything stays up."""
    chosen = [system for system in STAGES if system in systems or not systems]
    told, console, stages = settings.read(), Console(), stages_of(chosen)
    first = Stopwatch(frozenset(stage.name for stage in START))
    load = partial(_load, told, chosen[0])
    with observed(first.end), with_prefect(told, 4200 if keep else 0, load) as prefect:
        speed = estimate.probe()
        estimate.announce(console, speed, stages)
        watches = {system: _run(system, stages[system], told, console) for system in chosen}
        console.rule("Done")
        took = {system: watch.seconds for system, watch in watches.items()}
        estimate.compare(console, speed, stages, took)
        _record(told, speed, {"start": first, **watches})
        _point_on(console)
        if keep:
            _keep(console, told, prefect, chosen)
    return 0


def _load(told: Settings, system: str) -> None:
    """What takes seconds and can be done while Prefect's server starts: torch, the flow, MLflow and its new database."""
    import_module(f"flows.{system}.flow")
    from flows.release import open_registry
    from registry.names import experiment

    open_registry(told, experiment(system)).create()


def _run(system: str, stages: Sequence[Stage], told: Settings, console: Console) -> Stopwatch:
    """One system's flow and comparison; returns what its stages took."""
    watch = Stopwatch(frozenset(stage.name for stage in stages))
    compare, flow, overrides = _parts(system)
    with observed(watch.end):
        console.rule(f"{system}, flow: {FLOWS[system]}")
        show(flow(None, overrides))
        console.rule(f"{system}, endpoint: {LOADS[system]}")
        compare(told, console)
    return watch


def _parts(system: str) -> tuple[Callable[[Settings, Console], None], Callable[..., dict[str, Any]], Mapping[str, Any]]:
    """A system's comparison, its flow and the sizes that the demo takes for it; imported when its turn comes."""
    if system == "tokens":
        from benchmarks.tokens import demo as tokens_demo
        from flows.tokens import run as tokens_run

        return tokens_demo.demo, tokens_run.run_connected, tokens_demo.OVERRIDES
    if system == "bins":
        from benchmarks.bins import demo as bins_demo
        from flows.bins import run as bins_run

        return bins_demo.demo, bins_run.run_connected, bins_demo.OVERRIDES
    if system == "cascade":
        from benchmarks.cascade import demo as cascade_demo
        from flows.cascade import run as cascade_run

        return cascade_demo.demo, cascade_run.run_connected, cascade_demo.OVERRIDES
    from benchmarks.packing import demo as packing_demo
    from flows.packing import run as packing_run

    return packing_demo.demo, packing_run.run_connected, packing_demo.OVERRIDES


def _record(told: Settings, speed: Speed, watches: Mapping[str, Stopwatch]) -> None:
    """Keep what the probe measured and what the stages took beside the state, as JSON."""
    took = {system: {"seconds": watch.seconds, "stages": watch.heard} for system, watch in watches.items()}
    (told.home / "demo.json").write_text(json.dumps({"speed": asdict(speed), "took": took}, indent=1) + "\n")


def _point_on(console: Console) -> None:
    console.print("Look further:")
    console.print("  pliant demo --keep       MLflow, Prefect and the endpoints, left running")
    console.print("  pliant serve SYSTEM      an endpoint alone; its page is /v1/docs")
    console.print("  pliant simulate SYSTEM   the same load in virtual time")
    console.print("  pliant train SYSTEM      the flow in its own size, larger than here")
    console.print("  pliant bench SYSTEM      every target, measured")


def _keep(console: Console, told: Settings, prefect: str, systems: Sequence[str]) -> None:
    from benchmarks.endpoint import serving
    from flows.progress import stage

    with ExitStack() as stack:
        with stage("MLflow's server"):
            mlflow = stack.enter_context(servers.mlflow_server(told, servers.free_port(5000)))
        services = {}
        for system in systems:
            with stage(f"endpoint of {system}"):
                services[system] = stack.enter_context(serving(system, PORTS[system]))
        console.rule("Left running until Ctrl-C")
        console.print(f"MLflow    {mlflow}\nPrefect   {prefect}")
        for system, service in services.items():
            console.print(f"{system:<10}{service.url}{PAGES[system]}")
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            console.print("Stopping.")
