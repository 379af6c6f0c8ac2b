"""Default, published and baselines on one data set's saved outputs, over random splits of its held-out texts.

Each split parts the held-out texts in two halves: on one everything is planned, the other judges. Seconds are those of the
latencies measured in this run, one request at a time. At equal accuracy are compared: the published candidate, and ours
planned on the same half to be as accurate there and a little beyond or below, where the mean accuracies over all splits and
judging halves are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.benchmarks.cascade.material import Material, materials
from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.results import Target
from pliant.cascade.artifact import Candidate, Cascade, Outputs
from pliant.cascade.evaluate import EvaluationData, evaluate, subset
from pliant.cascade.plan import PlanConfig, make
from pliant.cascade.search import Proposal, SearchConfig, handicapped, propose, with_thresholds

Floats = NDArray[np.float64]

OFFSETS = (-0.016, -0.012, -0.008, -0.004, 0.0, 0.004, 0.008, 0.012, 0.016)
METHODS = ("default", "tabi", "single", "voting")
MATCHED = "matched"
"""The default where its mean accuracy is the published candidate's."""
SPLITS = 20
HELPS = 0.95  # of the single model's seconds: below it a cascade helps
FEWER, QUICKER, CUT, SETS, MISSED = 0.9, 0.93, 0.25, 5, 0.05


@dataclass(frozen=True, slots=True)
class Showing:
    """One method on one judging half."""

    accuracy: float
    seconds: float
    early: float  # share answered by the first level
    large: float  # share that the largest level read; 0 where the path ends before it

    @property
    def rerouted(self) -> float:
        """Return the share that went on beyond the first level."""
        return 1 - self.early


@dataclass(frozen=True, slots=True)
class Round:
    """One split. `matched`: ours at the published candidate's accuracy on the planning half, and `OFFSETS` beyond."""

    seed: int
    large: float  # accuracy of the large model on the judging half
    target: float  # that less the promised drop
    shown: dict[str, Showing]
    matched: tuple[Showing, ...]


Rounds = Mapping[str, Sequence[Round]]
"""Data set -> its splits."""


def contest(context: Context) -> Measured:
    """Compare on every data set that there is."""
    rounds: dict[str, list[Round]] = {}
    for name, material in materials(context).items():
        with context.stage(f"{name}: {SPLITS} splits") as progress:
            rounds[name] = []
            for seed in range(SPLITS):
                rounds[name].append(one_round(material, seed))
                progress(seed + 1, SPLITS)
    return targets(rounds), {name: _plain(each) for name, each in rounds.items()}


