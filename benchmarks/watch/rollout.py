"""What becomes of challengers that are worse, equal or better: simulated rollouts of a day, with and without labels.

Also of one that decays after its promotion, and of one that is too slow for all of the requests (queues.py).

Each run is a whole rollout by `pliant/rollout/controller.py` with a service's own settings, in virtual time: shadow, then a
canary, whose requests the champion answers, too, as the challenger does copies of the champion's. Answers are synthetic
pairs, latencies of one distribution for both releases. Requests are of ten classes; both releases are right by one draw in
`TOGETHER` of the requests, and where both are wrong they say the same in half of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.results import Target
from pliant.benchmarks.watch.queues import queued
from pliant.rollout.config import RolloutConfig
from pliant.rollout.controller import Rollout
from pliant.rollout.events import CanaryOutcome, Label, ShadowCompared
from pliant.rollout.measures import Arm

RUNS = 40
DAY = 86_400.0  # seconds
SHARES = np.array([0.3, 0.2, 0.12, 0.1, 0.08, 0.06, 0.05, 0.04, 0.03, 0.02])  # of the classes
FIVE = 6  # the class of 5%
TOGETHER = 0.7
RIGHT = 0.9  # of the champion's answers
MOST = 500  # labelled pairs, or requests of the canary, within which a worse one must be noticed
SOON = 200  # labelled pairs within which a decay must be undone


@dataclass(frozen=True, slots=True)
class Case:
    """A challenger, and what clients say. Shares of all answers are labelled, and of those that a client saw to be wrong.

    `right`: of the challenger's answers, by class; None: it gives the champion's own. `rate`: requests a second. `together`:
    share of the requests in which both are right by one draw. `decay`: less of the challenger's answers are right from an
    hour of the guard on, which the seed draws; None: the run ends with the promotion.
    """

    name: str
    right: tuple[float, ...] | None
    labels: float = 0.0
    complaints: float = 0.0
    rate: float = 5.0
    together: float = TOGETHER
    shadow: bool = True
    decay: float | None = None


def flat(share: float) -> tuple[float, ...]:
    """Return a challenger that is equally right in all classes."""
    return (share,) * len(SHARES)


WORSE = [
    Case(f"{points} points worse, {labels:.0%} labelled", flat(RIGHT - points / 100), labels, rate=1.0)
    for points in (10, 40)
    for labels in (0.0, 0.01, 0.05)
]
BETTER = Case("5 points better, 20% labelled", flat(RIGHT + 0.05), 0.2)
EQUAL = Case("equal, 20% labelled", flat(RIGHT), 0.2)
THREE = Case(
    "3 points worse, 3% discordant, all labelled, no shadow", flat(RIGHT - 0.03), 1.0, together=1.0, shadow=False
)
SAME = Case("the same answers, no labels", None)
BUT_FIVE = tuple(0.0 if place == FIVE else 0.95 for place in range(len(SHARES)))
CLASS = Case("better, but a class of 5% never right, all labelled", BUT_FIVE, 1.0, rate=1.0)
COMPLAINTS = Case("equal, only wrong answers labelled", flat(RIGHT), complaints=1.0, rate=1.0)
STAYS = Case("equal, half labelled, a day of guard", flat(RIGHT), 0.5, rate=1.0, decay=0.0)
TENTH, FIFTH = (
    Case(f"the same answers, {points} points worse after the promotion, 20% labelled", None, 0.2, 0.0, 1.0, decay=share)
    for points, share in ((10, 0.1), (20, 0.2))
)
CASES = (*WORSE, THREE, BETTER, EQUAL, SAME, CLASS, COMPLAINTS, STAYS, TENTH, FIFTH)


@dataclass(slots=True)
class Run:
    """One rollout: how it ends, after how many hours and labelled pairs."""

    rollout: Rollout
    hours: float = 0.0
    labels: int = 0
    since: int = 0  # labelled pairs since the decay

    @property
    def end(self) -> str:
        """How the trial ended, whatever the guard says."""
        return "promoted" if self.undone or self.rollout.stage == "guard" else self.rollout.stage

    @property
    def undone(self) -> bool:
        return self.rollout.stage == "taken_back" and self.rollout.paid > 0


def simulate(case: Case, seed: int) -> Run:
    """Run one rollout until it is decided, which it is after a day at the latest. Every request is drawn for itself."""
    config = RolloutConfig() if case.shadow else RolloutConfig(shadow_requests=0)
    run, rng, number = Run(Rollout(config)), np.random.default_rng([seed, 3]), 0
    draw, now, luck = _answers(case, rng), 0.0, np.random.default_rng([seed, 4])
    decays = luck.uniform(0, DAY / 2)
    while not run.rollout.decided and (run.rollout.stage != "guard" or case.decay is not None):
        rollout = run.rollout
        decayed = rollout.stage == "guard" and rollout.step_seconds > decays
        # Requests that nobody compares are passed over: of the others one comes after so many seconds.
        by_canary, share = rollout.share * rollout.copied("canary"), rollout.share
        pairs = by_canary + (1 - share) * rollout.copied("champion")
        now += rng.exponential(1 / (case.rate * pairs))
        seen: Arm = "canary" if rng.random() < by_canary / pairs else "champion"
        number, id = number + 1, str(number)
        latency, failed = float(rng.lognormal(-3.0, 0.5)), bool(rng.random() < 1e-3)
        name, champion, challenger, same = draw()
        challenger = challenger and not (decayed and luck.random() < (case.decay or 0.0) / RIGHT)
        rollout.handle(CanaryOutcome(id, seen, latency, failed), now)
        rollout.handle(ShadowCompared(id, same), now)
        right = champion if seen == "champion" else challenger
        if rng.random() < case.labels or (not right and rng.random() < case.complaints):
            run.labels += 1
            run.since += decayed
            rollout.handle(Label(id, champion, challenger, seen, (f"the class {name}",)), now)
    run.rollout.check()
    run.hours = now / 3600
    return run


def _answers(case: Case, rng: np.random.Generator) -> Callable[[], tuple[int, bool, bool, bool]]:
    """Return what draws a request: its class, whether champion and challenger are right, and whether they say the same."""
    right_K: NDArray[np.float64] = np.array(case.right or flat(RIGHT))

    def draw() -> tuple[int, bool, bool, bool]:
        name, luck = int(rng.choice(len(SHARES), p=SHARES)), rng.random()
        champion = bool(luck < RIGHT)
        if case.right is None:
            return name, champion, champion, True
        challenger = bool((luck if rng.random() < case.together else rng.random()) < right_K[name])
        return name, champion, challenger, champion == challenger and (champion or rng.random() < 0.5)

    return draw


def rollout(context: Context) -> Measured:
    """Return the targets of worse and of good challengers, and the table."""
    runs: dict[Case, list[Run]] = {}
    rows = list[dict[str, Any]]()
    with context.stage(f"{RUNS} rollouts in each of {len(CASES)} cases") as progress:
        for case in CASES:
            runs[case] = [simulate(case, seed) for seed in range(RUNS)]
            ends = [run.end for run in runs[case]]
            rows.append(
                {
                    "case": case.name,
                    "promoted": ends.count("promoted"),
                    "taken back": sum(run.end == "taken_back" and run.hours < DAY / 3600 for run in runs[case]),
                    "hours, median": median(run.hours for run in runs[case]),
                    "labelled pairs, median": median(run.labels for run in runs[case]),
                    "undone": sum(run.undone for run in runs[case]),
                    "labelled pairs since the decay, median": median(run.since for run in runs[case]),
                    "reason": runs[case][0].rollout.reason,
                }
            )
            progress(len(rows), len(CASES))
    slow, alike, loud = (
        [queued(seed, *figures).stage for seed in range(RUNS // 2)] for figures in ((1.4,), (1.0,), (1.0, 0.6, 0.5))
    )

    def promoted(case: Case) -> float:
        return float(sum(run.end == "promoted" for run in runs[case]))

    def undone(case: Case) -> float:
        """Return the share of those promoted that the guard undoes, soon enough after a decay."""
        late = SOON if case.decay else math.inf
        return float(np.mean([run.undone and run.since <= late for run in runs[case] if run.end == "promoted"]))

    def refused(case: Case, early: Callable[[Run], bool] = lambda _run: True) -> float:
        """Return the share that is taken back by evidence, early enough."""
        ends = [(run, run.rollout) for run in runs[case]]
        return float(
            np.mean([end.stage == "taken_back" and "evidence" in end.reason and early(run) for run, end in ends])
        )

    return [
        Target(
            "worse by 10 or 40 points, 0 to 5% labelled: promoted of 40, most", max(map(promoted, WORSE)), "<=", 0.0
        ),
        Target("better by 5 points, 20% labelled: promoted of 40", promoted(BETTER), ">=", 40.0),
        Target("equal, 20% labelled: promoted of 40 within a day", promoted(EQUAL), ">=", 38.0),
        Target("the same answers, no labels: promoted of 40 within a day", promoted(SAME), ">=", 38.0),
        Target(
            "a class of 5% never right: taken back within 500 labelled pairs",
            refused(CLASS, lambda run: run.labels <= MOST),
            ">=",
            0.95,
        ),
        Target(
            "3 points worse, taken back in time: 3% discordant, no shadow, 500 requests",
            refused(THREE, lambda run: run.rollout.requests <= MOST),
            ">=",
            0.95,
        ),
        Target("good challengers taken back, largest share", max(map(refused, (BETTER, EQUAL, SAME))), "<=", 0.05),
        Target("equal, labelled by complaints only: taken back", refused(COMPLAINTS), "<=", 0.05),
        Target("1.4 times slower at a load of 0.75: promoted of 20", float(slow.count("guard")), "<=", 0.0),
        Target("as fast, at a load of 0.75: promoted of 20", float(alike.count("guard")), ">=", 19.0),
        Target("as fast, at a load that swings by half: promoted of 20", float(loud.count("guard")), ">=", 19.0),
        Target("10 points worse after the promotion: undone within 200 labels", undone(TENTH), ">=", 0.95),
        Target("20 points worse after the promotion: undone within 200 labels", undone(FIFTH), ">=", 0.95),
        Target("equal in the guard: undone", undone(STAYS), "<=", 0.05),
    ], {"rows": rows}
