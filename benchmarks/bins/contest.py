"""The study's targets: our default against the published pair, and never worse anywhere.

Which settings a quick and a full run take, and what is read off their rows; the runs themselves are study.py's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from pliant.benchmarks.bins import study, traces
from pliant.benchmarks.bins.study import (
    PAIR,
    SCHEMES,
    SHARED,
    Floats,
    Job,
    Row,
    Scheme,
    Setting,
)
from pliant.benchmarks.harness import Context, Measured, need
from pliant.benchmarks.results import Target
from pliant.benchmarks.runs import run_all

GROUNDS = ("bert-base", "bert-large")
HEAD = tuple(product(GROUNDS, ("drifting",), (40, 90), (0.5,)))
"""The settings of the first target: bursty, lengths that drift."""
KINDS = ("stable", "bursty", "drifting")
QUICK = (
    *product(GROUNDS, ("stable", "bursty"), (10, 40), (0.5,)),
    *product(GROUNDS[:1], ("stable", "bursty"), (90,), (0.5,)),
    *product(GROUNDS[:1], ("stable", "drifting"), (40,), (0.8,)),
)
FULL = (*product(GROUNDS, KINDS, (10, 40, 90), (0.5, 0.8)), *product(GROUNDS[:1], KINDS, (300, 1000), (0.5,)))
LEAST_GAIN, MOST_LOSS, SEEDS, HEAD_SEEDS = 0.5, 1.03, 3, 9


@dataclass(frozen=True, slots=True)
class Contest:
    rows: tuple[Row, ...]

    def _by_seed(self, scheme: Scheme, setting: Setting) -> list[Row]:
        rows = [row for row in self.rows if (row.job.scheme, row.job.setting) == (scheme.name, setting)]
        return sorted(rows, key=lambda row: row.job.seed)

    def means(self, scheme: Scheme, setting: Setting) -> Floats:
        """Return the mean latency by seed."""
        return np.array([row.mean for row in self._by_seed(scheme, setting)])

    def violations(self, scheme: Scheme, setting: Setting) -> float:
        """Return the share of requests answered after the SLO, mean over the seeds."""
        return float(np.mean([row.violations for row in self._by_seed(scheme, setting)]))

    def settings(self, scheme: Scheme = PAIR) -> list[Setting]:
        """Return the settings that a scheme has rows of."""
        return list(dict.fromkeys(row.job.setting for row in self.rows if row.job.scheme == scheme.name))

    def ratios(self, scheme: Scheme, over: Scheme, settings: Sequence[Setting]) -> Floats:
        """Return the ratios of mean latencies, by setting and seed."""
        return np.array([self.means(scheme, setting) / self.means(over, setting) for setting in settings])

    def targets(self) -> list[Target]:
        """Judge the first ones by the median of the seeds, and as before 2026-11-23 by the means over all seeds."""
        head = [setting for setting in self.settings() if setting in HEAD]
        targets = []
        for setting in head:
            name = f"bursty, drifting, {setting[0]}, {setting[2]} devices: mean latency over the published pair's"
            ours_S, pair_S = self.means(SHARED, setting), self.means(PAIR, setting)
            by_seed = f"{name}, median of {len(pair_S)} seeds (worst {(ours_S / pair_S).max():.2f}x)"
            targets.append(Target(by_seed, float(np.median(ours_S / pair_S)), "<=", 1 - LEAST_GAIN, "x"))
            targets.append(Target(f"{name}, all seeds", ours_S.mean() / pair_S.mean(), "<=", 1 - LEAST_GAIN, "x"))
        more = max(self.violations(SHARED, setting) - self.violations(PAIR, setting) for setting in head)
        every = [float(self.ratios(SHARED, PAIR, [setting]).max()) for setting in self.settings()]
        return [
            *targets,
            Target("the same: SLO violations beyond the published pair's", 100 * more, "<=", 0, "%"),
            Target("settings compared, at least 3 seeds each", len(every), ">=", 12),
            Target("mean latency over the published pair's, worst setting and seed", max(every), "<=", MOST_LOSS, "x"),
        ]


def contest(context: Context) -> Measured:
    """Compare; in the smallest setting ours and the pair alone, in the first setting of the first target."""
    need(traces.missing())
    with context.stage("simulations of all schemes") as progress:
        jobs = study.jobs(HEAD[:1], HEAD_SEEDS, study.WARM + 90.0, (PAIR, SHARED))
        if not context.smallest:
            jobs = _jobs(context.full)
        result = Contest(tuple(run_all(study.serve, jobs, min(os.cpu_count() or 1, 4), progress)))
    return result.targets(), {"rows": study.plain(result.rows)}


def _jobs(full: bool) -> list[Job]:
    """Return what all schemes are given."""
    seconds, jobs = study.WARM + (360.0 if full else 90.0), list[Job]()
    for setting in dict.fromkeys([*HEAD, *(FULL if full else QUICK)]):
        jobs += study.jobs([setting], SEEDS, _lasting(setting, seconds), SCHEMES)
        if setting in HEAD:
            jobs += study.jobs([setting], HEAD_SEEDS, _lasting(setting, seconds), (PAIR, SHARED))[2 * SEEDS :]
    return jobs


def _lasting(setting: Setting, seconds: float) -> float:
    """Return the trace's seconds. Large pools are asked millions of requests a minute: a shorter while tells as much."""
    return seconds if setting[2] <= 90 else study.WARM + 60.0
