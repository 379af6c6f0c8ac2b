"""The published search keeps what a plain reading of it keeps, and the baselines are what their papers say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pliant.cascade.artifact import Candidate, Gate, Pruning
from pliant.cascade.ensemble import published
from pliant.cascade.evaluate import Ground, evaluate, measured, walk
from pliant.cascade.tabi import TabiConfig, alone, candidates, single, tabi, voting
from tests.fixtures.cascade.worlds import classification, profiles, regression, table

ALPHAS = tuple(Pruning("mean", round(0.5 + 0.1 * i, 1)) for i in range(4))
CONFIG = TabiConfig(slopes=(5.0, 20.0))


def calibrated(outputs, accuracies, tolerance=0.0):
    levels = profiles(len(accuracies), regression=not outputs.classes)
    return Ground(outputs, tuple(replace(a, accuracy=b) for a, b in zip(levels, accuracies, strict=True)), tolerance)


def accuracies(outputs):
    return tuple(float((one.logits.argmax(1) == outputs.labels).mean()) for one in outputs.levels)


def world(seed=0, skills=(0.8, 1.8, 3.0), pruned=((1, 2), (0, 2))):
    outputs = classification(
        seed, 300, 3, skills, pruned=[(a, b, rule) for a, b in pruned for rule in reversed(ALPHAS)]
    )
    return calibrated(outputs, accuracies(outputs))


TEXTS = world()


def grid(ground, config, path):
    """Every pruning, slope and c of a path as published, one after the other, until a rule ends it."""
    only = [evaluate(Candidate("", (level,), (), 0, 0, 0, ()), ground) for level in path]
    mean = np.mean([one.accuracy for one in only])
    slowest = 1.5 * max(np.quantile(one.seconds_R, 0.75) for one in only)
    for pruning in [Pruning(), *allowed(ground, path, only[-1].accuracy - 0.02)]:
        for slope in config.slopes:
            for c in np.round(np.arange(0.95, 0.01, -0.05), 6):
                made = weighted(path, pruning, float(c), slope, ground)
                found = evaluate(made, ground)
                if found.accuracy < mean:
                    break
                if np.quantile(found.seconds_R, 0.75) <= slowest:
                    yield measured(made, ground)


def allowed(ground, path, least):
    saved = {(one.pruner, one.reader, one.pruning): one.logits for one in ground.outputs.pruned}
    for rule in ALPHAS:
        if (*path[-2:], rule) not in saved:
            return
        if (saved[*path[-2:], rule].argmax(1) == ground.outputs.labels).mean() < least:
            return
        yield rule


def weighted(path, pruning, c, slope, ground):
    gate = Gate("tabi", c, slope)
    made = Candidate("", path, (*[gate] * (len(path) - 2), replace(gate, pruning=pruning)), 0, 0, 0, ())
    steps = walk(made, ground)
    on = ~np.isnan(np.sum([step.gain_R for step in steps[:-1]], axis=0))
    labels = ground.outputs.labels[on].astype(int)
    weight = published(steps[-2].answer_RK[on], steps[-1].answer_RK[on], labels)
    return replace(made, gates=(*made.gates[:-1], replace(made.gates[-1], weight=weight)))


def plain(one):
    return one.levels, one.gates, pytest.approx((one.accuracy, one.seconds, *one.shares, one.kept))


@pytest.mark.parametrize("seed", range(3))
def test_what_is_kept_is_what_the_plain_grid_keeps(seed):
    ground = world(seed)
    expected = [one for path in ((0, 1), (0, 2), (1, 2), (0, 1, 2)) for one in grid(ground, CONFIG, path)]
    found = candidates(ground, CONFIG)
    assert [(one.levels, one.gates, (one.accuracy, one.seconds, *one.shares, one.kept)) for one in found] == [
        plain(one) for one in expected
    ]
    assert any(one.gates[-1].pruning.rule == "mean" for one in found)


def test_levels_of_a_path_ascend_in_accuracy():
    ground = calibrated(TEXTS.outputs, (0.9, 0.7, 0.95))
    assert {one.levels for one in candidates(ground, CONFIG)} <= {(0, 2), (1, 2)}


def test_c_falls_by_steps_until_accuracy_is_below_the_mean_of_the_models():
    found = [one for one in candidates(TEXTS, TabiConfig(slopes=(20.0,))) if one.levels == (0, 2)]
    unpruned = [one.gates[0].threshold for one in found if one.gates[0].pruning.rule == "none"]
    assert unpruned == pytest.approx([0.95 - 0.05 * i for i in range(len(unpruned))])
    below = weighted((0, 2), Pruning(), round(unpruned[-1] - 0.05, 6), 20.0, TEXTS)
    mean = np.mean([one.accuracy for one in alone(TEXTS) if one.levels in ((0,), (2,))])
    assert unpruned[-1] == pytest.approx(0.05) or evaluate(below, TEXTS).accuracy < mean


def test_a_candidate_slower_than_half_as_much_again_as_its_slowest_model_is_left_out():
    slow_first = tuple(replace(one, latency=table(0.009), importance=None) for one in TEXTS.levels)
    ground = replace(TEXTS, levels=slow_first)  # every level as slow: two of them take twice as long
    for one in candidates(ground, CONFIG):
        found = evaluate(one, ground)
        assert np.quantile(found.seconds_R, 0.75) <= 1.5 * np.quantile(
            evaluate(alone(ground)[2], ground).seconds_R, 0.75
        )
    assert len(candidates(ground, replace(CONFIG, slowest=9.0))) > len(candidates(ground, CONFIG))


def test_alpha_rises_until_the_last_model_loses_more_than_two_points():
    bad = TEXTS.outputs.levels[0].logits  # of a worse model: far more than two points lost
    cut = [
        replace(one, logits=bad if one.pruning.value >= 0.7 else TEXTS.outputs.levels[2].logits)
        for one in TEXTS.outputs.pruned
    ]
    ground = replace(TEXTS, outputs=replace(TEXTS.outputs, pruned=tuple(cut)))
    rules = {one.gates[-1].pruning for one in candidates(ground, CONFIG) if one.levels[-1] == 2}
    assert {rule.value for rule in rules if rule.rule == "mean"} == {0.5, 0.6}
    whole = {one.gates[-1].pruning.rule for one in candidates(ground, replace(CONFIG, whole=False))}
    assert whole == {"mean"}


def test_the_cheapest_that_meets_the_target_is_taken():
    every = candidates(TEXTS, CONFIG)
    target = float(np.median([one.accuracy for one in every]))
    found = tabi(TEXTS, target, CONFIG)
    assert found.name == "tabi"
    assert found.seconds == min(one.seconds for one in every if one.accuracy >= target)


def test_a_target_that_none_meets_has_no_published_candidate():
    assert tabi(TEXTS, 1.01, CONFIG) is None


def test_a_regression_has_published_candidates_without_mixtures():
    ground = calibrated(regression(0, 300, (0.8, 0.2)), (0.5, 0.9), 0.4)
    found = candidates(ground, CONFIG)
    assert found
    assert {one.gates[0].weight for one in found} == {1.0}
    assert [measured(one, ground) for one in found] == found


def test_single_is_the_cheapest_level_that_meets_the_target():
    accuracy = [one.accuracy for one in alone(TEXTS)]
    assert accuracy == sorted(accuracy)
    assert single(TEXTS, accuracy[1]).levels == (1,)
    assert single(TEXTS, accuracy[1] + 1e-9).levels == (2,)
    assert single(TEXTS, 1.01).levels == (2,)  # none: the most accurate
    assert single(TEXTS, 0.0).name == "single"


def test_voting_weighs_every_level_s_answer_by_its_accuracy():
    found = voting(TEXTS)
    weight = np.array([level.accuracy for level in TEXTS.levels])
    answer_RK = sum(
        w * walk(Candidate("", (i,), (), 0, 0, 0, ()), TEXTS)[0].answer_RK for i, w in enumerate(weight / weight.sum())
    )
    assert walk(found, TEXTS)[-1].answer_RK == pytest.approx(answer_RK)
    assert found.shares == (1.0, 1.0, 1.0)
    assert found.seconds == pytest.approx(sum(one.seconds for one in alone(TEXTS)))