def halves(count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    order = np.random.default_rng(seed).permutation(count).astype(np.int64)
    return order[: count // 2], order[count // 2 :]


def one_round(material: Material, seed: int, drop: float = 0.01) -> Round:
    planning, judging = (subset(material.outputs, rows) for rows in halves(len(material.outputs.labels), seed))
    cascade = plan(material, planning, seed, drop, len(judging.labels))
    ground, largest = EvaluationData(judging, cascade.levels, cascade.tolerance), len(cascade.levels) - 1

    def show(candidate: Candidate) -> Showing:
        judged, last = evaluate(candidate, ground), len(candidate.levels)
        large = judged.share(last - 1) if candidate.levels[-1] == largest else 0.0
        return Showing(judged.accuracy, judged.seconds, float((judged.steps_R == 1).mean()), large)

    alone = Candidate(f"level {largest}", (largest,), (), 0, 0, 0, (1.0,))
    large, every = evaluate(alone, ground).accuracy, {candidate.name: candidate for candidate in cascade.candidates}
    shown = {name: show(every[name]) for name in METHODS if name in every}
    rivals: tuple[Showing, ...] = ()
    if "tabi" in every:
        whole = EvaluationData(planning, cascade.levels, cascade.tolerance)
        rivals = tuple(map(show, matched(every["tabi"], whole)))
    return Round(seed, large, large - drop, shown, rivals)


def plan(material: Material, planning: Outputs, seed: int, drop: float, horizon: int) -> Cascade:
    config = PlanConfig(drop=drop, seed=seed, horizon=horizon, further=())
    return make(planning, material.latency, material.importance, config, material.pair, material.device)


def matched(published: Candidate, ground: EvaluationData, offsets: Sequence[float] = OFFSETS) -> list[Candidate]:
    """Return our cheapest at the published candidate's accuracy on the planning half and so much beyond, without bounds.

    Seconds are read off a monotone fit of the accuracy, so that no way wins by one lucky threshold.
    """
    config, least = SearchConfig(), evaluate(published, ground).accuracy
    every = [way for way in propose(ground, len(ground.levels) - 1, config) if way.candidate.gates]

    def cheapest(accuracy: float) -> Candidate:
        def seconds(way: Proposal) -> float:
            trial = way.trial
            at = _index_at(trial.accuracy_P, trial.seconds_P, accuracy)
            enough = _smooth(trial.accuracy_P, trial.seconds_P)[at] >= accuracy
            return float(trial.seconds_P[at]) * handicapped(way.candidate, config) if enough else float("inf")

        best = min(every, key=seconds)
        if seconds(best) == float("inf"):
            best = max(every, key=lambda way: float(_smooth(way.trial.accuracy_P, way.trial.seconds_P).max()))
        at = _index_at(best.trial.accuracy_P, best.trial.seconds_P, accuracy)
        return with_thresholds(best.candidate, best.trial.threshold_PG[at])

    return [cheapest(least + offset) for offset in offsets]


def _index_at(accuracy_P: Floats, seconds_P: Floats, accuracy: float) -> int:
    """Return the cheapest that is accurate enough by the monotone fit; if none is, the cheapest of the most accurate."""
    smooth_P = _smooth(accuracy_P, seconds_P)
    enough = np.flatnonzero(smooth_P >= min(accuracy, float(smooth_P.max())))
    return int(enough[seconds_P[enough].argmin()])


def _smooth(accuracy_P: Floats, seconds_P: Floats) -> Floats:
    """Return the nearest accuracies that never fall with the seconds (pool adjacent violators; scikit-learn's)."""
    from sklearn.isotonic import IsotonicRegression

    return np.asarray(IsotonicRegression().fit(seconds_P, accuracy_P).predict(seconds_P))


def equal(rounds: Sequence[Round]) -> Showing | None:
    """Return the default's mean figures at the published candidate's mean accuracy; None where that is out of reach."""
    compared = [split for split in rounds if split.matched]
    if not compared:
        return None
    table_OF = np.mean([[astuple(shown) for shown in split.matched] for split in compared], axis=0)
    wanted = float(np.mean([split.shown["tabi"].accuracy for split in compared]))
    table_OF = table_OF[np.argsort(table_OF[:, 0])]
    if not table_OF[0, 0] <= wanted <= table_OF[-1, 0]:
        return None
    return Showing(*(float(np.interp(wanted, table_OF[:, 0], column_O)) for column_O in table_OF.T))


def ratio(rounds: Sequence[Round], what: str) -> float:
    """Return the default over the published candidate at equal mean accuracy: `rerouted`, `large` or `seconds`."""
    ours = equal(rounds)
    theirs = [getattr(split.shown["tabi"], what) for split in rounds if split.matched]
    return getattr(ours, what) / float(np.mean(theirs)) if ours and np.mean(theirs) else float("nan")


def mean(each: Sequence[Round], method: str, what: str) -> float:
    """Return the mean of a figure over the splits, of `MATCHED` at equal accuracy; NaN where there is none."""
    if method == MATCHED:
        return getattr(showing, what) if (showing := equal(each)) else float("nan")
    values = [getattr(split.shown[method], what) for split in each if method in split.shown]
    return float(np.mean(values)) if values else float("nan")


def missed(each: Sequence[Round], method: str) -> float:
    """Return the share of splits on whose judging half the accuracy lay below the target."""
    return float(np.mean([split.shown[method].accuracy < split.target for split in each if method in split.shown]))


def targets(rounds: Rounds) -> list[Target]:
    """Return the targets; a ratio that could not be measured on one of the data sets is missed."""
    # A cascade helps where the published one is quicker than the large model, or ours at its accuracy, if that is reached.
    helped = [
        name
        for name, each in rounds.items()
        if any(mean(each, way, "seconds") < HELPS * mean(each, "single", "seconds") for way in (MATCHED, "tabi"))
    ]
    rerouted, large, seconds = (
        float(np.max([ratio(rounds[name], what) for name in helped])) if helped else float("nan")
        for what in ("rerouted", "large", "seconds")
    )
    cut = [
        name
        for name, each in rounds.items()
        if mean(each, "default", "seconds") <= (1 - CUT) * mean(each, "single", "seconds")
        and mean(each, "default", "accuracy") >= float(np.mean([split.target for split in each]))
    ]
    rates = [missed(each, "default") for each in rounds.values()]
    of, worst = f"of {len(rounds)}", f"worst of {len(helped)} that a cascade helps"
    return [
        Target(f"re-routed beyond the first level over tabi, equal accuracy, {worst}", rerouted, "<=", FEWER),
        Target(f"sent to the large model over tabi, equal accuracy, {worst}", large, "<=", FEWER),
        Target(f"mean latency over tabi, equal accuracy, {worst}", seconds, "<=", QUICKER),
        Target(f"data sets {of} with 25% lower mean latency than single, target met", len(cut), ">=", SETS),
        Target("splits on which the target is missed", float(np.mean(rates)), "<=", MISSED),
    ]


def _plain(rounds: Sequence[Round]) -> dict[str, Any]:
    """Return what the results' file holds: each method's means over the splits, and on how many it missed the target."""
    methods = [
        {"method": name, "missed": round(missed(rounds, name) * len(rounds))}
        | {figure.name: mean(rounds, name, figure.name) for figure in fields(Showing)}
        for name in rounds[0].shown
    ]
    means = {name: float(np.mean([getattr(split, name) for split in rounds])) for name in ("large", "target")}
    return {"splits": len(rounds), **means, "methods": methods}
