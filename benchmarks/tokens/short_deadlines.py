"""The default policy where deadlines are as short as a GPU allows: an H200's measured table, 30 and 60 ms.

A price that looks back much further than requests live comes too late for a load that jumps. The accuracies are those of
pliant/tokens/published.py; what is earned is compared with the fluid bound on the same arrivals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import results
from benchmarks.results import Target
from pliant.latency import LatencyTable
from pliant.report import report
from pliant.simulator import simulate
from pliant.tokens import published
from pliant.tokens.bound import Devices, fluid
from pliant.tokens.policies import make
from pliant.tokens.policy import Knowledge
from pliant.tokens.scheduler import Options
from pliant.tokens.simulated import SimulatedDevice
from pliant.workload import RequestKind, Segment, piecewise, requests

MEASURED = Path("benchmarks/results/gpu.json")
BUCKETS = (1, 2, 4, 8, 16, 32, 64)
DEADLINES, UTILITIES = (0.03, 0.06), (1.0, 0.02)
STEADY, BURST = "1.5x from the start, 2 s", "0.4x, then 0.3 s at 2.5x"
LOADS: Mapping[str, Sequence[tuple[float, float]]] = {
    STEADY: ((1.5, 2.0),),
    BURST: ((0.4, 1.2), (2.5, 0.3), (0.4, 0.3)),
}
"""Times the capacity at gamma 0, and for how many seconds."""
LIMITS = {STEADY: 0.95, BURST: 0.88}
HEADINGS = ("load", "policy", "share of the offered", "share of the bound")


@dataclass(frozen=True, slots=True)
class Earned:
    """What a policy earned of one load: as a share of what was offered, and of the bound."""

    load: str
    policy: str
    offered: float
    bound: float

    def cells(self) -> tuple[str, ...]:
        """Return the cells under HEADINGS."""
        return self.load, self.policy, f"{self.offered:.3f}", f"{self.bound:.3f}"


def known(path: Path = MEASURED) -> Knowledge:
    """Return what was measured on the GPU: images a second by batch and gamma, padded to the sizes of its graphs."""
    rows = results.read(path)["stages"]["tokens"]["parts"]["speed"]["rows"]
    rate = {(row["gamma"], row["batch"]): row["graphs images/s"] for row in rows}
    gammas, batches = (sorted({key[i] for key in rate}) for i in (0, 1))
    gammas = [g for g in gammas if all(g in shares for shares in published.ACCURACY.values())]
    seconds = [np.interp(BUCKETS, batches, [b / rate[g, b] for b in batches]) for g in gammas]
    table = LatencyTable(tuple(gammas), BUCKETS, tuple(tuple(map(float, row)) for row in seconds), BUCKETS)
    return Knowledge(table, published.ACCURACY, published.RULE)


def earned(policy: str, load: str, seed: int = 0, knowledge: Knowledge | None = None) -> Earned:
    """Simulate a policy on one of LOADS."""
    knowledge = knowledge or known()
    kinds = [RequestKind(t, DEADLINES[i % 2], u) for t in knowledge.accuracy for i, u in enumerate(UTILITIES)]
    capacity, rng = knowledge.latency.throughput(0, BUCKETS[-1]), np.random.default_rng(seed)
    offered = requests(piecewise([Segment(x * capacity, seconds) for x, seconds in LOADS[load]], rng), kinds, rng)
    device = SimulatedDevice(knowledge.latency, knowledge.accuracy, offered, np.random.default_rng(seed))
    utility = report(simulate(make(policy, knowledge, options=Options(margin=0.0)), offered, device)).utility
    bound = fluid(offered, Devices(knowledge.latency, knowledge.accuracy)).utility
    return Earned(load, policy, utility / sum(r.utility for r in offered), utility / bound)


def measure(seeds: int) -> list[Earned]:
    """Run the default and OTAS on every load, with so many seeds."""
    knowledge = known()
    runs = [(policy, load, seed) for load in LOADS for policy in ("default", "otas") for seed in range(seeds)]
    return [earned(*run, knowledge) for run in runs]


def targets(rows: Sequence[Earned]) -> list[Target]:
    """Return the targets: the default's share of the bound, the least of all seeds."""
    ours = [row for row in rows if row.policy == "default"]
    return [
        Target(
            f"30/60 ms on an H200, share of the bound: {load}",
            min(r.bound for r in ours if r.load == load),
            ">=",
            limit,
        )
        for load, limit in LIMITS.items()
    ]
