"""Evaluating all thresholds together equals candidates one by one, and only candidates that pass the test are taken."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.cascade.artifact import Candidate, Pruning
from pliant.cascade.evaluate import EvaluationData, evaluate, walk
from pliant.cascade.route import features
from pliant.cascade.search import (
    DOUBT_WEIGHTS,
    Promise,
    SearchConfig,
    Trial,
    fit_gain,
    plan_candidate,
    propose,
    with_thresholds,
)
from tests.fixtures.cascade.scenarios import MASS, classification, lower_bound, profiles, regression

SLIGHT = Pruning("mass", 0.99)  # saves nothing
CONFIG = SearchConfig(points=6)
LARGE = 2


def ground(seed, texts=150, skills=(0.5, 1.5, 3.0)):
    return EvaluationData(
        classification(seed, texts, 3, skills, pruned=[(0, 2, MASS), (1, 2, MASS)]), profiles(len(skills))
    )


def values(seed):
    return EvaluationData(regression(seed, 150, (0.8, 0.5, 0.2)), profiles(3, regression=True), 0.4)


def alone(level):
    return Candidate("", (level,), (), 0, 0, 0, ())


def plain_trial(candidate, threshold_PG, texts, large):
    """Evaluate one candidate after the other."""
    evaluations = [evaluate(with_thresholds(candidate, threshold_G), texts) for threshold_G in threshold_PG]
    return [
        (evaluation.correct_R.astype(float) - evaluate(alone(large), texts).correct_R, evaluation.seconds)
        for evaluation in evaluations
    ]


def by_doubt(texts, config=CONFIG):
    """Return the proposals whose gains need no model, and so are the same on tuning texts and others."""
    return [
        proposal
        for proposal in propose(texts, LARGE, config)
        if all(gate.weights == DOUBT_WEIGHTS for gate in proposal.candidate.gates)
    ]


def plainly_planned(tuning, proving, promise, config):
    """Plan as `plan_candidate` does, but candidate by candidate, with bounds from every text's difference."""
    texts, standard = len(proving.outputs.labels), evaluate(alone(LARGE), tuning).seconds
    cheapest = []
    for proposal in by_doubt(tuning, config):
        trials = plain_trial(proposal.candidate, proposal.trial.threshold_PG, tuning, LARGE)
        passing = [s for d, s in trials if lower_bound(np.repeat(d, 3), 0.95, promise.horizon) >= -promise.drop]
        if passing and min(passing) < standard:
            handicap = 1.05 if any(gate.pruning.rule != "none" for gate in proposal.candidate.gates) else 1.0
            cheapest.append((min(passing) * handicap, proposal))
    chosen = []
    for _, proposal in sorted(cheapest, key=lambda pair: pair[0]):
        if proposal.candidate.levels not in [pair.candidate.levels for pair in chosen]:
            chosen.append(proposal)
    proved = [(evaluate(alone(LARGE), proving).seconds, alone(LARGE))]
    assert texts == 3 * len(tuning.outputs.labels)
    for proposal in chosen[: config.looks]:
        for threshold_G in proposal.trial.threshold_PG:
            candidate = with_thresholds(proposal.candidate, threshold_G)
            [(difference_R, seconds)] = plain_trial(candidate, [threshold_G], proving, LARGE)
            if lower_bound(difference_R, 1 - 0.05 / len(chosen[: config.looks]), promise.horizon) < -promise.drop:
                break
            proved.append((seconds, candidate))
    return min(proved, key=lambda pair: pair[0])[1]


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([1, 2, 3]), st.sampled_from([0.02, 0.05, 0.15]))
def test_the_fast_plan_is_the_plain_one(seed, looks, drop):
    config, promise = replace(CONFIG, looks=looks), Promise(drop, None, 0.95, 300)
    tuning, proving = ground(seed), ground(seed + 5000, 450)
    fast = plan_candidate(tuning, proving, LARGE, promise, config, by_doubt(tuning, config))
    assert fast == plainly_planned(tuning, proving, promise, config)


