"""Our own search: which path, how words are pruned, how gains are foreseen, and the cheapest thresholds that pass the test.

Everything is chosen on tuning texts: gains are foreseen for texts that their model was not fitted on (folds), thresholds are
every trade of accuracy for seconds (pliant/cascade/frontier.py), and of all ways the cheapest that would keep the promise
are taken. Their thresholds alone are then tested on the proving texts, from the safest down (pliant/cascade/certify.py):
each of the few ways in an order fixed before, at its share of the error allowed (Bonferroni), so that the cheapest of those
that pass may be chosen freely.

Answers do not depend on thresholds: every level is read once, and a way is judged at all its thresholds together.

Shape suffixes: R texts, F features, S steps, G gates, P points.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from pliant.cascade import frontier
from pliant.cascade.artifact import Candidate, Gate, PrunedOutputs, Pruning
from pliant.cascade.certify import last_passing, lower_bounds
from pliant.cascade.ensemble import weight
from pliant.cascade.evaluate import Ground, Step, evaluate, opinion, seconds_of, table_of, walk
from pliant.cascade.frontier import ALWAYS
from pliant.cascade.route import combine, confidence, features

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

DOUBT = (1.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0)  # the gain foreseen is one minus the confidence


@dataclass(frozen=True, slots=True)
class SearchConfig:
    levels: int = 3  # most in one path
    saving: float = 0.02  # share of the reader's seconds that a pruning must save to be tried
    folds: int = 5
    penalty: float = 10.0  # of the gain's model, in texts: ridge regression on standardised features
    points: int = 64  # tested at most
    handicap: float = 0.05  # of a way's seconds that is gated by learnt gains, and for pruning
    looks: int = 2  # ways of different paths that are proved, each with its share of the error allowed
    unsure: float = 0.3  # share of the texts, the least confident, that the ensemble's weight is fitted on


@dataclass(frozen=True, slots=True)
class Trial:
    """A way at several thresholds, from the safest to the cheapest, beside the large model on the same texts."""

    threshold_PG: Floats
    accuracy_P: Floats
    apart_P: Floats  # share of the texts that one of the two answers correctly and the other does not
    seconds_P: Floats
    large: float  # the large model's accuracy
    texts: int


@dataclass(frozen=True, slots=True)
class Promise:
    """No more than `drop` below the large model's accuracy, or at least `target`."""

    drop: float
    target: float | None
    confidence: float
    horizon: int | None

    def holds(self, trial: Trial, texts: int | None = None) -> Bools:
        """Whether the bound from these texts (or from `texts` like them) keeps it, [P]."""
        if self.target is None:
            mean_P, square_P, least = trial.accuracy_P - trial.large, trial.apart_P, -self.drop
        else:
            right_P, target = trial.accuracy_P, self.target
            mean_P, square_P, least = right_P - target, right_P * (1 - target) ** 2 + (1 - right_P) * target**2, 0.0
        count = texts or trial.texts
        return np.asarray(lower_bounds(mean_P, square_P, count, self.confidence, self.horizon) >= least)


@dataclass(frozen=True, slots=True)
class Way:
    """A path with everything but its thresholds, and those to test."""

    candidate: Candidate  # gates carry the gains' models
    trial: Trial  # on the tuning texts, by the gains that were foreseen for them


def planned(
    tuning: Ground,
    proving: Ground,
    large: int,
    promise: Promise,
    config: SearchConfig = SearchConfig(),
    known: Sequence[Way] | None = None,
) -> Candidate:
    """The cheapest candidate that passes, else the large model alone. Without figures, see evaluate.measured.

    `known`: all `ways` of the tuning texts, where they were found before: they are the same for every promise.
    """
    alone = Candidate("", (large,), (), 0, 0, 0, ())
    least = evaluate(alone, tuning).seconds
    found = ways(tuning, large, config) if known is None else known
    chosen = _promising(found, promise, len(proving.outputs.labels), least, config)
    risk = (1 - promise.confidence) / max(1, len(chosen))
    proved = [_proved(way, proving, large, replace(promise, confidence=1 - risk)) for way in chosen]
    passed = [(seconds, candidate) for seconds, candidate in proved if candidate is not None]
    return min(passed, key=lambda one: one[0])[1] if passed else alone


