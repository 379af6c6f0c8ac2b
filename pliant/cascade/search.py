"""Our own search: which levels answer before the large model, when a text goes on, and how far that is proven.

Only the promise needs labels. On tuning texts a logistic model learns for every level when the large model overturns its
answer, and the thresholds are ordered by how many answers it expects to be overturned. On proving texts they are tested in
that order, from the safest on, up to the first that fails (pliant/cascade/certify.py). "agree": on at most a share of the
texts the answers differ from the large model's, for which no label is needed. "drop": at most so much accuracy is lost
against the large model; labels are needed where the two differ, and are counted as they are looked at. "right": an accuracy
is reached, which needs the labels of all texts that it is proven on.

Answers do not depend on thresholds, so every level is read once and a path is evaluated at all its thresholds together.

Shape suffixes: R texts, K classes, F features, S steps, G gates, P points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from pliant.cascade import frontier
from pliant.cascade.artifact import Candidate, Gate
from pliant.cascade.certify import lower_bounds
from pliant.cascade.evaluate import EvaluationData, Step, level_step
from pliant.cascade.route import DOUBT_WEIGHTS, FEATURES, features, overturned, same

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

RATE = FEATURES.index("rate of the class")
FEWEST = 5  # overturned answers from which on more than doubt is learnt
PRIOR = 10.0  # texts that the mean rate counts as in the rate of a class
LOST = 0.5  # of the answers that differ, expected to be lost, before any label was seen


@dataclass(frozen=True, slots=True)
class SearchConfig:
    """What the search tries."""

    early: int = 2  # levels before the large one, at most
    folds: int = 5  # of the texts, to predict what is overturned
    strength: float = 1.0  # inverse of the logistic models' regularisation
    points: int = 200  # thresholds to test, at most


@dataclass(frozen=True, slots=True)
class Promise:
    """What is to hold, `kind` being agree, drop or right (see the module), at `confidence`.

    `amount`: the share of differing answers, the loss of accuracy, or the accuracy; `horizon`: of how many further texts,
    None: in the long run; `labels`: to look at for a drop, at most.
    """

    kind: str
    amount: float
    confidence: float
    horizon: int | None
    labels: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """A path with its routers, and thresholds [P, G] from the safest to the cheapest; figures of the tuning texts."""

    candidate: Candidate  # its gates lack thresholds
    threshold_PG: Floats
    apart_P: Floats  # share of answers that are expected not to be the large model's, by routers out of fold
    seconds_P: Floats


@dataclass(frozen=True, slots=True)
class Proven:
    """The cheapest candidate that passed; `agreement`: lower bound of the share of the large model's answers.

    `labels`: how many had to be looked at.
    """

    candidate: Candidate
    agreement: float
    labels: int


def propose(data: EvaluationData, config: SearchConfig = SearchConfig()) -> list[Proposal]:
    """Return every path of up to `early` levels before the large model, which is the last one."""
    large = len(data.levels) - 1
    alone = [level_step(data, level) for level in range(large + 1)]
    routers: dict[tuple[int, ...], tuple[Gate, Floats]] = {}
    proposals = []
    for count in range(1, config.early + 1):
        for early in combinations(
            range(large), count
        ):  # as they are listed: a bag, exits by depth, classifiers by size
            for place in range(1, count + 1):
                if early[:place] not in routers:
                    answered = [alone[level] for level in early[:place]]
                    routers[early[:place]] = fit_router(answered, alone[large], data, config)
            gates, score_GR = zip(*(routers[early[:place]] for place in range(1, count + 1)), strict=True)
            path = (*early, large)
            steps = [level_step(data, level, path[:place]) for place, level in enumerate(path)]
            proposals.append(_proposal(Candidate("", path, gates, 0, 0, 0, ()), steps, score_GR, config))
    return proposals


def fit_router(
    answered: Sequence[Step], large: Step, data: EvaluationData, config: SearchConfig = SearchConfig()
) -> tuple[Gate, Floats]:
    """Return the gate behind the last of these levels, without a threshold, and its probabilities [R] out of fold.

    Where fewer than 5 answers are overturned, or nearly all, the doubt decides.
    """
    from sklearn.linear_model import LogisticRegression

    answers = [step.answer_RK for step in answered]
    apart_R = ~same(answers[-1], large.answer_RK, data.regression, data.tolerance)
    length_R, count = answered[-1].length_R, len(apart_R)
    if not FEWEST <= apart_R.sum() <= count - FEWEST:
        gate = Gate("overturn", weights=DOUBT_WEIGHTS)
        return gate, overturned(gate, features(answers, length_R, (), data.regression, data.tolerance))
    chosen_R = np.zeros(count, dtype=np.int64) if data.regression else answers[-1].argmax(axis=1)
    classes = 0 if data.regression else answers[-1].shape[1]
    rates = _rates(chosen_R, apart_R, classes)
    feature_RF = features(answers, length_R, rates, data.regression, data.tolerance)
    fold_R = np.arange(count) % config.folds
    for fold in range(config.folds if classes else 0):
        out_R = fold_R == fold
        feature_RF[out_R, RATE] = np.asarray(_rates(chosen_R[~out_R], apart_R[~out_R], classes))[chosen_R[out_R]]

    def fit(rows: Bools) -> Gate:
        mean_F, deviation_F = feature_RF[rows].mean(axis=0), feature_RF[rows].std(axis=0) + 1e-9
        model = LogisticRegression(C=config.strength, max_iter=500)
        model.fit((feature_RF[rows] - mean_F) / deviation_F, apart_R[rows])
        weight_F = model.coef_[0] / deviation_F
        weight_F[0] = model.intercept_[0] - weight_F[1:] @ mean_F[1:]  # feature 0 is the constant one
        return Gate("overturn", weights=tuple(weight_F.tolist()), rates=rates)

    score_R = np.empty(count)
    for fold in range(config.folds):
        out_R = fold_R == fold
        learnable = 0 < apart_R[~out_R].sum() < (~out_R).sum()
        gate = fit(~out_R) if learnable else Gate("overturn", weights=DOUBT_WEIGHTS)
        score_R[out_R] = overturned(gate, feature_RF[out_R])
    return fit(np.ones(count, dtype=np.bool_)), score_R


def cheapest(proposals: Sequence[Proposal], promise: Promise, large: float, texts: int) -> Proposal | None:
    """Return the way that is expected to pass with the least seconds; None if none is.

    `large`: the large model's accuracy; `texts`: how many there are to prove it with.
    """
    lost, most = (1.0, promise.amount) if promise.kind == "agree" else (LOST, promise.amount)
    if promise.kind == "right":
        most = large - promise.amount

    def seconds(proposal: Proposal) -> float:
        bound_P = lower_bounds(-lost * proposal.apart_P, proposal.apart_P, texts, promise.confidence, promise.horizon)
        return float(proposal.seconds_P.min(where=bound_P >= -most, initial=np.inf))

    best = min(proposals, key=seconds, default=None)
    return None if best is None or seconds(best) == np.inf else best


def prove(proposal: Proposal, data: EvaluationData, promise: Promise) -> Proven | None:
    """Return the cheapest candidate before the first thresholds that fail on these texts; None if it saves nothing.

    Where the answers differ and no label is known, or more would be looked at than the promise allows, accuracy counts as
    lost: with no label at all, a drop is proven by the large model's answers alone.
    """
    points = points_of(proposal, data)
    known_R, looked_R, best = ~np.isnan(data.outputs.labels), np.zeros(len(data.outputs.labels), dtype=np.bool_), None
    for point, as_large_R in enumerate(points.as_large_PR):
        wanted_R = looked_R | (_wanted(promise, ~as_large_R) & known_R)
        if promise.kind != "drop" or wanted_R.sum() <= promise.labels:
            looked_R = wanted_R
        difference_R = _difference(promise, points, point, looked_R)
        if _bound(difference_R, np.square(difference_R), promise) < _least(promise):
            break
        if points.cheaper(point, best):
            best = point
    if best is None:
        return None
    gates = zip(proposal.candidate.gates, proposal.threshold_PG[best], strict=True)
    candidate = replace(proposal.candidate, gates=tuple(replace(gate, threshold=float(at)) for gate, at in gates))
    apart = float(1 - points.as_large_PR[best].mean())
    agreement = 1 + float(lower_bounds(-apart, apart, len(known_R), promise.confidence))
    return Proven(candidate, max(0.0, agreement), int(looked_R.sum()))


def wanted(proposal: Proposal, data: EvaluationData, promise: Promise) -> tuple[Bools, float]:
    """Return the texts [R] whose labels a drop still lacks, and the mean seconds of a request that they are expected to buy.

    Of the answers that differ where no label is known, half are expected to be lost.
    """
    points = points_of(proposal, data)
    known_R, looked_R, best = ~np.isnan(data.outputs.labels), np.zeros(len(data.outputs.labels), dtype=np.bool_), None
    lacking_R, seconds = np.zeros_like(looked_R), float(points.large.seconds_R.mean())
    for point, as_large_R in enumerate(points.as_large_PR):
        looked_R = looked_R | ~as_large_R
        if looked_R.sum() > promise.labels:
            break
        difference_R, unknown_R = _difference(promise, points, point, looked_R & known_R), ~as_large_R & ~known_R
        square_R = np.where(unknown_R, LOST, np.square(difference_R))
        if _bound(np.where(unknown_R, -LOST, difference_R), square_R, promise) < _least(promise):
            break
        if points.cheaper(point, best):
            best, lacking_R, seconds = point, looked_R & ~known_R, float(points.seconds_P[point])
    return lacking_R, seconds


@dataclass(frozen=True, slots=True)
class Points:
    """What a proposal does on some texts at each of its thresholds. `large`: what the large model alone does."""

    as_large_PR: Bools
    right_PR: Bools
    seconds_P: Floats
    large: Step

    def cheaper(self, point: int, than: int | None) -> bool:
        """Whether a point takes less than the large model alone, and than another point."""
        most = self.large.seconds_R.mean() if than is None else self.seconds_P[than]
        return bool(self.seconds_P[point] < most)


def points_of(proposal: Proposal, data: EvaluationData) -> Points:
    """Return what a proposal does on these texts. Raises as `level_step`."""
    path = proposal.candidate.levels
    large = level_step(data, path[-1])
    steps = [level_step(data, level, path[:place]) for place, level in enumerate(path)]
    answers, seconds = [step.answer_RK for step in steps], [step.seconds_R for step in steps]
    score_GR = [
        overturned(
            gate, features(answers[: place + 1], steps[place].length_R, gate.rates, data.regression, data.tolerance)
        )
        for place, gate in enumerate(proposal.candidate.gates)
    ]
    as_large_SR = [same(answer_RK, large.answer_RK, data.regression, data.tolerance) for answer_RK in answers]
    as_large_PR, seconds_P = frontier.applied(as_large_SR, seconds, score_GR, proposal.threshold_PG)
    right_PR, _ = frontier.applied([step.correct_R for step in steps], seconds, score_GR, proposal.threshold_PG)
    return Points(as_large_PR, right_PR, seconds_P, large)


def _bound(difference_R: Floats, square_R: Floats, promise: Promise) -> float:
    mean, square = float(difference_R.mean()), float(square_R.mean())
    return float(lower_bounds(mean, square, len(difference_R), promise.confidence, promise.horizon))


def _least(promise: Promise) -> float:
    return 0.0 if promise.kind == "right" else -promise.amount


def _wanted(promise: Promise, apart_R: Bools) -> Bools:
    """Return the texts [R] whose labels are needed: none, those where the answers differ, or all."""
    if promise.kind == "agree":
        return np.zeros_like(apart_R)
    return apart_R if promise.kind == "drop" else np.ones_like(apart_R)


def _difference(promise: Promise, points: Points, point: int, looked_R: Bools) -> Floats:
    """Return [R], what a text adds to the mean that is to be bounded. `looked_R`: whether its label may be used."""
    right_R, as_large_R = points.right_PR[point].astype(np.float64), points.as_large_PR[point]
    if promise.kind == "agree":
        return np.asarray(as_large_R, dtype=np.float64) - 1
    if promise.kind == "drop":
        return np.where(as_large_R, 0.0, np.where(looked_R, right_R - points.large.correct_R, -1.0))
    return np.asarray(right_R - promise.amount)


def _rates(chosen_R: NDArray[np.int64], apart_R: Bools, classes: int) -> tuple[float, ...]:
    """Return how often answers of each class are overturned, drawn towards the mean rate."""
    if not classes:
        return ()
    count_K, apart_K = np.bincount(chosen_R, minlength=classes), np.bincount(chosen_R, apart_R, minlength=classes)
    return tuple(((apart_K + PRIOR * apart_R.mean()) / (count_K + PRIOR)).tolist())


def _proposal(
    candidate: Candidate, steps: Sequence[Step], score_GR: Sequence[Floats], config: SearchConfig
) -> Proposal:
    """Return the path with the thresholds that no other beats in expected agreement and seconds.

    What the routers expect is less a matter of luck than what happened on these texts, above all where next to nothing did.
    """
    as_large_SR = [*(1 - score_R for score_R in score_GR), np.ones(len(score_GR[0]))]
    best = frontier.frontier(frontier.points(as_large_SR, [step.seconds_R for step in steps], score_GR))
    if len(best) > config.points:
        best = best.chosen(np.unique(np.linspace(0, len(best) - 1, config.points).round().astype(int)))
    return Proposal(candidate, best.threshold_PG, np.maximum(1 - best.accuracy_P, 0), best.seconds_P)
