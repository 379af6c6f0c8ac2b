"""The contest on made-up tasks: what it shows is what evaluate() says, and equal accuracy is where the means are equal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pliant.benchmarks.cascade.contest import (
    BOUGHT,
    DROP,
    FEWER,
    LABELS,
    RIGHT,
    SHARES,
    TABI,
    TABI_OURS,
    UNLABELLED,
    Contest,
    Round,
    Showing,
    halves,
    one_round,
    to_buy,
)
from pliant.benchmarks.cascade.material import Levels, Material
from pliant.cascade.evaluate import EvaluationData, evaluate, level_step, subset, walk
from pliant.cascade.plan import Measured, PlanConfig, make, split_rows
from tests.fixtures.cascade.scenarios import classification, tables

SHOWN = Showing(accuracy=0.9, seconds=0.2, agreement=0.95, labels=50, missed=False)


@pytest.fixture(scope="module")
def material() -> Material:
    """Ours, whose first level knows nearly as much as the large one, and the published cascade's own two levels."""
    ours, own = (classification(1, texts=3000, skills=skills) for skills in ((4.5, 5.0), (3.0, 5.0)))
    measured = tuple(map(Measured, tables(2)))
    return Material(Levels(ours, measured), Levels(own, measured), False, "cpu")


@pytest.fixture(scope="module")
def shown(material) -> Round:
    return one_round(material, 3)


def test_the_first_candidate_is_judged_on_the_half_that_nothing_was_planned_on(material, shown):
    planning, judging = (subset(material.ours.outputs, rows) for rows in halves(3000, 3))
    config = PlanConfig(drop=DROP, seed=3, horizon=1500, further=(), labels=LABELS)
    cascade = make(to_buy(planning, config), material.ours.measured, config, False, "cpu")
    candidate, ground = cascade.candidates[0], EvaluationData(judging, cascade.levels)
    judged, large, steps = evaluate(candidate, ground), level_step(ground, 1), walk(candidate, ground)
    same = [steps[n - 1].answer_RK[r].argmax() == large.answer_RK[r].argmax() for r, n in enumerate(judged.steps_R)]
    assert len(candidate.levels) == 2
    assert shown.large == large.correct_R.mean()
    assert shown.shown[BOUGHT] == Showing(
        judged.accuracy,
        pytest.approx(judged.seconds / large.seconds_R.mean()),
        pytest.approx(np.mean(same)),
        candidate.labels,
        judged.accuracy < shown.large - DROP,
    )


def test_every_method_looks_at_the_labels_that_it_may(shown):
    labels = {name: each.labels for name, each in shown.shown.items()}
    assert labels.pop(UNLABELLED) == 0
    assert 0 < labels.pop(BOUGHT) <= LABELS and labels.pop(FEWER) <= LABELS
    assert labels == dict.fromkeys((TABI, TABI_OURS, "single", "voting"), 1500)


def test_labels_can_be_bought_of_the_proving_texts_alone(material):
    config = PlanConfig()
    tuning, proving = split_rows(3000, config)
    labels = to_buy(material.ours.outputs, config).labels
    assert np.isnan(labels[tuning]).all()
    assert np.array_equal(labels[proving], material.ours.outputs.labels[proving])


def test_ours_without_a_promise_goes_from_the_quickest_to_the_large_model_alone(shown):
    seconds = [each.seconds for each in shown.curve]
    assert seconds == sorted(seconds) and seconds[-1] >= 1
    assert shown.curve[-1].agreement == 1


def test_labels_choose_thresholds_that_keep_as_many_right_answers(shown):
    seconds, shares = [each.seconds for each in shown.labelled], np.minimum(RIGHT, 1) * shown.large
    assert seconds[: len(SHARES)] == sorted(seconds[: len(SHARES)])
    assert all(each.accuracy > share - 0.05 for each, share in zip(shown.labelled, shares, strict=True))


@pytest.mark.parametrize(
    ("wanted", "over"), [(0.83, 0.5), (0.7, 0.1), (0.95, np.nan)], ids=["within", "below", "beyond"]
)
def test_equal_accuracy_is_read_off_the_mean_curve(wanted, over):
    curves = [((0.79, 0.05), (0.88, 0.85)), ((0.81, 0.05), (0.92, 0.95))]  # of means 0.8 and 0.9 at 0.05 and 0.9
    rounds = []
    for points in curves:
        curve = tuple(replace(SHOWN, accuracy=accuracy, seconds=seconds) for accuracy, seconds in points)
        rounds.append(Round(0.95, {TABI: replace(SHOWN, accuracy=wanted, seconds=0.5)}, curve, ()))
    over = Contest(tuple(rounds), 0.5, False).over(TABI)
    expected = {0.83: (0.05 + 0.3 * 0.85) / 0.5}.get(wanted, over)
    assert over == pytest.approx(expected, nan_ok=True)
