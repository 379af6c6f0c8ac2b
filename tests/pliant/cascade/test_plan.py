"""Plans keep their promise, whatever labels are known, and spend nothing on a level that does not help."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pliant.cascade.artifact import Candidate
from pliant.cascade.evaluate import EvaluationData, evaluate, level_step, subset, walk
from pliant.cascade.plan import Measured, PlanConfig, make, purchase, split_rows, tolerance_of
from pliant.cascade.route import same
from pliant.cascade.tabi import TabiConfig
from pliant.errors import InputError
from tests.fixtures.cascade.scenarios import MEAN, classification, regression, tables

QUICK = PlanConfig(drop=0.04, horizon=400, further=(), tabi=TabiConfig(slopes=(20.0,)))
WORLDS = 100


def plan(outputs, config=QUICK):
    return make(outputs, measured(outputs), config, False, "cpu")


def measured(outputs):
    return [Measured(table) for table in tables(len(outputs.levels))]


def default(outputs, config=QUICK):
    return plan(outputs, config).candidates[0]


def parted(outputs, count):
    return subset(outputs, np.arange(count)), subset(outputs, np.arange(count, len(outputs.labels)))


def missed(planning, further, config):
    """Return whether the default misses what it promises on further texts, and its seconds over the large model's."""
    cascade = plan(planning, config)
    ground = EvaluationData(further, cascade.levels, cascade.tolerance)
    large = Candidate("", (len(cascade.levels) - 1,), (), 0, 0, 0, ())
    reference, served = evaluate(large, ground), evaluate(cascade.candidates[0], ground)
    if cascade.promise == "agree":
        steps = walk(cascade.candidates[0], ground)
        given_RK = np.stack([steps[n - 1].answer_RK[row] for row, n in enumerate(served.steps_R)])
        apart = 1 - same(given_RK, level_step(ground, 1).answer_RK, ground.regression).mean()
        return apart > config.drop + 1e-12, served.seconds / reference.seconds
    standard = config.target or reference.accuracy - config.drop
    return served.accuracy < standard - 1e-12, served.seconds / reference.seconds


