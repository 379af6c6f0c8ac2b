"""How soon a challenger that is 3 points worse is taken back, and how often a good one is: simulated rollouts.

Each run is a whole rollout by `pliant/rollout/controller.py`, in virtual time: shadow, then a canary, every canaried request
with a copy to the champion. Answers are synthetic pairs, latencies of one distribution for both releases; labels come with
the answers.

What is possible at all. Let a share d of the pairs be discordant: one answer alone is right. Only these tell anything, and
a challenger 3 points worse loses (1 + 0.03 / d) / 2 of them. 500 pairs hold on average 500 * KL nats against "no worse";
evidence of 20 (alpha 5%) is 3.0 nats, and being there in 95% of the runs takes about 3.3 standard errors:

    d       nats in 500   standard errors   power of one look at the end (normal approximation)
    3%             10.4               3.9   99%
    4%              6.3               3.4   96%
    5%              4.8               3.0   91%
    6%              3.9               2.8   86%
    10%             2.3               2.1   68%
    unpaired        1.1               1.5   44%   (500 answers a side, wrong in 10% and 13%)

So plain labels reach 95% within 500 pairs only if at most some 4% of the pairs are discordant, whatever the test, and
unpaired ones never. `limits` computes the figures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from pliant.benchmarks.harness import Context, Measured, table
from pliant.benchmarks.results import Target
from pliant.rollout.config import RolloutConfig
from pliant.rollout.controller import Rollout, Stage
from pliant.rollout.events import CanaryOutcome, Event, Label, ShadowCompared
from pliant.rollout.evidence import information
from pliant.rollout.measures import CORRECTNESS, GUARDS, MARGIN, Measure

RUNS = 200
CANARIED = 500  # requests within which a worse challenger must be taken back
LENGTH = 2500  # pairs of a run, at most
WORSE = 0.03
SECOND = 2.5  # between two pairs: a step takes its requests' time rather than the clock's

Kind = Literal["right or wrong", "unpaired"]
Challenger = Literal["worse", "equal", "better", "half"]
MEASURES: Mapping[Kind, tuple[Measure, ...]] = {
    "right or wrong": CORRECTNESS,
    "unpaired": (Measure("outcome", MARGIN, 0.8), *GUARDS),
}
"""What is known of the answers."""


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
    kind: Kind = "right or wrong"
    challenger: Challenger = "worse"
    copies: int = 0
    target: bool = False

    @property
    def name(self) -> str:
        shadow = f"{self.copies} copies first" if self.copies else "no shadow"
        return f"synthetic, {100 * self.discordance:g}% discordant; {self.kind}; {shadow}"


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
    Setting(HARD[-1], "unpaired"),
    *(Setting(share) for share in HARD[1:-1]),
    *(Setting(share, copies=1000) for share in (0.05, 0.1)),
    Setting(0.05, challenger="half"),
    Setting(0.1, "unpaired", "equal"),
)
"""With --full."""
HEADINGS = ("setting", "challenger", "worse", "discordant", "taken back", "within 500", "promoted", "median requests")


def limits(shares: Sequence[float] = HARD, worse: float = WORSE, pairs: int = CANARIED) -> list[dict[str, float]]:
    """Return for each share of discordant pairs what the pairs can tell: nats, standard errors, power of one look at 5%.

    The power is that of the normal approximation. The last row, with a share of 1, is for unpaired labels of releases
    that are wrong in 10% and 10% + `worse`.
    """
    rows = []
    for share in shares:
        expected, deviation = worse * pairs, math.sqrt(pairs * (share - worse**2))
        power = float(norm.cdf((expected - norm.ppf(0.95) * math.sqrt(pairs * share)) / deviation))
        nats = pairs * information(share, worse)
        rows.append({"discordance": share, "nats": nats, "errors": expected / deviation, "power": power})
    wrong = (0.1, 0.1 + worse)
    errors = worse / math.sqrt(sum(share * (1 - share) for share in wrong) / pairs)
    nats = pairs * _unpaired_information(*wrong)
    return [
        *rows,
        {"discordance": 1.0, "nats": nats, "errors": errors, "power": float(norm.cdf(errors - norm.ppf(0.95)))},
    ]


def _unpaired_information(first: float, second: float) -> float:
    """Return the nats of one answer of each arm that the arms are wrong at two rates rather than at one."""
    rates, mean = np.array([first, second]), (first + second) / 2
    return float(np.sum(rates * np.log(rates / mean) + (1 - rates) * np.log((1 - rates) / (1 - mean))))


def config_of(setting: Setting) -> RolloutConfig:
    """Return the default configuration with the measures of the setting, and with time never the reason to wait."""
    config = RolloutConfig(measures=MEASURES[setting.kind], shadow_requests=setting.copies, max_seconds=1e8)
    # Unpaired arms at half of the traffic each, which is the best case for them.
    return replace(config, steps=(0.5, 1.0), step_requests=600) if setting.kind == "unpaired" else config


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
        for event in _events(setting, rollout, pairs, index, int(others[index]), latencies, failed):
            rollout.handle(event, SECOND * index)
        if rollout.decided:
            used = index + 1
            break
    rollout.check()
    return Run(rollout.stage, rollout.requests, used, rollout.reason)


def _events(
    setting: Setting, rollout: Rollout, pairs: Pairs, index: int, other: int, latencies: np.ndarray, failed: np.ndarray
) -> list[Event]:
    """Return what the rollout hears of the pair, of the canary's answer, and of one of the champion's own meanwhile."""
    id = str(index)
    champion, challenger = (float(value) for value in pairs.correct[:, index])
    unpaired = setting.kind == "unpaired"
    events: list[Event] = [
        CanaryOutcome(
            f"o{id}",
            "champion",
            float(latencies[0, other]),
            bool(failed[0, other]),
            utility=float(pairs.correct[0, other]) if unpaired else None,
        )
    ]
    if rollout.stage == "canary":
        utility = challenger if unpaired else None
        latency = float(latencies[1, index])
        events.append(CanaryOutcome(id, "canary", latency, bool(failed[1, index]), utility=utility))
    if unpaired:
        return events
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
    table("rollouts", HEADINGS, [_cells(row) for row in rows])
    details = {"rows": [asdict(row) for row in rows], "limits": limits(), "reasons": reasons}
    return targets, details


def _cells(row: Row) -> tuple[str, ...]:
    shares = (row.worse, row.discordance, row.taken_back, row.in_time, row.promoted)
    return (row.setting, row.challenger, *(f"{share:.1%}" for share in shares), f"{row.median:.0f}")