def test_every_path_is_tried_with_every_pruning_that_saves():
    outputs = classification(0, 100, 3, (0.5, 1.5, 3.0), pruned=[(1, 2, MASS), (1, 2, SLIGHT)])
    slight = replace(outputs.pruned[1], length=outputs.levels[2].length)
    texts = EvaluationData(replace(outputs, pruned=(outputs.pruned[0], slight)), profiles(3))
    candidates = [proposal.candidate for proposal in propose(texts, LARGE, CONFIG)]
    paths = [path for size in (1, 2, 3) for path in combinations(range(3), size)]
    assert {candidate.levels for candidate in candidates} == set(paths)
    assert {
        candidate.levels for candidate in candidates if candidate.gates and candidate.gates[-1].pruning == MASS
    } == {(1, 2), (0, 1, 2)}
    assert not any(candidate.gates and candidate.gates[-1].pruning == SLIGHT for candidate in candidates)
    assert {
        candidate.levels
        for candidate in (proposal.candidate for proposal in propose(texts, LARGE, replace(CONFIG, levels=2)))
    } == set(paths[:-1])


def test_a_promise_is_judged_by_the_bound_of_the_differences():
    rng = np.random.default_rng(0)
    held = []
    for _ in range(300):
        correct_R, large_R = rng.random(200) < rng.uniform(0.85, 1), rng.random(200) < 0.9
        trial = trial_of(correct_R, large_R)
        for promise in (Promise(0.05, None, 0.9, 500), Promise(0.0, 0.9, 0.9, 500)):
            difference_R = correct_R - (large_R.astype(float) if promise.target is None else promise.target)
            for texts, times in ((None, 1), (600, 3)):
                bound = lower_bound(np.repeat(difference_R, times), 0.9, 500)
                holds = bool(promise.holds(trial, texts)[0])
                assert holds == (bound >= -promise.drop)
                held.append(holds)
    assert 50 < sum(held) < len(held) - 50


def trial_of(correct_R, large_R):
    apart = (correct_R != large_R).mean()
    return Trial(np.zeros((1, 0)), *(np.array([x]) for x in (correct_R.mean(), apart, 1.0)), large_R.mean(), 200)


def test_the_gain_s_model_is_ridge_regression_on_standardised_features():
    rng = np.random.default_rng(0)
    rows = np.column_stack([np.ones(50), rng.normal(3, 2, 50), rng.normal(-1, 0.1, 50), np.full(50, 4.0)])
    gain_R = rng.choice([-1.0, 0.0, 1.0], 50)
    scaled = (rows[:, 1:3] - rows[:, 1:3].mean(0)) / rows[:, 1:3].std(0)
    added = np.vstack([scaled, np.sqrt(7.0) * np.eye(2)])  # ridge regression as added rows whose target is zero
    weights = np.linalg.lstsq(added, np.append(gain_R - gain_R.mean(), [0, 0]), rcond=None)[0]
    assert rows @ fit_gain(rows, gain_R, 7.0) == pytest.approx(gain_R.mean() + scaled @ weights)


def learnt(texts, config, levels):
    return next(
        proposal
        for proposal in propose(texts, LARGE, config)
        if proposal.candidate.levels == levels and proposal.candidate.gates[0].weights != DOUBT_WEIGHTS
    )


@pytest.mark.parametrize("regressive", [False, True])
def test_learnt_gains_are_judged_on_texts_that_they_were_not_fitted_on(regressive):
    texts, config = values(3) if regressive else ground(3), SearchConfig(points=6, folds=4, penalty=3.0)
    proposal = learnt(texts, config, (0, 2))
    first, last = walk(with_thresholds(proposal.candidate, np.zeros(1)), texts)
    rows, gain_R = features(first.answer_RK, regressive), last.correct_R.astype(float) - first.correct_R
    assert proposal.candidate.gates[0].weights == pytest.approx(tuple(fit_gain(rows, gain_R, 3.0)))
    score_R = np.empty(len(gain_R))
    for start in range(4):
        fitted = np.ones(len(gain_R), bool)
        fitted[start::4] = False
        score_R[start::4] = rows[start::4] @ fit_gain(rows[fitted], gain_R[fitted], 3.0)
    for threshold, accuracy, seconds in zip(
        proposal.trial.threshold_PG[:, 0], proposal.trial.accuracy_P, proposal.trial.seconds_P, strict=True
    ):
        going_R = score_R > threshold
        assert accuracy == pytest.approx(np.where(going_R, last.correct_R, first.correct_R).mean())
        assert seconds == pytest.approx((first.seconds_R + going_R * last.seconds_R).mean())
