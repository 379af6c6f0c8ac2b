"""What `pliant.compare` plays cascades on: three levels of MiniLM, whose answers are drawn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pliant.cascade import plan, tabi
from pliant.cascade.artifact import Candidate, Cascade, LevelOutputs, Outputs
from pliant.cascade.evaluate import EvaluationData, measured, subset
from pliant.cascade.knowledge import knowledge
from pliant.cascade.scheduler import CascadeScheduler
from pliant.cascade.simulated import SimulatedCascade, play, walks
from pliant.comparison import Figures, Own, Play, Times, figures
from pliant.errors import InputError
from pliant.latency import LatencyTable
from pliant.protocol import Request

SECONDS = tuple(9.4e-3 * layers / 6 for layers in (1, 2, 6))  # of one text, by level


def ground(times: Times, seed: int) -> Play:
    """Return what plays a policy, with levels of 1, 2 and 6 layers that are right in 79%, 90% and 96% of the planned texts.

    6 layers of MiniLM took 9.4 ms on banking77 (benchmarks/results/cascade-live.json); the others take their share of it.
    """

    def outputs(rng: np.random.Generator, texts: int = 1000) -> Outputs:
        labels_R, shared_RK = rng.integers(4, size=texts), rng.standard_normal((texts, 4))
        signal_RK, length_R = np.eye(4)[labels_R], np.full(texts, 16, np.int32)
        levels = tuple(
            LevelOutputs(
                (4.0 * (skill * signal_RK + shared_RK + 0.5 * rng.standard_normal((texts, 4)))).astype(np.float32),
                length_R,
            )
            for skill in (2.0, 2.6, 3.3)
        )
        names, classes = ("1 layer", "2 layers", "6 layers"), ("a", "b", "c", "d")
        return Outputs("texts", classes, names, names, labels_R.astype(float), levels, (), "drawn")

    batches = (1, 4, 16)
    tables = [LatencyTable((16,), batches, (tuple(s * (0.4 + 0.6 * n) for n in batches),)) for s in SECONDS]
    costs, planning = [plan.Measured(table) for table in tables], outputs(np.random.default_rng(0))
    tuning, proving = (subset(planning, rows) for rows in plan.split_rows(len(planning.labels), plan.PlanConfig()))
    data = EvaluationData(planning, plan.calibrated(tuning, proving, 0.0, costs))
    least = data.levels[-1].accuracy - 0.01
    named: dict[str, Callable[[], Candidate | None]] = {
        "default": lambda: plan.make(planning, costs, plan.PlanConfig(), False, "drawn").candidates[0],
        "tabi": lambda: tabi.tabi(data, least),
        "single": lambda: tabi.single(data, least),
        "voting": lambda: tabi.voting(data),
    }
    rng, test = np.random.default_rng(seed), outputs(np.random.default_rng([seed, 1]))
    rows = rng.integers(len(test.labels), size=len(times)).tolist()
    load = [Request(i, at, at + 0.3, "texts", 1.0, 16) for i, at in enumerate(times.tolist())]

    def played(policy: str | Own) -> Figures:
        if isinstance(policy, str) and policy not in named:
            raise InputError("policy", policy, f"one of {', '.join(named)}, or an own one")
        built = named[policy]() if isinstance(policy, str) else policy(data)
        if not isinstance(built, Candidate):
            raise InputError(
                "policy", type(built).__name__, "a Candidate (tabi: none is as accurate as the large model)"
            )
        candidate = measured(built, data)
        planned = (candidate,), least, 0.95, dict[str, float](), "drawn"
        cascade = Cascade("texts", test.classes, False, 0.0, "drawn", data.levels, *planned)
        known, walked = knowledge([cascade]), {"texts": walks(cascade, test)}
        device = SimulatedCascade(known, walked, load, rows, np.random.default_rng(seed), 0.05)
        return figures(play(CascadeScheduler(known), known, walked, load, rows, device))

    return played
