"""Our own search: the path, the pruning, the prediction of gains, and the cheapest thresholds that pass the test.

Everything is chosen on tuning texts. Gains are predicted by models that were not fitted on the text at hand (folds).
The thresholds are every trade of accuracy for seconds (pliant/cascade/frontier.py). Of all proposals the cheapest few
that would keep the promise go on. Only their thresholds are tested on the proving texts, from the safest on
(pliant/cascade/certify.py): each proposal in an order fixed before and with its share of the allowed error
(Bonferroni), so that the cheapest of those that pass may be chosen.

Answers do not depend on thresholds, so every level is read once and a proposal is evaluated at all its thresholds
together.

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
from pliant.cascade.calibrate import weight
from pliant.cascade.certify import last_passing, lower_bounds
from pliant.cascade.evaluate import EvaluationData, Step, evaluate, level_step, seconds_of, table_of, walk
from pliant.cascade.frontier import ALWAYS
from pliant.cascade.route import combine, confidence, features

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

DOUBT_WEIGHTS = (1.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0)  # predict the gain as one minus the confidence


@dataclass(frozen=True, slots=True)
class SearchConfig:
    """What the search tries."""

    levels: int = 3  # of one path, at most
    saving: float = 0.02  # share of a level's seconds that a pruning before it must save to be tried
    folds: int = 5  # of the texts, to predict gains
    penalty: float = 10.0  # of the ridge regression of gains on standardised features, in texts
    points: int = 64  # thresholds to test, at most
    handicap: float = 0.05  # share added to a proposal's seconds for learnt gains, and again for pruning
    looks: int = 2  # proposals of different paths that are tested, each with its share of the allowed error
    unsure: float = 0.3  # share of the texts, the least confident, on which the ensemble's weight is fitted


@dataclass(frozen=True, slots=True)
class Trial:
    """The results of a path at several thresholds, from the safest to the cheapest, beside the large model's."""

    threshold_PG: Floats
    accuracy_P: Floats
    apart_P: Floats  # share of the texts that only one of the two answers correctly
    seconds_P: Floats
    large: float  # the large model's accuracy
    texts: int


