"""`pliant demo`: flow, registry, endpoint, replayed load, end to end, one system after the other."""

from __future__ import annotations

import time
from contextlib import ExitStack

from rich.console import Console

from benchmarks import bins_demo, cascade_demo, packing_demo, tokens_demo
from benchmarks.endpoint import serving
from flows import bins_run, cascade_run, packing_run, servers, settings, tokens_run
from flows.run import show, with_prefect
from flows.settings import Settings


def demo(keep: bool) -> int:
    """Run the main job. With `keep`, everything stays up until interrupted."""
    start, told, console = time.monotonic(), settings.read(), Console()
    with with_prefect(told, 4200 if keep else 0) as prefect:
        console.rule("1  tokens, flow: train, profile, judge, publish")
        show(tokens_run.run_connected(None, {}))
        console.rule("2  tokens, endpoint: the same bursty load with gamma 0 and with adaptation")
        tokens_demo.demo(told, console)
        console.rule(f"3  bins, flow: train, compile, profile, choose bins, judge, publish (after {_since(start)})")
        show(bins_run.run_connected(None, {}))
        console.rule("4  bins, endpoint: texts of all lengths, and what others would have made of them")
        bins_demo.demo(told, console)
        console.rule(f"5  cascade, flow: train, calibrate, profile, plan, judge, publish (after {_since(start)})")
        show(cascade_run.run_connected(None, {}))
        console.rule("6  cascade, endpoint: the same texts with the cascade and its large model")
        cascade_demo.demo(told, console)
        console.rule(
            f"7  packing, flow: train, observe lengths, predict, profile, plan, publish (after {_since(start)})"
        )
        show(packing_run.run_connected(None, {}))
        console.rule("8  packing, endpoint: chats packed by predicted lengths, and what others would have made of them")
        packing_demo.demo(told, console)
        console.rule(f"Done after {_since(start)}")
        _point_on(console)
        if keep:
            _keep(console, told, prefect)
    return 0


def _since(start: float) -> str:
    return f"{time.monotonic() - start:.0f} s"


def _point_on(console: Console) -> None:
    console.print("Look further:  pliant demo --keep       MLflow, Prefect and the endpoints, left running")
    console.print("               pliant serve SYSTEM      an endpoint alone; its page is /v1/docs")
    console.print("               pliant simulate SYSTEM   the same load in virtual time")
    console.print("               pliant bench SYSTEM      every bar, measured")


def _keep(console: Console, told: Settings, prefect: str) -> None:
    with ExitStack() as stack:
        mlflow = stack.enter_context(servers.mlflow_server(told, servers.free_port(5000)))
        tokens = stack.enter_context(serving("tokens", 3000))
        cascade = stack.enter_context(serving("cascade", 3001))
        bins = stack.enter_context(serving("bins", 3002))
        packing = stack.enter_context(serving("packing", 3003))
        console.rule("Left running until Ctrl-C")
        console.print(f"MLflow    {mlflow}\nPrefect   {prefect}")
        pages = {
            "tokens": f"{tokens.url}/v1",
            "cascade": f"{cascade.url}/v1",
            "bins": bins.url,
            "packing": f"{packing.url}/v1",
        }
        for name, url in pages.items():
            console.print(f"{name:<10}{url}/docs")
        try:
            tokens.process.wait()
        except KeyboardInterrupt:
            console.print("Stopping.")
