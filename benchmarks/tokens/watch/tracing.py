"""What traces of a hundredth of the requests cost tokens, whose requests are the lightest, at full load.

A service without traces and one with them take turns, as for the cost of watching (benchmarks/watch/cost.py). Spans go to a
collector on this machine.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from rich.console import Console

from benchmarks.collector import collector
from benchmarks.endpoint import serving_each
from benchmarks.harness import Context, Measured
from benchmarks.load_generator import IMAGES
from benchmarks.results import Target
from benchmarks.tokens.watch.ground import SYSTEM, bodies_of, ground
from benchmarks.watch.changes import variables
from benchmarks.watch.cost import CostConfig, Watched, throughput
from benchmarks.watch.paired import WITH, WITHOUT, Comparison, PairsConfig, compare
from serving.watch.seen import Seen

SHARE = 0.01
LIMIT = 0.02  # of the throughput
CONFIG = CostConfig(PairsConfig(240.0))


def tracing(context: Context) -> Measured:
    """Compare the throughput with and without traces, and print it with its interval."""
    with ground() as own, context.stage("cost of tracing") as progress, collector() as traces:
        watched = Watched(SYSTEM, IMAGES.path, [body for _, body in bodies_of(own.pool)], "requests", _nothing)
        plain = {"watch_seconds": 0.0, "try_challengers": False}
        turns: dict[str, list[float]] = {WITHOUT: [], WITH: []}
        with (
            variables({"OTEL_EXPORTER_OTLP_ENDPOINT": traces.url}),
            serving_each(SYSTEM, {WITHOUT: plain, WITH: {**plain, "trace_share": SHARE}}) as addresses,
        ):
            for address in addresses.values():
                asyncio.run(throughput(address, watched, CONFIG, CONFIG.warm))

            def turn(name: str) -> float:
                measured = asyncio.run(throughput(addresses[name], watched, CONFIG, watched.seconds))
                turns[name].append(measured.work)
                return measured.rate

            rates = compare(turn, CONFIG.pairs, progress)
    work, got = Comparison(tuple(turns[WITHOUT]), tuple(turns[WITH])), len(traces.spans)
    (low, high), (least, most) = rates.interval, work.interval
    Console().print(
        f"{rates.pairs} pairs of turns: {rates.median:.4f} ({low:.4f} to {high:.4f}) of the throughput, {work.median:.4f} "
        f"({least:.4f} to {most:.4f}) of the requests a second of processors; the collector got {got} spans"
    )
    name = f"tracing {SHARE:.0%} of the requests"
    targets = [
        Target(f"{name}: throughput over that without, median", rates.median, ">=", 1 - LIMIT, "x"),
        Target(f"{name}: requests a processor's second over those without, median", work.median, ">=", 1 - LIMIT, "x"),
        Target(f"{name}: spans that came to the collector", got, ">=", 1),
    ]
    pairs = {"without": rates.without, "with": rates.with_it, "work without": work.without, "work with": work.with_it}
    figures = {"interval": [low, high], "work_interval": [least, most], "spans": got, "load": list(os.getloadavg())}
    return targets, {**figures, "pairs": pairs}


def _nothing(_seen: Seen, _burn_in: int) -> Callable[[int], None]:
    raise NotImplementedError("nothing is counted here")