@dataclass(frozen=True, slots=True)
class Promise:
    """An accuracy of at least `target`, or if that is None of at most `drop` below the large model's."""

    drop: float
    target: float | None
    confidence: float
    horizon: int | None

    def holds(self, trial: Trial, texts: int | None = None) -> Bools:
        """Return [P], whether the lower bound from these texts, or from `texts` like them, keeps the promise."""
        if self.target is None:
            mean_P, square_P, least = trial.accuracy_P - trial.large, trial.apart_P, -self.drop
        else:
            right_P, target = trial.accuracy_P, self.target
            mean_P, square_P, least = right_P - target, right_P * (1 - target) ** 2 + (1 - right_P) * target**2, 0.0
        count = texts or trial.texts
        return np.asarray(lower_bounds(mean_P, square_P, count, self.confidence, self.horizon) >= least)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A candidate without thresholds, and its trial at all thresholds that may be tested."""

    candidate: Candidate  # its gates have the weights that predict gains
    trial: Trial  # on the tuning texts, by out-of-fold predictions of their gains


def plan_candidate(
    tuning: EvaluationData,
    proving: EvaluationData,
    large: int,
    promise: Promise,
    config: SearchConfig = SearchConfig(),
    known: Sequence[Proposal] | None = None,
) -> Candidate:
    """Return the cheapest candidate that passes, or the large model alone. It has no figures yet (see evaluate.py).

    `known`: what `propose` gives for the tuning texts, which is the same for every promise; None: it is computed.
    """
    alone = Candidate("", (large,), (), 0, 0, 0, ())
    least = evaluate(alone, tuning).seconds
    proposals = propose(tuning, large, config) if known is None else known
    chosen = _promising(proposals, promise, len(proving.outputs.labels), least, config)
    risk = (1 - promise.confidence) / max(1, len(chosen))
    proved = [_certified(proposal, proving, large, replace(promise, confidence=1 - risk)) for proposal in chosen]
    passed = [(seconds, candidate) for seconds, candidate in proved if candidate is not None]
    return min(passed, key=lambda pair: pair[0])[1] if passed else alone


def propose(data: EvaluationData, large: int, config: SearchConfig) -> Iterator[Proposal]:
    """Yield every path of up to `levels` levels with every pruning that saves time, gains learnt and from doubt."""
    numbers = range(len(data.levels))
    alone = [level_step(data, level) for level in numbers]
    feature_LRF = [features(step.answer_RK, data.regression) for step in alone]
    for level in numbers:
        candidate = Candidate("", (level,), (), 0, 0, 0, ())
        yield Proposal(candidate, run_trial([alone[level]], [], np.empty((1, 0)), alone[large].correct_R))
    for pair in combinations(numbers, 2):
        for pruning in _prunings(pair, data, config):
            gate, last_two = _last_gate(pair, pruning, alone, data, config)
            for path in _paths(pair, config):
                steps = [*(alone[level] for level in path[:-2]), *last_two]
                gates = (*[Gate("gain")] * (len(path) - 2), gate)
                known = [feature_LRF[level] for level in path[:-1]]
                for learnt in (False, True):
                    yield _proposal(Candidate("", path, gates, 0, 0, 0, ()), steps, known, learnt, alone[large], config)


def run_trial(steps: Sequence[Step], score_GR: Sequence[Floats], threshold_PG: Floats, large_R: Bools) -> Trial:
    """Return the results of the thresholds on the texts. `large_R`: whether the large model is correct."""
    correct_PR, seconds_P = frontier.applied(
        [step.correct_R for step in steps], [step.seconds_R for step in steps], score_GR, threshold_PG
    )
    apart_P = (correct_PR != large_R).mean(axis=1)
    return Trial(threshold_PG, correct_PR.mean(axis=1), apart_P, seconds_P, float(large_R.mean()), len(large_R))


def fit_gain(feature_RF: Floats, gain_R: Floats, penalty: float) -> Floats:
    """Return the weights [F] of a ridge regression of the gain on standardised features, for the plain features."""
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
    """Return the candidate with these thresholds, one for each gate."""
    gates = zip(candidate.gates, threshold_G, strict=True)
    return replace(candidate, gates=tuple(replace(gate, threshold=float(at)) for gate, at in gates))


def _paths(pair: tuple[int, int], config: SearchConfig) -> Iterator[tuple[int, ...]]:
    """Yield all paths that end with this pair of levels."""
    for size in range(config.levels - 1):
        for before in combinations(range(pair[0]), size):
            yield (*before, *pair)


def _prunings(pair: tuple[int, int], data: EvaluationData, config: SearchConfig) -> Iterator[Pruning]:
    yield Pruning()
    table = data.levels[pair[1]].latency
    whole = seconds_of(table, data.outputs.levels[pair[1]].length).mean()
    for outputs in data.outputs.pruned:
        if _fits(outputs, pair) and seconds_of(table, outputs.length).mean() < (1 - config.saving) * whole:
            yield outputs.pruning


def _fits(outputs: PrunedOutputs, pair: tuple[int, int]) -> bool:
    return (outputs.pruner, outputs.reader, outputs.pruning.rule) == (*pair, "mass")


def _last_gate(
    pair: tuple[int, int], pruning: Pruning, alone: Sequence[Step], data: EvaluationData, config: SearchConfig
) -> tuple[Gate, list[Step]]:
    """Return the gate before the last level, with the ensemble's weight, and the steps of the last two levels.

    The weight is fitted on the texts of which the level before is least sure.
    """
    pruner, reader = pair
    before, after = alone[pruner], alone[reader]
    if pruning.rule != "none":
        before = replace(before, seconds_R=seconds_of(table_of(data.levels[pruner], pruning), before.length_R))
        after = level_step(data, reader, pruner, pruning)
    if data.regression:
        return Gate("gain", pruning=pruning), [before, after]
    sure_R = confidence(before.answer_RK, False)
    unsure_R = sure_R <= np.quantile(sure_R, config.unsure)
    label_R = data.outputs.labels[unsure_R].astype(np.int64)
    gate = Gate("gain", pruning=pruning, weight=weight(before.answer_RK[unsure_R], after.answer_RK[unsure_R], label_R))
    answer_RK = combine(gate, before.answer_RK, after.answer_RK)
    return gate, [before, replace(after, answer_RK=answer_RK, correct_R=data.correct(answer_RK))]


def _proposal(
    candidate: Candidate,
    steps: Sequence[Step],
    feature_GRF: Sequence[Floats],
    learnt: bool,
    large: Step,
    config: SearchConfig,
) -> Proposal:
    gains = [steps[-1].correct_R.astype(np.float64) - step.correct_R for step in steps[:-1]]
    models = [_predicted_gain(*pair, learnt, config) for pair in zip(feature_GRF, gains, strict=True)]
    gates = zip(candidate.gates, models, strict=True)
    candidate = replace(candidate, gates=tuple(replace(gate, weights=weights) for gate, (weights, _) in gates))
    score_GR = [score_R for _, score_R in models]
    return Proposal(candidate, run_trial(steps, score_GR, _order(steps, score_GR, config), large.correct_R))


def _predicted_gain(
    feature_RF: Floats, gain_R: Floats, learnt: bool, config: SearchConfig
) -> tuple[tuple[float, ...], Floats]:
    """Return the weights that predict the gain up to the path's end, and out-of-fold predictions [R]."""
    if not learnt:
        return DOUBT_WEIGHTS, feature_RF @ np.asarray(DOUBT_WEIGHTS)
    fold_R = np.arange(len(gain_R)) % config.folds
    score_R = np.empty(len(gain_R))
    for fold in range(config.folds):
        out = fold_R == fold
        score_R[out] = feature_RF[out] @ fit_gain(feature_RF[~out], gain_R[~out], config.penalty)
    return tuple(float(w) for w in fit_gain(feature_RF, gain_R, config.penalty)), score_R


