"""The packing system's targets in the simulator, and all policies on all loads.

The targets are taken with both of the A100's published peaks, of bandwidth and of arithmetic (a roofline; S3 takes
generation for bound by memory). With 60% of the arithmetic a 13B model bears 50 requests/s under any policy: at 90 all that
a policy can then do is to order a queue. What remains of the ratios there is shown beside them. The worst seed counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.jobs import run_all
from benchmarks.packing import traces, vicuna
from benchmarks.packing.forecasts import Foretold
from benchmarks.packing.hardware import A100, LLAMA_13B, LLAMA_33B
from benchmarks.packing.study import Ground, Job, Row, capacity, large, serve, trace
from benchmarks.packing.traces import Load, as_recorded, at_once, at_rate
from benchmarks.results import Target
from pliant.packing.scheduling.policy import POLICIES
from pliant.progress import Progress, silent

RATE = 90.0  # requests/s
PEAK = replace(A100, efficiency=1.0)
SHORT_OF_PEAK = replace(A100, efficiency=0.6)
SHARES = (0.8, 1.1)  # of what the device bears, in the loads of the other traces
PEAK_13B, PEAK_33B, SLOWER, NO_HOST = "13B", "33B", "13B at 60% of the arithmetic", "13B without the host's memory"
RATIOS = ("rate / s3", "mean / oracle", "rate / oracle", "p99 / paged")
VERDICTS = ("", "mean below s3", *RATIOS, "recomputed", "batch / s3")


@dataclass(frozen=True, slots=True)
class ContestConfig:
    """Times in seconds of arrivals."""

    seeds: tuple[int, ...] = (0, 1, 2)
    seconds: float = 60.0
    others: float = 200.0  # of the other traces
    offline: int = 3000
    processes: int = 2


QUICK = ContestConfig()
FULL = ContestConfig(seeds=(0, 1, 2, 3, 4), seconds=300.0, others=1200.0, offline=20_000)


@dataclass(frozen=True)
class Contest:
    """Rows by section, and the predictors they were made with."""

    sections: Mapping[str, Sequence[Row]]
    foretold: Mapping[str, Foretold]

    def targets(self) -> list[Target]:
        peak, wide, alone = (Verdict(self.sections[name]) for name in (PEAK_13B, PEAK_33B, NO_HOST))
        at = f"13B at {RATE:g} requests/s"
        return [
            Target(f"{at}: mean completion below s3", 1 - peak.most("mean", "s3"), ">=", 0.60),
            Target(f"{at}: throughput over s3", peak.least("rate", "s3"), ">=", 1.25),
            Target(f"{at}: mean completion over oracle", peak.most("mean", "oracle"), "<=", 1.0),
            Target(f"{at}: throughput over oracle", peak.least("rate", "oracle"), ">=", 1.0),
            Target(f"{at}: tokens recomputed, no host memory", alone.recomputed, "<=", 0.03),
            Target(f"{at}: p99 over paged", peak.most("p99", "paged"), "<=", 1.5),
            Target(f"33B at {RATE:g} requests/s: mean batch over s3", wide.least("batch", "s3"), ">=", 1.6),
        ]

    def verdicts(self) -> list[tuple[str, ...]]:
        """Return the targets' ratios in every section that has the rivals with all seeds: the worst seed's."""
        names = [name for name in (PEAK_13B, SLOWER, PEAK_33B) if name in self.sections]
        return [(name, *Verdict(self.sections[name]).cells()) for name in names]

    def table(self, section: str) -> list[tuple[str, ...]]:
        """Return medians over the seeds, by policy."""
        policies: dict[str, list[Row]] = {}
        for row in self.sections[section]:
            policies.setdefault(row.policy, []).append(row)
        return [_middle(rows).cells() for rows in policies.values()]

    def qualities(self) -> list[tuple[str, ...]]:
        return [foretold.quality.row() for foretold in self.foretold.values()]

    def plain(self) -> dict[str, Any]:
        sections = {name: [asdict(row) for row in rows] for name, rows in self.sections.items()}
        return {"sections": sections, "predictors": [asdict(foretold.quality) for foretold in self.foretold.values()]}


@dataclass(frozen=True)
class Verdict:
    """The default policy against the others, seed by seed."""

    rows: Sequence[Row]

    def ratios(self, figure: str, rival: str) -> list[float]:
        """Return the default's figure over the rival's; empty where the rival is not there."""
        values = {(row.policy, row.seed): float(getattr(row, figure)) for row in self.rows}
        return [values["default", seed] / value for (policy, seed), value in values.items() if policy == rival]

    def most(self, figure: str, rival: str) -> float:
        return max(self.ratios(figure, rival), default=float("nan"))

    def least(self, figure: str, rival: str) -> float:
        return min(self.ratios(figure, rival), default=float("nan"))

    @property
    def recomputed(self) -> float:
        return max(row.recomputed for row in self.rows if row.policy == "default")

    def cells(self) -> tuple[str, ...]:
        below, p99 = 1 - self.most("mean", "s3"), self.most("p99", "paged")
        over = self.least("rate", "s3"), self.most("mean", "oracle"), self.least("rate", "oracle"), p99
        shares = f"{below:.1%}", f"{self.recomputed:.1%}"
        return shares[0], *(f"{x:.2f}" for x in over), shares[1], f"{self.least('batch', 's3'):.2f}"


def missing() -> str:
    return vicuna.missing() or traces.missing()


def measure(config: ContestConfig, home: Path, progress: Progress = silent) -> Contest:
    """Simulate all sections. What was predicted of Vicuna's lengths is kept in `home`."""
    foretold = {name: trace(name, home) for name in traces.SOURCES}
    sections = _sections(config, foretold)
    rows = iter(run_all(serve, [job for jobs in sections.values() for job in jobs], config.processes, progress))
    return Contest({name: [next(rows) for _ in jobs] for name, jobs in sections.items()}, foretold)