KINDS = {
    "classes": (lambda seed: classification(seed, 1000, 3), {"drop": 0.04}),
    "values": (lambda seed: regression(seed, 1000, (0.33, 0.3)), {"drop": 0.1}),
    "no label": (lambda seed: classification(seed, 1000, 3, (2.5, 3.0), 0.1), {"drop": 0.08}),
    "some labels": (lambda seed: classification(seed, 1000, 3, (2.5, 3.0), 0.1), {"drop": 0.06}),
    "accuracy": (lambda seed: classification(seed, 1000, 3), {"target": 0.7}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_promise_is_missed_in_at_most_the_declared_share_of_worlds(kind):
    made, settings = KINDS[kind]
    results = []
    for seed in range(WORLDS):
        planning, further = parted(made(seed), 600)
        if kind in ("no label", "some labels"):
            known = np.random.default_rng(seed).random(600) < (kind == "some labels") / 2
            planning = replace(planning, labels=np.where(known, planning.labels, np.nan))
        results.append(missed(planning, further, replace(QUICK, seed=seed, **settings)))
    misses, seconds = np.array(results).T
    assert misses.mean() <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / len(misses))
    assert (seconds <= 1.0 + 1e-9).mean() > 0.95  # further texts may be longer
    assert seconds.mean() < 0.95  # so it is a cascade that keeps the promise


def test_without_labels_no_accuracy_is_promised_and_nothing_that_needs_them_is_a_candidate():
    outputs = classification(0, 1000, 3, (2.5, 3.0), 0.1)
    cascade = plan(replace(outputs, labels=np.full(1000, np.nan)), replace(QUICK, drop=0.08))
    default, alone = cascade.candidates
    assert (cascade.promise, cascade.amount) == ("agree", 0.08)
    assert (default.promised, default.labels) == (0.0, 0) and 0.92 <= default.agreement < 1
    assert (alone.name, alone.levels, alone.agreement) == ("only level 1", (1,), 1.0)
    assert cascade.levels[1].temperature == 1.0 != cascade.levels[0].temperature, "its own answers say nothing of it"
    assert default.accuracy == pytest.approx(cascade.target, abs=0.08) and cascade.levels[1].accuracy == 1.0
    with pytest.raises(InputError, match="labels is missing, but must be known for a regression"):
        plan(replace(regression(4, 800), labels=np.full(800, np.nan)))


def test_few_labels_are_looked_at_and_no_more_than_allowed():
    outputs = classification(1, 3000, 3, (2.5, 3.0), 0.1)
    some, few = (default(outputs, replace(QUICK, drop=0.02, labels=labels)) for labels in (300, 20))
    assert 0 < some.labels <= 300 < 1800
    assert few.labels <= 20 and few.seconds >= some.seconds


@pytest.mark.parametrize("seed", range(5))
def test_a_useless_small_model_is_left_out(seed):
    assert default(classification(seed, 600, skills=(-9.0, 3.0), noise=3.0)).levels == (1,)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("classes", [2, 150])
def test_a_small_model_that_says_the_same_answers_all(seed, classes):
    outputs = classification(seed, 1200, classes)
    alike = replace(outputs, levels=(outputs.levels[1], outputs.levels[1]))
    assert default(alike).shares == (1.0, 0.0)


@pytest.mark.parametrize(
    "outputs",
    [
        classification(1, 800, 2),
        classification(2, 800, 150, (2.0, 3.5, 5.0)),
        classification(3, 800, 5, (1.0, 2.0, 3.0), pruned=[(0, 2, MEAN), (1, 2, MEAN)]),
        regression(4, 800),
    ],
    ids=["2 classes", "150 classes", "pruned words", "values"],
)
def test_a_cascade_is_complete_and_its_default_costs_no_more_than_the_large_model(outputs):
    cascade = plan(outputs, replace(QUICK, further=(0.0, 0.1)))
    first, *others = cascade.candidates
    by_name = {candidate.name: candidate for candidate in cascade.candidates}
    large = by_name[f"only level {len(cascade.levels) - 1}"]
    assert first.name == "default"
    assert first.seconds <= large.seconds
    assert {"single", "voting", *(f"only {level.name}" for level in cascade.levels)} <= set(by_name)
    assert len(by_name) == len(cascade.candidates)
    assert [candidate.seconds for candidate in others] == sorted(candidate.seconds for candidate in others)
    assert all(
        0 < candidate.promised < candidate.accuracy <= 1 and candidate.shares[0] == 1.0
        for candidate in cascade.candidates
    )
    assert cascade.target == pytest.approx(large.accuracy - 0.04)
    assert (cascade.tolerance > 0) == (not outputs.classes)


def test_the_last_level_is_the_standard_even_where_a_smaller_one_is_luckier_on_the_tuning_texts():
    outputs = classification(0, 500, skills=(0.5, 3.0))
    tuning, _ = split_rows(500, QUICK)
    small, large = (level.logits.copy() for level in outputs.levels)
    small[tuning], large[tuning] = large[tuning].copy(), small[tuning].copy()  # by luck
    first, second = outputs.levels
    lucky = replace(outputs, levels=(replace(first, logits=small), replace(second, logits=large)))
    cascade = plan(lucky)
    assert cascade.levels[0].accuracy < cascade.levels[1].accuracy, "the texts that promises are tested on know better"
    assert cascade.target == cascade.levels[1].accuracy - QUICK.drop
    assert cascade.candidates[0].levels == (1,), "nothing cheaper can be shown to be nearly as good"


@pytest.mark.parametrize(("errors", "best"), [((5.0, 0.5), 1), ((0.5, 5.0), 0)])
def test_a_regression_s_tolerance_is_the_best_level_s_error(errors, best):
    """With the tolerance of the last level, a large model that learnt nothing made all answers correct."""
    outputs = regression(0, 300, errors)
    error_R = outputs.levels[best].logits[:, 0] - outputs.labels
    assert tolerance_of(outputs) == pytest.approx(np.sqrt((error_R**2).mean()))


def test_an_accuracy_is_proven_on_a_random_sample_up_to_the_first_text_without_a_label():
    outputs, config = classification(0, 2000, 3), replace(QUICK, target=0.6)
    _, proving = split_rows(2000, config)
    labels = np.full(2000, np.nan)
    assert plan(replace(outputs, labels=labels), config).candidates[0].levels == (1,)
    wanted = purchase(
        replace(outputs, labels=labels), measured(outputs), config, plan(replace(outputs, labels=labels), config)
    )
    assert wanted.rows.tolist() == proving[: config.labels].tolist() and "accuracy of 0.6" in wanted.sentence
    labels[wanted.rows] = outputs.labels[wanted.rows]
    labels[proving[-200:]] = 0  # behind the first unknown one, wherever they come from: not used
    cascade = plan(replace(outputs, labels=labels), config)
    assert cascade.promise == "right" and cascade.candidates[0].labels == config.labels
    assert len(cascade.candidates[0].levels) == 2 and cascade.candidates[0].accuracy >= 0.6


def test_the_labels_that_are_wanted_buy_seconds_and_are_no_more_than_allowed():
    outputs = classification(1, 4000, 3, (2.5, 3.0), 0.1)
    config = replace(QUICK, drop=0.03)
    unknown = replace(outputs, labels=np.full(4000, np.nan))
    before = plan(unknown, config)
    wanted = purchase(unknown, measured(outputs), config, before)
    assert 0 < len(wanted.rows) <= config.labels and "labels of" in wanted.sentence
    labels = unknown.labels.copy()
    labels[wanted.rows] = outputs.labels[wanted.rows]
    bought = plan(replace(outputs, labels=labels), config)
    whole = plan(outputs, config)
    assert bought.promise == "drop" and bought.candidates[0].seconds < before.candidates[0].seconds
    assert bought.candidates[0].seconds <= 1.15 * whole.candidates[0].seconds, "as good as labelling everything"
    assert not len(purchase(outputs, measured(outputs), config, whole).rows)


def test_a_label_that_nobody_gave_counts_as_lost():
    """With none given, at most so much is lost where at most so many answers differ."""
    outputs = classification(2, 2000, 3, (2.5, 3.0), 0.1)
    unknown, config = replace(outputs, labels=np.full(2000, np.nan)), replace(QUICK, drop=0.06)
    _, proving = split_rows(2000, config)
    elsewhere = unknown.labels.copy()
    agree = default(unknown, config)
    elsewhere[proving[:3]] = outputs.labels[proving[:3]]
    few = default(replace(outputs, labels=elsewhere), config)
    assert few.gates[0].threshold == pytest.approx(agree.gates[0].threshold, rel=0.3)
    assert few.seconds == pytest.approx(agree.seconds, rel=0.1)