def _order(steps: Sequence[Step], score_GR: Sequence[Floats], config: SearchConfig) -> Floats:
    """Return thresholds from the safest, where every text goes on, to the cheapest.

    They are quantiles up to the most accurate point, then the frontier.
    """
    points = frontier.points(
        [step.correct_R.astype(np.float64) for step in steps], [step.seconds_R for step in steps], score_GR
    )
    best = frontier.frontier(points)
    if len(best) > config.points:
        best = best.chosen(np.unique(np.linspace(0, len(best) - 1, config.points).round().astype(int)))
    shares = [float((score <= at).mean()) for score, at in zip(score_GR, best.threshold_PG[0], strict=True)]
    safer = [
        [_quantile(s, q * share) for s, share in zip(score_GR, shares, strict=True)] for q in np.arange(0, 1, 1 / 16)
    ]
    return np.concatenate([safer, best.threshold_PG])


def _quantile(score_R: Floats, share: float) -> float:
    return ALWAYS if share == 0 else float(np.quantile(score_R, share))


def _promising(
    known: Iterable[Proposal], promise: Promise, texts: int, least: float, config: SearchConfig
) -> list[Proposal]:
    """Return the cheapest proposals of different paths that would pass with `texts` texts, the cheapest first.

    `least`: the seconds of the large model, below which a proposal must stay.
    """
    costs = [(_cheapest(proposal.trial, promise, texts), proposal) for proposal in known]
    able = [
        (seconds * handicapped(proposal.candidate, config), proposal) for seconds, proposal in costs if seconds < least
    ]
    of_path: dict[tuple[int, ...], Proposal] = {}
    for _, proposal in sorted(able, key=lambda pair: pair[0]):
        of_path.setdefault(proposal.candidate.levels, proposal)
    return list(of_path.values())[: config.looks]


def handicapped(candidate: Candidate, config: SearchConfig) -> float:
    """Return the factor on a proposal's seconds in comparisons: what can be fitted better fits noise, too."""
    gates = candidate.gates
    more = any(gate.weights != DOUBT_WEIGHTS for gate in gates) + any(gate.pruning.rule != "none" for gate in gates)
    return 1 + config.handicap * more


def _cheapest(trial: Trial, promise: Promise, texts: int) -> float:
    """Return the seconds of the cheapest point that would pass; infinity if none does."""
    return float(trial.seconds_P.min(where=promise.holds(trial, texts), initial=np.inf))


def _certified(
    proposal: Proposal, proving: EvaluationData, large: int, promise: Promise
) -> tuple[float, Candidate | None]:
    """Return the cheapest seconds and candidate before the first thresholds that fail; None if they save nothing."""
    standard = evaluate(Candidate("", (large,), (), 0, 0, 0, ()), proving)
    trial = run_trial(*_steps_and_scores(proposal.candidate, proving), proposal.trial.threshold_PG, standard.correct_R)
    holds_P = promise.holds(trial)
    passed = last_passing(len(holds_P), lambda number: float(holds_P[number]), 1.0)
    if passed is None:
        return standard.seconds, None
    best = int(trial.seconds_P[: passed + 1].argmin())
    if trial.seconds_P[best] >= standard.seconds:
        return standard.seconds, None
    return float(trial.seconds_P[best]), with_thresholds(proposal.candidate, trial.threshold_PG[best])


def _steps_and_scores(candidate: Candidate, data: EvaluationData) -> tuple[list[Step], list[Floats]]:
    """Return the steps over all texts, and the predicted gains [R] after each step but the last."""
    steps = walk(candidate, data)
    gates = zip(steps, candidate.gates, strict=False)
    return steps, [features(step.answer_RK, data.regression) @ np.asarray(gate.weights) for step, gate in gates]