def ways(ground: Ground, large: int, config: SearchConfig) -> Iterator[Way]:
    """Every path of up to `levels` levels, with every pruning that saves something, with gains learnt or by doubt."""
    numbers = range(len(ground.levels))
    alone = [opinion(ground, level) for level in numbers]
    feature_LRF = [features(step.answer_RK, ground.regression) for step in alone]
    for level in numbers:
        candidate = Candidate("", (level,), (), 0, 0, 0, ())
        yield Way(candidate, tried([alone[level]], [], np.empty((1, 0)), alone[large].correct_R))
    for pair in combinations(numbers, 2):
        for pruning in _prunings(pair, ground, config):
            gate, last_two = _last_gate(pair, pruning, alone, ground, config)
            for path in _paths(pair, config):
                steps = [*(alone[level] for level in path[:-2]), *last_two]
                gates = (*[Gate("gain")] * (len(path) - 2), gate)
                known = [feature_LRF[level] for level in path[:-1]]
                for learnt in (False, True):
                    yield _way(Candidate("", path, gates, 0, 0, 0, ()), steps, known, learnt, alone[large], config)


def tried(steps: Sequence[Step], score_GR: Sequence[Floats], threshold_PG: Floats, large_R: Bools) -> Trial:
    """What the thresholds make of the texts."""
    correct_PR, seconds_P = frontier.applied(
        [step.correct_R for step in steps], [step.seconds_R for step in steps], score_GR, threshold_PG
    )
    apart_P = (correct_PR != large_R).mean(axis=1)
    return Trial(threshold_PG, correct_PR.mean(axis=1), apart_P, seconds_P, float(large_R.mean()), len(large_R))


def fit_gain(feature_RF: Floats, gain_R: Floats, penalty: float) -> Floats:
    """Ridge regression of the gain on standardised features; weights for the features as they are, [F]."""
    mean_F, deviation_F = feature_RF.mean(axis=0), feature_RF.std(axis=0)
    used = deviation_F > 1e-9
    scaled = (feature_RF[:, used] - mean_F[used]) / deviation_F[used]
    centred = gain_R - gain_R.mean()
    solved = np.linalg.solve(scaled.T @ scaled + penalty * np.eye(used.sum()), scaled.T @ centred)
    weight_F = np.zeros(feature_RF.shape[1])
    weight_F[used] = solved / deviation_F[used]
    weight_F[0] = gain_R.mean() - weight_F @ mean_F  # feature 0 is the constant one
    return weight_F


def with_thresholds(candidate: Candidate, threshold_G: Floats) -> Candidate:
    gates = zip(candidate.gates, threshold_G, strict=True)
    return replace(candidate, gates=tuple(replace(gate, threshold=float(at)) for gate, at in gates))


def _paths(pair: tuple[int, int], config: SearchConfig) -> Iterator[tuple[int, ...]]:
    """All that end in this pair."""
    for size in range(config.levels - 1):
        for before in combinations(range(pair[0]), size):
            yield (*before, *pair)


def _prunings(pair: tuple[int, int], ground: Ground, config: SearchConfig) -> Iterator[Pruning]:
    yield Pruning()
    table = ground.levels[pair[1]].latency
    whole = seconds_of(table, ground.outputs.levels[pair[1]].length).mean()
    for one in ground.outputs.pruned:
        if _fits(one, pair) and seconds_of(table, one.length).mean() < (1 - config.saving) * whole:
            yield one.pruning


def _fits(one: PrunedOutputs, pair: tuple[int, int]) -> bool:
    return (one.pruner, one.reader, one.pruning.rule) == (*pair, "mass")


def _last_gate(
    pair: tuple[int, int], pruning: Pruning, alone: Sequence[Step], ground: Ground, config: SearchConfig
) -> tuple[Gate, list[Step]]:
    """The gate before the last level with its weight, fitted where the level before is least sure, and both steps."""
    pruner, reader = pair
    before, after = alone[pruner], alone[reader]
    if pruning.rule != "none":
        before = replace(before, seconds_R=seconds_of(table_of(ground.levels[pruner], pruning), before.length_R))
        after = opinion(ground, reader, pruner, pruning)
    if ground.regression:
        return Gate("gain", pruning=pruning), [before, after]
    sure_R = confidence(before.answer_RK, False)
    unsure_R = sure_R <= np.quantile(sure_R, config.unsure)
    label_R = ground.outputs.labels[unsure_R].astype(np.int64)
    gate = Gate("gain", pruning=pruning, weight=weight(before.answer_RK[unsure_R], after.answer_RK[unsure_R], label_R))
    answer_RK = combine(gate, before.answer_RK, after.answer_RK)
    return gate, [before, replace(after, answer_RK=answer_RK, correct_R=ground.correct(answer_RK))]


