"""How soon a challenger that is 3 points worse is taken back, and how often a good one is: simulated rollouts.

Each run is a whole rollout by `pliant/rollout/controller.py`, in virtual time: shadow, then a canary, every canaried request
with a copy to the champion. Answers are synthetic pairs, latencies of one distribution for both releases; labels come with
the answers. Only discordant pairs, of which one answer alone is right, tell anything: plain labels show 3 points within 500
pairs in 95% of the runs only where at most some 4% are discordant, whatever the test (docs/log/watch.md).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Literal

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
WORSE = 0.03
SECOND = 2.5  # between two pairs: a step takes its requests' time rather than the clock's

Challenger = Literal["worse", "equal", "better", "half"]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Answers of champion and challenger to the same requests, [2, pairs] in that order.

    Nothing is known of them but whether they are right: `correct`.
    """

    correct: NDArray[np.bool_]

    @property
    def worse(self) -> float:
        """By how much the challenger's accuracy is lower."""
        return float(self.correct[0].mean() - self.correct[1].mean())

    @property
    def discordance(self) -> float:
        """The share of pairs of which one answer alone is right."""
        return float((self.correct[0] != self.correct[1]).mean())

    def sample(self, count: int, rng: np.random.Generator, swapped: float = 0.0) -> Pairs:
        """Return `count` different pairs in random order. In a share `swapped` of them the releases change places: at one
        half they are exactly equal.
        """
        chosen = rng.choice(self.correct.shape[1], count, replace=False)
        first = (rng.random(count) < swapped).astype(np.int64)
        arms = np.stack([first, 1 - first])
        return Pairs(self.correct[arms, chosen])


def synthetic(discordance: float, worse: float, count: int, rng: np.random.Generator, wrong: float = 0.1) -> Pairs:
    """Return pairs of which a share `discordance` differs in being right; nothing but that is known of their answers.

    The champion is wrong in a share `wrong` of them, at least (discordance - worse) / 2, and the challenger in `worse` more.
    """
    lost, won = (discordance + worse) / 2, (discordance - worse) / 2
    kinds = rng.choice(4, count, p=[lost, won, wrong - won, 1 - wrong - lost])  # the last two: both wrong, both right
    correct = np.stack([(kinds == 0) | (kinds == 3), (kinds == 1) | (kinds == 3)])
    return Pairs(correct)


@dataclass(frozen=True, slots=True)
class Setting:
    """Pairs of which a share `discordance` is discordant; `copies`: in shadow, before the canary.

    `challenger`: "worse" by 3 points; "equal", "better", or worse by "half" of the margin, which must all be kept.
    """

    discordance: float
    challenger: Challenger = "worse"
    copies: int = 0
    target: bool = False

    @property
    def name(self) -> str:
        shadow = f"{self.copies} copies first" if self.copies else "no shadow"
        return f"synthetic, {100 * self.discordance:g}% discordant; right or wrong; {shadow}"


@dataclass(frozen=True, slots=True)
class Run:
    """How one rollout ended. `pairs`: shadow's and canary's together."""

    stage: Stage
    requests: int  # answered by the canary
    pairs: int
    reason: str


@dataclass(frozen=True, slots=True)
class Row:
    """All runs of a setting. Shares are of the runs."""

    setting: str
    challenger: str
    runs: int
    worse: float  # mean accuracy that the challenger lacked
    discordance: float
    taken_back: float
    in_time: float  # taken back within 500 canaried requests
    promoted: float
    median: float  # canaried requests when it was taken back; NaN where none was


HARD = (0.03, 0.04, 0.05, 0.06, 0.1)
SETTINGS: tuple[Setting, ...] = (
    Setting(HARD[0], target=True),
    Setting(HARD[-1]),
    Setting(0.05, challenger="equal"),
)
"""95% are demanded where `target` is set, in a setting that is realistic; the others show what is possible. Of every good
challenger at most 5% may be taken back."""
FURTHER: tuple[Setting, ...] = (
    *(Setting(share) for share in HARD[1:-1]),
    *(Setting(share, copies=1000) for share in (0.05, 0.1)),
    Setting(0.05, challenger="half"),
)
"""With --full."""


