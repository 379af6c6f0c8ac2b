"""Proving all thresholds together equals candidates one by one, and labels are looked at only where a promise needs them."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pliant.cascade.artifact import BAG, EXIT, Candidate
from pliant.cascade.evaluate import EvaluationData, evaluate, level_step, walk
from pliant.cascade.route import DOUBT_WEIGHTS, features, overturned, same
from pliant.cascade.search import Promise, SearchConfig, cheapest, fit_router, propose, prove
from tests.fixtures.cascade.scenarios import classification, lower_bound, profiles, regression

CONFIG = SearchConfig(points=6)
LARGE = 2


def ground(seed, texts=150, skills=(0.5, 1.5, 3.0)):
    return EvaluationData(classification(seed, texts, 3, skills), profiles(len(skills)))


def values(seed, texts=150):
    return EvaluationData(regression(seed, texts, (0.8, 0.5, 0.2)), profiles(3, regression=True), 0.4)


def unlabelled(data, rows=slice(None)):
    labels = data.outputs.labels.copy()
    labels[rows] = np.nan
    return replace(data, outputs=replace(data.outputs, labels=labels))


def with_thresholds(candidate, threshold_G):
    gates = zip(candidate.gates, threshold_G, strict=True)
    return replace(candidate, gates=tuple(replace(gate, threshold=float(at)) for gate, at in gates))


def plainly_answered(candidate, data):
    """Return text by text whether the answer is the large model's, whether it is right, and its seconds."""
    steps, large = walk(candidate, data), level_step(data, LARGE)
    rows = []
    for row in range(len(data.outputs.labels)):
        last, seconds = 0, steps[0].seconds_R[row]
        while not np.isnan(steps[last].gain_R[row]):
            last += 1
            seconds += steps[last].seconds_R[row]
        given_1K, large_1K = steps[last].answer_RK[row : row + 1], large.answer_RK[row : row + 1]
        as_large = bool(same(given_1K, large_1K, data.regression, data.tolerance)[0])
        rows.append((as_large, bool(steps[last].correct_R[row]), bool(large.correct_R[row]), seconds))
    return rows


def plainly_proven(proposal, data, promise):
    """Prove candidate by candidate, text by text."""
    large, looked, passed = level_step(data, LARGE).seconds_R.mean(), set(), {}
    for threshold_G in proposal.threshold_PG:
        candidate = with_thresholds(proposal.candidate, threshold_G)
        rows = plainly_answered(candidate, data)
        wanted = {
            row
            for row, (as_large, *_) in enumerate(rows)
            if promise.kind == "right" or (promise.kind == "drop" and not as_large)
        }
        if promise.kind == "drop" and len(looked | wanted) > promise.labels:
            break
        looked |= wanted
        differences = {
            "agree": [as_large - 1.0 for as_large, *_ in rows],
            "drop": [0.0 if as_large else float(right) - large_right for as_large, right, large_right, _ in rows],
            "right": [right - promise.amount for _, right, _, _ in rows],
        }[promise.kind]
        least = 0.0 if promise.kind == "right" else -promise.amount
        if lower_bound(np.array(differences), promise.confidence, promise.horizon) < least:
            break
        seconds = float(np.mean([seconds for *_, seconds in rows]))
        if seconds < large:
            passed.setdefault(seconds, candidate)
    return (passed[min(passed)], len(looked)) if passed else None


@settings(max_examples=12, deadline=None)
@given(
    st.integers(0, 1000),
    st.sampled_from([("agree", 0.2), ("drop", 0.1), ("drop", 0.02), ("right", 0.7)]),
    st.booleans(),
    st.sampled_from([60, 1000]),
)
def test_the_fast_proof_is_the_plain_one(seed, kind, regressive, labels):
    make, promise = values if regressive else ground, Promise(*kind, 0.9, 300, labels)
    tuning, proving = make(seed), make(seed + 5000, 300)
    for proposal in propose(tuning, CONFIG):
        proven, plain = prove(proposal, proving, promise), plainly_proven(proposal, proving, promise)
        assert (proven is None) == (plain is None)
        if proven is not None:
            assert evaluate(proven.candidate, proving).seconds == pytest.approx(evaluate(plain[0], proving).seconds)
            assert proven.labels == plain[1]


