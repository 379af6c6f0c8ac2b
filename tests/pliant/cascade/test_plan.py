"""Plans from outputs of known structure keep their promise, and spend nothing on a level that does not help."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pliant.cascade.artifact import Candidate
from pliant.cascade.calibrate import calibration_error, fit_spread, softmax
from pliant.cascade.certify import clopper_pearson
from pliant.cascade.evaluate import EvaluationData, evaluate, shuffled, subset
from pliant.cascade.plan import PlanConfig, calibrated, make, split_rows, tolerance_of
from pliant.cascade.tabi import TabiConfig
from pliant.errors import InputError
from tests.fixtures.cascade.scenarios import MASS, classification, regression, tables

QUICK = PlanConfig(drop=0.04, horizon=400, further=(), tabi=TabiConfig(slopes=(20.0,)))
WORLDS = 200


def plan(outputs, config=QUICK):
    levels = len(outputs.levels)
    return make(outputs, tables(levels), [None] * levels, config, False, "cpu")


def default(outputs, config=QUICK):
    return plan(outputs, config).candidates[0]


def parted(outputs, count):
    return subset(outputs, np.arange(count)), subset(outputs, np.arange(count, len(outputs.labels)))


def missed(planning, further, config):
    """Return whether the default misses the target on further texts, and its seconds over the large model's."""
    cascade = plan(planning, config)
    ground = EvaluationData(further, cascade.levels, cascade.tolerance)
    large = Candidate("", (len(cascade.levels) - 1,), (), 0, 0, 0, ())
    reference, served = evaluate(large, ground), evaluate(cascade.candidates[0], ground)
    return served.accuracy < reference.accuracy - config.drop - 1e-12, served.seconds / reference.seconds


@pytest.mark.parametrize("kind", ["classes", "values"])
def test_the_target_is_missed_in_at_most_the_declared_share_of_worlds(kind):
    results = []
    for seed in range(WORLDS):
        outputs = classification(seed, 1000, 3) if kind == "classes" else regression(seed, 1000, (0.33, 0.3))
        drop = 0.04 if kind == "classes" else 0.1
        results.append(missed(*parted(outputs, 600), replace(QUICK, seed=seed, drop=drop)))
    misses, seconds = np.array(results).T
    assert misses.mean() <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / len(misses))
    assert (seconds <= 1.0 + 1e-9).mean() > 0.95  # further texts may be longer
    assert seconds.mean() < 0.9  # so it is a cascade that keeps the promise


@pytest.mark.parametrize("seed", range(5))
def test_a_useless_small_model_is_left_out(seed):
    assert default(classification(seed, 600, skills=(-9.0, 3.0), noise=3.0)).levels == (1,)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("classes", [2, 150])
def test_a_small_model_that_is_as_good_answers_alone(seed, classes):
    outputs = classification(seed, 1200, classes)
    alike = replace(outputs, levels=(outputs.levels[1], outputs.levels[1]))
    assert default(alike).levels == (0,)


@pytest.mark.parametrize("seed", range(5))
def test_a_level_in_the_middle_that_never_helps_is_not_used(seed):
    chosen = default(classification(seed, 1500, skills=(2.0, -9.0, 3.0), noise=0.1))
    assert chosen.levels == (0, 2)


@pytest.mark.parametrize(
    "outputs",
    [
        classification(1, 800, 2),
        classification(2, 800, 150, (2.0, 3.5, 5.0)),
        classification(3, 800, 5, (1.0, 2.0, 3.0), pruned=[(0, 2, MASS), (1, 2, MASS)]),
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


def test_candidates_are_told_of_by_the_proving_texts():
    outputs = classification(0, 500)
    cascade = plan(outputs)
    _, second = split_rows(500, QUICK)
    proving = EvaluationData(subset(outputs, second), cascade.levels)
    for candidate in cascade.candidates:
        evaluation = evaluate(candidate, proving)
        assert (candidate.accuracy, candidate.seconds) == (evaluation.accuracy, evaluation.seconds)
        assert candidate.promised == clopper_pearson(evaluation.correct_R, 0.95)


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


def test_further_drops_are_planned_besides_and_none_twice():
    cascade = plan(classification(0, 1000, 3), replace(QUICK, further=(0.0, 0.04, 0.2)))
    defaults = [candidate for candidate in cascade.candidates if candidate.name.startswith("default")]
    assert "default 4%" not in [candidate.name for candidate in defaults]  # as it is the default
    assert len({(candidate.levels, candidate.gates) for candidate in defaults}) == len(defaults)
    assert "default 20%" in [candidate.name for candidate in defaults]


def test_every_text_is_in_one_part():
    first, second = split_rows(101, PlanConfig(tuned=0.4, seed=3))
    assert (len(first), len(second)) == (40, 61)
    assert sorted([*first, *second]) == list(range(101))
    assert [*first, *second] == shuffled(101, 3).tolist()
    assert set(split_rows(101, PlanConfig(tuned=0.4, seed=4))[0]) != set(first)


@pytest.mark.parametrize(("errors", "best"), [((5.0, 0.5), 1), ((0.5, 5.0), 0)])
def test_a_regression_s_tolerance_is_the_best_level_s_error(errors, best):
    """With the tolerance of the last level, a large model that learnt nothing made all answers correct."""
    outputs = regression(0, 300, errors)
    error_R = outputs.levels[best].logits[:, 0] - outputs.labels
    assert tolerance_of(outputs) == pytest.approx(np.sqrt((error_R**2).mean()))


def test_too_few_texts_are_refused():
    with pytest.raises(InputError, match="texts to plan with is 39, but must be at least 40"):
        plan(classification(0, 39))
    assert default(classification(0, 40)).levels


@pytest.mark.parametrize(
    "wrong",
    [
        {"confidence": 0.4},
        {"confidence": 1.0},
        {"tuned": 0.0},
        {"tuned": 1.0},
        {"target": 0.0},
        {"target": 1.0},
        {"horizon": 0},
        {"drop": -0.1},
        {"further": (0.1, 1.0)},
    ],
)
def test_a_wrong_configuration_names_the_field(wrong):
    with pytest.raises(InputError, match=f"{next(iter(wrong))}"):
        PlanConfig(**wrong)


def test_levels_are_judged_on_the_proving_texts_before_and_after_their_calibration():
    outputs = classification(0, 300, 3)
    tuning, proving = parted(outputs, 120)
    for number, level in enumerate(calibrated(tuning, proving, 0.0, tables(2), [None] * 2)):
        logits, labels = proving.levels[number].logits, proving.labels.astype(int)
        assert (level.name, level.classifier) == (f"level {number}", f"level {number}")
        assert (level.latency, level.importance, level.spread) == (tables(2)[number], None, ())
        assert level.accuracy == (logits.argmax(1) == labels).mean()
        assert level.error_before == calibration_error(softmax(logits), labels)
        assert level.error == calibration_error(softmax(logits, level.temperature), labels)
    values = regression(0, 300)
    for level in calibrated(*parted(values, 120), 0.5, tables(2), tables(2)):
        assert level.temperature == 1.0 and len(level.spread) == 8
        assert level.error_before == level.error > 0
        assert level.importance == level.latency
    saved, labels = subset(values, np.arange(120)).levels[0], values.labels[:120]
    first, *_ = calibrated(*parted(values, 120), 0.5, tables(2), tables(2))
    assert first.spread == fit_spread(saved.logits[:, 0].astype(float), labels, saved.length)
    assert first.spread != fit_spread(saved.logits[:, 0].astype(float), labels, np.ones(120))
