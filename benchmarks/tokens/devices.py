"""What further devices earn: N devices at N times the load of one against one, in the simulator and live on two processes.

In the simulator the paper's two device profiles and its workload. Live the champion on the CPU, one process a device: the
load is Poisson at the capacity that one device has at gamma 0, and at twice that for two. Two devices, the service and the
generator need a core each, so on fewer than `CORES` the live figure is of a short load and is not judged.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.contenders import send
from benchmarks.harness import Stage
from benchmarks.load_generator import Example, capacity, warm
from benchmarks.results import Target
from pliant.progress import Progress, silent
from pliant.protocol import Request
from pliant.report import report, summarise
from pliant.simulator import simulate
from pliant.tokens import published
from pliant.tokens.policies import make
from pliant.tokens.reference import ReferenceConfig, kinds
from pliant.tokens.scheduler import Options
from pliant.tokens.simulated import SimulatedDevice
from pliant.workload import poisson, requests

CORES = 4
COUNTS = (1, 2, 4)
TABLES = {"figure 4b": published.FIGURE_4B, "table I": published.TABLE_I}
SIMULATED, LIVE = 1.9, 1.7  # limits of the utility of two devices over that of one
HEADINGS = ("ground", "devices", "load", "requests", "utility", "of what was offered", "over one device")
LIVE_SEED = 7

Open = Callable[..., AbstractContextManager[str]]
"""Serves under a policy with further options, while the context lasts; gives the address."""
Pool = Mapping[str, Sequence[Example]]


@dataclass(frozen=True, slots=True)
class Row:
    """`devices` devices under so many times the load of one; sums over all seeds."""

    ground: str
    devices: int
    requests: int
    utility: float
    offered: float

    @property
    def share(self) -> float:
        """Return the utility as a share of what was offered."""
        return self.utility / max(self.offered, 1e-9)


def simulated(seeds: int, seconds: float, progress: Progress = silent) -> list[Row]:
    """Run every number of devices at so many times the load of one, on each of the paper's profiles."""
    rows = []
    for ground in TABLES:
        for devices in COUNTS:
            rows.append(_simulated(ground, devices, seeds, seconds))
            progress(len(rows), len(TABLES) * len(COUNTS))
    return rows


def _simulated(ground: str, devices: int, seeds: int, seconds: float) -> Row:
    knowledge = published.profile(TABLES[ground])
    count, utility, offered = 0, 0.0, 0.0
    for seed in range(seeds):
        load = published.synthetic(float(devices), seed, published.SyntheticConfig(seconds=seconds))
        device = SimulatedDevice(knowledge.latency, knowledge.accuracy, load, np.random.default_rng(seed))
        summary = report(simulate(make("default", knowledge, devices, options=Options(margin=0.0)), load, device))
        count, utility, offered = count + len(load), utility + summary.utility, offered + summary.offered
    return Row(ground, devices, count, utility, offered)


def over_one(rows: Sequence[Row], row: Row) -> float:
    """Return the row's utility over that of one device on the same ground; NaN where that earned nothing.

    As if exactly N times as much had been offered to N devices: random loads differ a little from that.
    """
    single = next(other for other in rows if (other.ground, other.devices) == (row.ground, 1))
    return row.devices * row.share / single.share if single.utility else float("nan")


def table(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the cells under HEADINGS."""
    return [
        (
            row.ground,
            str(row.devices),
            f"{row.devices}x",
            str(row.requests),
            f"{row.utility:.1f}",
            f"{row.share:.3f}",
            f"{over_one(rows, row):.2f}",
        )
        for row in rows
    ]


def simulated_target(rows: Sequence[Row]) -> Target:
    """Judge two devices on the ground where they earn least."""
    least = min(over_one(rows, row) for row in rows if row.devices == 2)
    return Target("2 devices at 2x load over 1 at 1x, utility, simulated", least, ">=", SIMULATED, "x")


@dataclass(frozen=True, slots=True)
class LiveConfig:
    """Seconds of a load and of the probe of capacity; the clients that saturate one device in it."""

    seconds: float = 8.0
    probe: float = 3.0
    clients: int = 256
    warm: int = 40


QUICK, FULL, SHORT = LiveConfig(), LiveConfig(seconds=30.0), LiveConfig(seconds=4.0, probe=2.0)


@dataclass(frozen=True, slots=True)
class Live:
    """`capacity`: requests a second of one device at gamma 0; `busy`: the generator's share of a core at worst."""

    capacity: float
    rows: tuple[Row, ...]
    busy: float

    def target(self) -> Target:
        name = "2 devices at 2x load over 1 at 1x, utility, live"
        return Target(name, over_one(self.rows, self.rows[-1]), ">=", LIVE, "x")

    def plain(self) -> dict[str, Any]:
        return {"capacity": self.capacity, "generator_busy": self.busy, "rows": [asdict(row) for row in self.rows]}


def live(address: Open, pool: Pool, config: LiveConfig, stage: Stage) -> Live:
    """Send the load of one device to one process, and twice that to two."""
    with stage("capacity of one device at gamma 0") as progress, address("pets", device="cpu") as url:
        warm(url, pool, config.warm, deadline=5.0)
        served = asyncio.run(capacity(url, pool, config.probe, config.clients))
        progress(1, 1)
    rows, busy = [], 0.0
    for devices in (1, 2):
        with stage(f"live, {devices}x load") as progress, address("default", device=",".join(["cpu"] * devices)) as url:
            warm(url, pool, config.warm, deadline=5.0)
            turn = send(url, _load(pool, devices * served, config.seconds), pool, LIVE_SEED)
            progress(1, 1)
        summary = summarise(reply.observation for reply in turn.replies)
        rows.append(Row("live", devices, summary.requests, summary.utility, summary.offered))
        busy = max(busy, turn.generator_busy)
    return Live(served, tuple(rows), busy)


def _load(pool: Pool, rate: float, seconds: float) -> list[Request]:
    rng = np.random.default_rng(LIVE_SEED)
    return requests(poisson(rate, seconds, rng), kinds(list(pool), ReferenceConfig()), rng)


def cores() -> int:
    """Return how many hardware threads this process may use."""
    return len(os.sched_getaffinity(0))