@pytest.mark.parametrize("make", [ground, values])
def test_a_router_is_logistic_regression_on_whether_the_large_model_disagrees(make):
    data = make(3, 400)
    small, middle, large = (level_step(data, level) for level in range(3))
    gate, score_R = fit_router([small, middle], large, data, SearchConfig(strength=2.0))
    answers = [small.answer_RK, middle.answer_RK]
    apart_R = ~same(middle.answer_RK, large.answer_RK, data.regression, data.tolerance)
    feature_RF = features(answers, middle.length_R, gate.rates, data.regression, data.tolerance)
    plain = make_pipeline(StandardScaler(), LogisticRegression(C=2.0, max_iter=500))
    if data.regression:  # of classes the rate is that of other folds where it is learnt
        plain.fit(feature_RF[:, 1:], apart_R)
        assert overturned(gate, feature_RF) == pytest.approx(plain.predict_proba(feature_RF[:, 1:])[:, 1], abs=1e-3)
    for scores in (score_R, overturned(gate, feature_RF)):
        assert scores[apart_R].mean() > scores[~apart_R].mean() + 0.05
    assert len(gate.rates) == len(data.outputs.classes)


def test_where_hardly_an_answer_is_overturned_doubt_decides():
    data = ground(0)
    large = level_step(data, LARGE)
    gate, score_R = fit_router([large], large, data)
    assert gate.weights == DOUBT_WEIGHTS
    doubt_R = 1 - large.answer_RK.max(axis=1)
    assert np.array_equal(np.argsort(score_R, kind="stable"), np.argsort(np.maximum(doubt_R, 1e-6), kind="stable"))


def test_every_path_to_the_large_model_is_tried_and_ordered_by_agreement():
    data = ground(1)
    proposals = propose(data, CONFIG)
    assert {proposal.candidate.levels for proposal in proposals} == {
        (*early, LARGE) for size in (1, 2) for early in combinations(range(LARGE), size)
    }
    for proposal in proposals:
        assert 1 < len(proposal.threshold_PG) <= 6
        assert 0 <= proposal.apart_P[0] < 1e-12, "the safest asks the large model wherever a level differs from it"
        assert (np.diff(proposal.apart_P) > 0).all() and (np.diff(proposal.seconds_P) < 0).all()


def test_a_bag_and_a_shallower_exit_come_first_also_where_they_are_slower():
    """The service asks the bag before any device, and no exit goes on from a deeper one."""
    data = ground(7)
    bag, exit, large = data.levels
    levels = replace(bag, kind=BAG, latency=exit.latency), replace(exit, kind=EXIT, latency=bag.latency), large
    paths = {proposal.candidate.levels for proposal in propose(replace(data, levels=levels), CONFIG)}
    assert paths == {(0, LARGE), (1, LARGE), (0, 1, LARGE)}


def test_the_proposal_with_the_least_seconds_of_those_that_may_pass_is_proven():
    proposals = propose(ground(2, 2000), SearchConfig())
    best = cheapest(proposals, Promise("drop", 0.1, 0.95, None, 300), 0.9, 2000)
    assert best is not None and best.seconds_P.min() <= min(
        proposal.seconds_P[proposal.apart_P <= 0.1].min() for proposal in proposals
    )
    assert cheapest(proposals, Promise("drop", 0.0, 0.95, None, 300), 0.9, 2000) is None
    assert cheapest([], Promise("drop", 0.1, 0.95, None, 300), 0.9, 2000) is None


def test_agreement_needs_no_label_and_a_drop_those_of_differing_answers_alone():
    proposal = propose(ground(4, 600), SearchConfig())[-1]
    proving = ground(5005, 1500)
    agree, drop = (Promise(kind, 0.15, 0.95, None, 1500) for kind in ("agree", "drop"))
    blind, seeing = prove(proposal, unlabelled(proving), agree), prove(proposal, proving, drop)
    assert blind is not None and blind.labels == 0 and 0.85 <= blind.agreement < 1
    assert seeing is not None and 0 < seeing.labels < 600
    tried = [plainly_answered(with_thresholds(proposal.candidate, at), proving) for at in proposal.threshold_PG]
    never_R = np.array([[as_large for as_large, *_ in rows] for rows in tried]).all(axis=0)
    assert never_R.any()
    assert prove(proposal, unlabelled(proving, np.flatnonzero(never_R)), drop) == seeing
    assert prove(proposal, unlabelled(proving), drop) == blind, "what nobody labelled counts as lost"


def test_what_saves_no_time_is_not_proven():
    data = ground(6)
    slow = replace(data, levels=(replace(data.levels[0], latency=data.levels[2].latency), *data.levels[1:]))
    proposal = next(proposal for proposal in propose(slow, CONFIG) if proposal.candidate.levels == (0, LARGE))
    always = replace(proposal, threshold_PG=np.array([[-1.0]]))
    assert prove(always, slow, Promise("drop", 0.5, 0.9, None, 300)) is None
    assert isinstance(proposal.candidate, Candidate)
