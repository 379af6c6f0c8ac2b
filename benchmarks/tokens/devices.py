"""What further devices earn: N devices at N times the load of one against one, on the paper's two device profiles."""

from __future__ import annotations

from typing import Any

import numpy as np

from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.results import Target
from pliant.progress import Progress, silent
from pliant.report import report
from pliant.simulator import simulate
from pliant.tokens import published
from pliant.tokens.policies import make
from pliant.tokens.scheduler import Options
from pliant.tokens.simulated import SimulatedDevice

COUNTS = (1, 2, 4)
TABLES = {"figure 4b": published.FIGURE_4B, "table I": published.TABLE_I}
LIMIT = 1.9  # of the utility of two devices over that of one


def devices(context: Context) -> Measured:
    """Judge two devices on the ground where they earn least."""
    with context.stage("devices in the simulator") as progress:
        rows = simulated(*context.choose((5, 20.0), (5, 120.0), (2, 10.0)), progress)
    least = min(row["over one"] for row in rows if row["devices"] == 2)
    target = Target("2 devices at 2x load over 1 at 1x, utility, simulated", least, ">=", LIMIT, "x")
    return [target], {"simulated": rows}


def simulated(seeds: int, seconds: float, progress: Progress = silent) -> list[dict[str, Any]]:
    """Run every number of devices at so many times the load of one, on each of the paper's profiles; sums over all seeds.

    `over one`: the utility over that of one device on the same ground, NaN where that earned nothing, as if exactly N times
    as much had been offered to N devices: random loads differ a little from that.
    """
    rows = list[dict[str, Any]]()
    for ground, measured in TABLES.items():
        knowledge, alone = published.profile(measured), float("nan")
        for count in COUNTS:
            reports = []
            for seed in range(seeds):
                load = published.synthetic(float(count), seed, published.SyntheticConfig(seconds=seconds))
                device = SimulatedDevice(knowledge.latency, knowledge.accuracy, load, np.random.default_rng(seed))
                scheduler = make("default", knowledge, count, options=Options(margin=0.0))
                reports.append(report(simulate(scheduler, load, device)))
            sums = {name: sum(getattr(r, name) for r in reports) for name in ("requests", "utility", "offered")}
            share = sums["utility"] / max(sums["offered"], 1e-9)
            alone = share or float("nan") if count == 1 else alone
            rows.append({"ground": ground, "devices": count, **sums, "over one": count * share / alone})
            progress(len(rows), len(TABLES) * len(COUNTS))
    return rows
