"""`pliant bench bins`: every target of the bins system, measured, printed and written as JSON.

No part trains anything: those that serve compile and measure a published encoder. Knows what each part is given; measures
nothing itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from rich.console import Console

from benchmarks import console, harness
from benchmarks.bins import contest, dispatch, fidelity, live, live_contenders, nodes, planner, traces
from benchmarks.bins.minilm import own_registry
from benchmarks.harness import Context, Measured, Part, need
from flows import settings


def _preparation(_context: Context) -> float:
    """Return the seconds on the slow setting to compile and measure the published encoder, once."""
    return 0.0 if own_registry(settings.read()).artifact_root.is_dir() else 90.0


def _planner(context: Context) -> Measured:
    with context.stage("allocation, exact") as progress:
        timings = planner.measure(progress, 20 if context.full else 6)
    console.table("published programme, one core", planner.HEADINGS, timings.table())
    return timings.targets(), timings.plain()


def _dispatch(context: Context) -> Measured:
    need(traces.missing())
    with context.stage("dispatch") as progress:
        rates = dispatch.measure(progress)
    console.table("decisions a second", dispatch.HEADINGS, rates.table())
    with context.stage("few devices and many") as progress:
        served = dispatch.serve(progress)
    console.table("the scheduler's part of a request", dispatch.SERVED_HEADINGS, served.table())
    return rates.targets() + served.targets(), rates.plain() | served.plain()


def _contest(context: Context) -> Measured:
    need(traces.missing())
    with context.stage("simulations of all schemes") as progress:
        result = contest.measure(context.full, progress)
    console.table("mean latency over the published pair's (worst seed)", contest.HEADINGS, result.table())
    title = "the published order: the pair below each rival, ten devices, 1,000 requests/s of BERT-base"
    console.table(title, contest.ORDER_HEADINGS, result.order())
    console.picture(contest.figure(result), harness.RESULTS, "bins-contest")
    return result.targets(), result.plain()


def _live(context: Context) -> Measured:
    need(live_contenders.missing())
    result = live_contenders.measure(live.FULL if context.full else live.QUICK, context.stage)
    console.table("over HTTP, tweets' lengths, all-MiniLM-L6-v2", live.HEADINGS, result.table())
    for name, why in result.missing.items():
        Console().print(f"Not compared: {name}, {why}.")
    return result.targets(), result.plain()


def _fidelity(context: Context) -> Measured:
    need(live_contenders.missing())
    result = fidelity.measure(fidelity.FULL if context.full else fidelity.QUICK, context.stage)
    console.table("the same trace live and simulated", fidelity.HEADINGS, result.table())
    return result.targets(), result.plain()


def _nodes(context: Context) -> Measured:
    need(nodes.missing())
    with context.stage("a node lost under load") as progress:
        result = nodes.measure(progress)
    console.table("node loss", nodes.HEADINGS, result.table())
    return result.targets(), result.plain()


def _gpu(_context: Context) -> Measured:
    from benchmarks.bins import gpu

    need(gpu.missing())
    return gpu.measure_all()


PARTS: Mapping[str, Part] = {
    "planner": Part(_planner, 15.0),
    "dispatch": Part(_dispatch, 75.0),
    "contest": Part(_contest, 320.0),
    "live": Part(_live, 150.0, _preparation),
    "fidelity": Part(_fidelity, 90.0, _preparation),
    "nodes": Part(_nodes, 120.0),
    "gpu": Part(_gpu, 1.0),
}

bench = partial(harness.run, "bins", PARTS)