def _way(
    candidate: Candidate,
    steps: Sequence[Step],
    feature_GRF: Sequence[Floats],
    learnt: bool,
    large: Step,
    config: SearchConfig,
) -> Way:
    gains = [steps[-1].correct_R.astype(np.float64) - step.correct_R for step in steps[:-1]]
    models = [_foreseen(*one, learnt, config) for one in zip(feature_GRF, gains, strict=True)]
    gates = zip(candidate.gates, models, strict=True)
    candidate = replace(candidate, gates=tuple(replace(gate, weights=weights) for gate, (weights, _) in gates))
    score_GR = [score_R for _, score_R in models]
    return Way(candidate, tried(steps, score_GR, _order(steps, score_GR, config), large.correct_R))


def _foreseen(
    feature_RF: Floats, gain_R: Floats, learnt: bool, config: SearchConfig
) -> tuple[tuple[float, ...], Floats]:
    """The model of the gain from here to the path's end, and what it says of texts that it was not fitted on."""
    if not learnt:
        return DOUBT, feature_RF @ np.asarray(DOUBT)
    fold_R = np.arange(len(gain_R)) % config.folds
    score_R = np.empty(len(gain_R))
    for fold in range(config.folds):
        out = fold_R == fold
        score_R[out] = feature_RF[out] @ fit_gain(feature_RF[~out], gain_R[~out], config.penalty)
    return tuple(float(w) for w in fit_gain(feature_RF, gain_R, config.penalty)), score_R


def _order(steps: Sequence[Step], score_GR: Sequence[Floats], config: SearchConfig) -> Floats:
    """Thresholds from where every text goes on to the cheapest: quantiles up to the best accuracy, then the frontier."""
    found = frontier.points(
        [step.correct_R.astype(np.float64) for step in steps], [step.seconds_R for step in steps], score_GR
    )
    best = frontier.frontier(found)
    if len(best) > config.points:
        best = best.chosen(np.unique(np.linspace(0, len(best) - 1, config.points).round().astype(int)))
    shares = [float((score <= at).mean()) for score, at in zip(score_GR, best.threshold_PG[0], strict=True)]
    safer = [
        [_quantile(s, q * share) for s, share in zip(score_GR, shares, strict=True)] for q in np.arange(0, 1, 1 / 16)
    ]
    return np.concatenate([safer, best.threshold_PG])


def _quantile(score_R: Floats, share: float) -> float:
    return ALWAYS if share == 0 else float(np.quantile(score_R, share))


def _promising(known: Iterable[Way], promise: Promise, texts: int, least: float, config: SearchConfig) -> list[Way]:
    """The cheapest ways of different paths that would pass with as many texts as there are to prove with."""
    costs = [(_cheapest(way.trial, promise, texts), way) for way in known]
    able = [(seconds * handicapped(way.candidate, config), way) for seconds, way in costs if seconds < least]
    of_path: dict[tuple[int, ...], Way] = {}
    for _, way in sorted(able, key=lambda one: one[0]):
        of_path.setdefault(way.candidate.levels, way)
    return list(of_path.values())[: config.looks]


def handicapped(candidate: Candidate, config: SearchConfig) -> float:
    """The factor on a way's seconds when ways are compared: what can be fitted better fits noise, too."""
    gates = candidate.gates
    more = any(gate.weights != DOUBT for gate in gates) + any(gate.pruning.rule != "none" for gate in gates)
    return 1 + config.handicap * more


def _cheapest(trial: Trial, promise: Promise, texts: int) -> float:
    """Seconds of the cheapest point that would pass; else infinity."""
    return float(trial.seconds_P.min(where=promise.holds(trial, texts), initial=np.inf))


def _proved(way: Way, proving: Ground, large: int, promise: Promise) -> tuple[float, Candidate | None]:
    """At the cheapest thresholds before the first that fail, with their seconds; none where they save nothing."""
    standard = evaluate(Candidate("", (large,), (), 0, 0, 0, ()), proving)
    trial = tried(*_scored(way.candidate, proving), way.trial.threshold_PG, standard.correct_R)
    holds_P = promise.holds(trial)
    passed = last_passing(len(holds_P), lambda number: float(holds_P[number]), 1.0)
    if passed is None:
        return standard.seconds, None
    best = int(trial.seconds_P[: passed + 1].argmin())
    if trial.seconds_P[best] >= standard.seconds:
        return standard.seconds, None
    return float(trial.seconds_P[best]), with_thresholds(way.candidate, trial.threshold_PG[best])


def _scored(candidate: Candidate, ground: Ground) -> tuple[list[Step], list[Floats]]:
    """Every text's steps, and the gains foreseen after each but the last."""
    steps = walk(candidate, ground)
    gates = zip(steps, candidate.gates, strict=False)
    return steps, [features(step.answer_RK, ground.regression) @ np.asarray(gate.weights) for step, gate in gates]