def config_of(setting: Setting) -> RolloutConfig:
    """Return the default configuration with labels as the measure, and with time never the reason to wait."""
    return RolloutConfig(measures=CORRECTNESS, shadow_requests=setting.copies, max_seconds=1e8)


def draw(setting: Setting, rng: np.random.Generator) -> Pairs:
    """Return the pairs of one run in the order in which they come."""
    return synthetic(setting.discordance, WORSE, LENGTH, rng).sample(LENGTH, rng, _swapped(setting))


def _swapped(setting: Setting) -> float:
    """Return the share of pairs in which the releases change places, so that the challenger is what it is called."""
    match setting.challenger:
        case "worse":
            return 0.0
        case "equal":
            return 0.5
        case "better":
            return 1.0
        case "half":
            return (1 - MARGIN / 2 / WORSE) / 2


def simulate(setting: Setting, pairs: Pairs, rng: np.random.Generator) -> Run:
    """Run one rollout on the pairs until it is decided, or the pairs are used up."""
    rollout = Rollout(config_of(setting))
    latencies = rng.lognormal(-3.0, 0.5, (2, LENGTH))
    failed = rng.random((2, LENGTH)) < 1e-3
    others = rng.permutation(LENGTH)  # the champion's own requests are not the canary's
    used = LENGTH
    for index in range(LENGTH):
        for event in _events(rollout, pairs, index, int(others[index]), latencies, failed):
            rollout.handle(event, SECOND * index)
        if rollout.decided:
            used = index + 1
            break
    rollout.check()
    return Run(rollout.stage, rollout.requests, used, rollout.reason)


def _events(
    rollout: Rollout, pairs: Pairs, index: int, other: int, latencies: np.ndarray, failed: np.ndarray
) -> list[Event]:
    """Return what the rollout hears of the pair, of the canary's answer, and of one of the champion's own meanwhile."""
    id = str(index)
    champion, challenger = (float(value) for value in pairs.correct[:, index])
    events: list[Event] = [CanaryOutcome(f"o{id}", "champion", float(latencies[0, other]), bool(failed[0, other]))]
    if rollout.stage == "canary":
        events.append(CanaryOutcome(id, "canary", float(latencies[1, index]), bool(failed[1, index])))
    return [*events, ShadowCompared(id, None, None, None), Label(id, champion > 0, challenger > 0, None, None)]


def repeat(setting: Setting, runs: int = RUNS, seed: int = 0) -> tuple[Row, list[Run]]:
    """Simulate a setting `runs` times and return the row of its table, and the runs."""
    ends, worse, discordance = [], [], []
    for run in range(runs):
        rng = np.random.default_rng([seed, run])
        pairs = draw(setting, rng)
        ends.append(simulate(setting, pairs, rng))
        worse.append(pairs.worse)
        discordance.append(pairs.discordance)
    taken = [end.requests for end in ends if end.stage == "taken_back"]
    row = Row(
        setting.name,
        setting.challenger,
        runs,
        float(np.mean(worse)),
        float(np.mean(discordance)),
        len(taken) / runs,
        sum(requests <= CANARIED for requests in taken) / runs,
        sum(end.stage == "promoted" for end in ends) / runs,
        float(np.median(taken)) if taken else math.nan,
    )
    return row, ends


def rollout(context: Context) -> Measured:
    """Return the targets of worse and of good challengers, and the table."""
    settings = context.choose(SETTINGS, (*SETTINGS, *FURTHER), SETTINGS)
    rows, reasons, targets = [], [], []
    with context.stage(f"{RUNS} rollouts in each of {len(settings)} settings") as progress:
        for done, setting in enumerate(settings):
            row, ends = repeat(setting)
            rows.append(row)
            reasons.append(next((end.reason for end in ends if end.stage == "taken_back"), ends[0].reason))
            if setting.target:
                targets.append(Target(f"3 points worse, taken back in time: {setting.name}", row.in_time, ">=", 0.95))
            progress(done + 1, len(settings))
    good = [row for row in rows if row.challenger != "worse"]
    targets.append(Target("good challengers taken back, largest share", max(r.taken_back for r in good), "<=", 0.05))
    details = {"rows": [asdict(row) for row in rows], "reasons": reasons}
    return targets, details