def _sections(config: ContestConfig, foretold: Mapping[str, Foretold]) -> dict[str, list[Job]]:
    vicuna, peak = foretold["vicuna"], large(LLAMA_13B, PEAK)
    loads = [(seed, at_rate(vicuna.lengths, RATE, config.seconds, seed)) for seed in config.seeds]
    offline = at_once(vicuna.lengths, config.offline, 0)
    rivals = [name for name in POLICIES if name != "orca"]
    sections = {
        PEAK_13B: _jobs(peak, vicuna, loads),
        SLOWER: _jobs(large(LLAMA_13B, SHORT_OF_PEAK), vicuna, loads, rivals),
        NO_HOST: _jobs(large(LLAMA_13B, PEAK, 0.0), vicuna, loads, ("default", "paged", "s3")),
        PEAK_33B: _jobs(large(LLAMA_33B, PEAK), vicuna, loads, rivals),
        "13B, offline": _jobs(peak, vicuna, [(0, offline)]),
    }
    others = _others(config, peak, foretold)
    return sections | {name: _jobs(peak, other, [(0, load)]) for name, (other, load) in others.items()}


def _others(config: ContestConfig, ground: Ground, all_of: Mapping[str, Foretold]) -> dict[str, tuple[Foretold, Load]]:
    """Return every trace at shares of what the device bears; recorded arrivals where there are some."""
    loads = {}
    for name, foretold in all_of.items():
        lengths = foretold.lengths
        for share in SHARES:
            rate, recorded = share * capacity(ground, foretold), lengths.seconds
            load = at_rate(lengths, rate, config.others if name != "vicuna" else config.seconds, 0)
            if len(recorded):
                faster = rate * float(recorded[-1] - recorded[0]) / len(recorded)
                load = as_recorded(lengths, float(recorded[0]), config.others * faster, faster)
            loads[f"13B, {name} at {share:.0%} of what it bears"] = foretold, load
    return loads


def _jobs(
    ground: Ground, foretold: Foretold, loads: Sequence[tuple[int, Load]], policies: Sequence[str] = tuple(POLICIES)
) -> list[Job]:
    return [Job(ground, load, foretold, policy, seed) for seed, load in loads for policy in policies]


def _middle(rows: Sequence[Row]) -> Row:
    """Return a row of medians."""
    numbers = [name for name, value in asdict(rows[0]).items() if isinstance(value, float)]
    middle: dict[str, Any] = {name: float(np.median([getattr(row, name) for row in rows])) for name in numbers}
    return replace(rows[0], **middle)
