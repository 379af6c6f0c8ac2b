"""How soon a challenger that is 3 points worse is taken back, and how often a good one is: simulated rollouts.

Each run is a whole rollout by `pliant/rollout/controller.py`, in virtual time: shadow, then a canary, every canaried request
with a copy to the champion. Answers are synthetic pairs, latencies of one distribution for both releases; labels come with
the answers. Only discordant pairs, of which one answer alone is right, tell anything: plain labels show 3 points within 500
pairs in 95% of the runs only where at most some 4% are discordant, whatever the test (docs/log/watch.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.results import Target
from pliant.rollout.config import RolloutConfig
from pliant.rollout.controller import Rollout, Stage
from pliant.rollout.events import CanaryOutcome, Event, Label, ShadowCompared
from pliant.rollout.measures import GUARDS, MARGIN, Measure

CORRECTNESS = (Measure("accuracy", MARGIN, 0.8), *GUARDS)  # labels that say no more than right or wrong
RUNS = 200
CANARIED = 500  # requests within which a worse challenger must be taken back
LENGTH = 2500  # pairs of a run, at most
WORSE = 0.03  # by which the challenger's accuracy is lower
WRONG = 0.1  # share of the requests in which the champion is wrong
SECOND = 2.5  # between two pairs: a step takes its requests' time rather than the clock's
SWAPPED: Mapping[str, float] = {"worse": 0.0, "equal": 0.5, "better": 1.0}
"""Challenger -> share of the pairs in which the releases change places, so that it is as good as it is called."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Pairs of which a share `discordance` is discordant: one answer alone is right. No copies come before the canary.

    `challenger`: "worse" by 3 points; or "equal" or "better", which must both be kept.
    """

    discordance: float
    challenger: str = "worse"
    target: bool = False

    @property
    def name(self) -> str:
        return f"synthetic, {100 * self.discordance:g}% discordant; right or wrong; no shadow"


@dataclass(frozen=True, slots=True)
class Run:
    """How one rollout ended."""

    stage: Stage
    requests: int  # answered by the canary
    reason: str


SETTINGS: tuple[Setting, ...] = (
    Setting(0.03, target=True),
    Setting(0.1),
    Setting(0.05, challenger="equal"),
)
"""95% are demanded where `target` is set, in a setting that is realistic; the others show what is possible. Of every good
challenger at most 5% may be taken back."""


def draw(setting: Setting, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return whether champion and challenger are right [2, pairs], in the order in which the pairs of one run come."""
    lost, won = (setting.discordance + WORSE) / 2, (setting.discordance - WORSE) / 2
    kinds = rng.choice(4, LENGTH, p=[lost, won, WRONG - won, 1 - WRONG - lost])  # the last two: both wrong, both right
    correct = np.stack([(kinds == 0) | (kinds == 3), (kinds == 1) | (kinds == 3)])
    chosen = rng.choice(LENGTH, LENGTH, replace=False)
    first = (rng.random(LENGTH) < SWAPPED[setting.challenger]).astype(np.int64)
    return correct[np.stack([first, 1 - first]), chosen]


def simulate(correct: NDArray[np.bool_], rng: np.random.Generator) -> Run:
    """Run one rollout on the pairs until it is decided, or the pairs are used up. Time is never the reason to wait."""
    config = RolloutConfig(measures=CORRECTNESS, shadow_requests=0, max_seconds=1e8)
    rollout = Rollout(config)
    latencies = rng.lognormal(-3.0, 0.5, (2, LENGTH))
    failed = rng.random((2, LENGTH)) < 1e-3
    others = rng.permutation(LENGTH)  # the champion's own requests are not the canary's
    for index in range(LENGTH):
        # What the rollout hears of the pair, of the canary's answer, and of one of the champion's own meanwhile.
        id, other = str(index), int(others[index])
        events: list[Event] = [CanaryOutcome(f"o{id}", "champion", float(latencies[0, other]), bool(failed[0, other]))]
        if rollout.stage == "canary":
            events.append(CanaryOutcome(id, "canary", float(latencies[1, index]), bool(failed[1, index])))
        champion, challenger = map(bool, correct[:, index])
        events += [ShadowCompared(id, None, None, None), Label(id, champion, challenger, None, None)]
        for event in events:
            rollout.handle(event, SECOND * index)
        if rollout.decided:
            break
    rollout.check()
    return Run(rollout.stage, rollout.requests, rollout.reason)


def repeat(setting: Setting, runs: int = RUNS, seed: int = 0) -> tuple[dict[str, Any], list[Run]]:
    """Simulate a setting `runs` times and return the row of its table, whose shares are of the runs, and the runs.

    `worse`: mean accuracy that the challenger lacked; `in_time`: taken back within 500 canaried requests; `median`:
    canaried requests when it was taken back; NaN where none was.
    """
    ends, pairs = [], []
    for run in range(runs):
        rng = np.random.default_rng([seed, run])
        pairs.append(draw(setting, rng))
        ends.append(simulate(pairs[-1], rng))
    taken = [end.requests for end in ends if end.stage == "taken_back"]
    return {
        "setting": setting.name,
        "challenger": setting.challenger,
        "runs": runs,
        "worse": float(np.mean([correct[0].mean() - correct[1].mean() for correct in pairs])),
        "discordance": float(np.mean([(correct[0] != correct[1]).mean() for correct in pairs])),
        "taken_back": len(taken) / runs,
        "in_time": sum(requests <= CANARIED for requests in taken) / runs,
        "promoted": sum(end.stage == "promoted" for end in ends) / runs,
        "median": float(np.median(taken)) if taken else math.nan,
    }, ends


def rollout(context: Context) -> Measured:
    """Return the targets of worse and of good challengers, and the table."""
    rows, reasons, targets = list[dict[str, Any]](), [], []
    with context.stage(f"{RUNS} rollouts in each of {len(SETTINGS)} settings") as progress:
        for setting in SETTINGS:
            row, ends = repeat(setting)
            rows.append(row)
            reasons.append(next((end.reason for end in ends if end.stage == "taken_back"), ends[0].reason))
            if setting.target:
                targets.append(
                    Target(f"3 points worse, taken back in time: {setting.name}", row["in_time"], ">=", 0.95)
                )
            progress(len(rows), len(SETTINGS))
    good = max(row["taken_back"] for row in rows if row["challenger"] != "worse")
    targets.append(Target("good challengers taken back, largest share", good, "<=", 0.05))
    return targets, {"rows": rows, "reasons": reasons}
