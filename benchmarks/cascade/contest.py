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
from pliant.cascade.evaluate import Evaluation, EvaluationData, evaluate, subset
from pliant.cascade.plan import PlanConfig, make
from pliant.cascade.search import Proposal, SearchConfig, handicapped, propose, with_thresholds

Floats = NDArray[np.float64]

OFFSETS = (-0.016, -0.012, -0.008, -0.004, 0.0, 0.004, 0.008, 0.012, 0.016)
METHODS = {"default": "#1b6ca8", "tabi": "#e08e0b", "single": "#777777", "voting": "#bbbbbb"}
"""What is compared, with the colour of each."""
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
    kept: float  # share of words that went on
    levels: float

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
    ground = EvaluationData(judging, cascade.levels, cascade.tolerance)
    largest = len(cascade.levels) - 1
    large = evaluate(only(largest), ground).accuracy
    every = {candidate.name: candidate for candidate in cascade.candidates}
    shown = {name: show(evaluate(every[name], ground), every[name], largest) for name in METHODS if name in every}
    rivals: tuple[Showing, ...] = ()
    if "tabi" in every:
        whole = EvaluationData(planning, cascade.levels, cascade.tolerance)
        ours = matched(every["tabi"], whole)
        rivals = tuple(show(evaluate(candidate, ground), candidate, largest) for candidate in ours)
    return Round(seed, large, large - drop, shown, rivals)


def plan(material: Material, planning: Outputs, seed: int, drop: float, horizon: int) -> Cascade:
    config = PlanConfig(drop=drop, seed=seed, horizon=horizon, further=())
    return make(planning, material.latency, material.importance, config, material.pair, material.device)


def only(level: int) -> Candidate:
    return Candidate(f"level {level}", (level,), (), 0, 0, 0, (1.0,))


def show(judged: Evaluation, candidate: Candidate, largest: int) -> Showing:
    last = len(candidate.levels)
    large = judged.share(last - 1) if candidate.levels[-1] == largest else 0.0
    beyond = judged.steps_R > 1
    kept = float(judged.kept_R[beyond].mean()) if beyond.any() else 1.0
    return Showing(judged.accuracy, judged.seconds, float((judged.steps_R == 1).mean()), large, kept, last)


def matched(published: Candidate, ground: EvaluationData, offsets: Sequence[float] = OFFSETS) -> list[Candidate]:
    """Return our cheapest at the published candidate's accuracy on the planning half and so much beyond, without bounds.

    Seconds are read off a monotone fit of the accuracy, so that no way wins by one lucky threshold.
    """
    config, least = SearchConfig(), evaluate(published, ground).accuracy
    every = [way for way in propose(ground, len(ground.levels) - 1, config) if way.candidate.gates]
    return [_cheapest(every, least + offset, config) for offset in offsets]


def _cheapest(every: Sequence[Proposal], accuracy: float, config: SearchConfig) -> Candidate:
    def seconds(way: Proposal) -> float:
        return _seconds_at(way.trial.accuracy_P, way.trial.seconds_P, accuracy) * handicapped(way.candidate, config)

    best = min(every, key=seconds)
    if seconds(best) == float("inf"):
        best = max(every, key=lambda way: float(_smooth(way.trial.accuracy_P, way.trial.seconds_P).max()))
    at = _index_at(best.trial.accuracy_P, best.trial.seconds_P, accuracy)
    return with_thresholds(best.candidate, best.trial.threshold_PG[at])


def _seconds_at(accuracy_P: Floats, seconds_P: Floats, accuracy: float) -> float:
    at = _index_at(accuracy_P, seconds_P, accuracy)
    return float(seconds_P[at]) if _smooth(accuracy_P, seconds_P)[at] >= accuracy else float("inf")


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


def showings(each: Sequence[Round], method: str) -> list[Showing]:
    """Return a method on every judging half; `MATCHED` is one showing, or none where it is out of reach."""
    if method == MATCHED:
        return [showing] if (showing := equal(each)) else []
    return [split.shown[method] for split in each if method in split.shown]


def mean(each: Sequence[Round], method: str, what: str) -> float:
    """Return the mean of a figure of `Showing` over the splits; NaN where there is none."""
    values = [getattr(showing, what) for showing in showings(each, method)]
    return float(np.mean(values)) if values else float("nan")


def missed(each: Sequence[Round], method: str) -> float:
    """Return the share of splits on whose judging half the accuracy lay below the target."""
    return float(np.mean([split.shown[method].accuracy < split.target for split in each if method in split.shown]))


def helping(rounds: Rounds) -> list[str]:
    """Return the data sets on which any cascade helps: the published one, or ours at its accuracy where that is reached."""

    def helps(each: Sequence[Round], method: str) -> bool:
        return mean(each, method, "seconds") < HELPS * mean(each, "single", "seconds")

    return [name for name, each in rounds.items() if any(helps(each, method) for method in (MATCHED, "tabi"))]


def targets(rounds: Rounds) -> list[Target]:
    """Return the targets; a ratio that could not be measured on one of the data sets is missed."""
    helped = helping(rounds)
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
