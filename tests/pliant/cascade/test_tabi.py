"""The published search keeps what a plain reading of the paper keeps, and the baselines follow their papers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pliant.cascade.artifact import Candidate, Gate, Pruning
from pliant.cascade.calibrate import published
from pliant.cascade.evaluate import EvaluationData, evaluate, measured, walk
from pliant.cascade.tabi import TabiConfig, candidates, single, single_levels, tabi, voting
from tests.fixtures.cascade.scenarios import classification, profiles

ALPHAS = tuple(Pruning("mean", round(0.5 + 0.1 * i, 1)) for i in range(4))
CONFIG = TabiConfig(slopes=(5.0, 20.0))


def calibrated(outputs, accuracies, tolerance=0.0):
    levels = profiles(len(accuracies), regression=not outputs.classes)
    return EvaluationData(
        outputs, tuple(replace(a, accuracy=b) for a, b in zip(levels, accuracies, strict=True)), tolerance
    )


def accuracies(outputs):
    return tuple(float((level.logits.argmax(1) == outputs.labels).mean()) for level in outputs.levels)


def world(seed=0, skills=(0.8, 1.8, 3.0), pruned=((1, 2), (0, 2))):
    outputs = classification(
        seed, 300, 3, skills, pruned=[(a, b, rule) for a, b in pruned for rule in reversed(ALPHAS)]
    )
    return calibrated(outputs, accuracies(outputs))


TEXTS = world()


def grid(ground, config, path):
    """Return every candidate of a path as published, one after the other, until a rule ends it."""
    only = [evaluate(Candidate("", (level,), (), 0, 0, 0, ()), ground) for level in path]
    mean = np.mean([evaluation.accuracy for evaluation in only])
    slowest = 1.5 * max(np.quantile(evaluation.seconds_R, 0.75) for evaluation in only)
    for pruning in [Pruning(), *allowed(ground, path, only[-1].accuracy - 0.02)]:
        for slope in config.slopes:
            for c in np.round(np.arange(0.95, 0.01, -0.05), 6):
                candidate = weighted(path, pruning, float(c), slope, ground)
                result = evaluate(candidate, ground)
                if result.accuracy < mean:
                    break
                if np.quantile(result.seconds_R, 0.75) <= slowest:
                    yield measured(candidate, ground)


def allowed(ground, path, least):
    saved = {(run.pruner, run.reader, run.pruning): run.logits for run in ground.outputs.pruned}
    for rule in ALPHAS:
        if (*path[-2:], rule) not in saved:
            return
        if (saved[*path[-2:], rule].argmax(1) == ground.outputs.labels).mean() < least:
            return
        yield rule


def weighted(path, pruning, c, slope, ground):
    gate = Gate("tabi", c, slope)
    candidate = Candidate("", path, (*[gate] * (len(path) - 2), replace(gate, pruning=pruning)), 0, 0, 0, ())
    steps = walk(candidate, ground)
    on = ~np.isnan(np.sum([step.gain_R for step in steps[:-1]], axis=0))
    labels = ground.outputs.labels[on].astype(int)
    weight = published(steps[-2].answer_RK[on], steps[-1].answer_RK[on], labels)
    return replace(candidate, gates=(*candidate.gates[:-1], replace(candidate.gates[-1], weight=weight)))


def plain(candidate):
    return (
        candidate.levels,
        candidate.gates,
        pytest.approx((candidate.accuracy, candidate.seconds, *candidate.shares, candidate.kept)),
    )


@pytest.mark.parametrize("seed", range(3))
def test_what_is_kept_is_what_the_plain_grid_keeps(seed):
    ground = world(seed)
    expected = [candidate for path in ((0, 1), (0, 2), (1, 2), (0, 1, 2)) for candidate in grid(ground, CONFIG, path)]
    kept = candidates(ground, CONFIG)
    assert [
        (candidate.levels, candidate.gates, (candidate.accuracy, candidate.seconds, *candidate.shares, candidate.kept))
        for candidate in kept
    ] == [plain(candidate) for candidate in expected]
    assert any(candidate.gates[-1].pruning.rule == "mean" for candidate in kept)


def test_the_cheapest_that_meets_the_target_is_taken():
    every = candidates(TEXTS, CONFIG)
    target = float(np.median([candidate.accuracy for candidate in every]))
    chosen = tabi(TEXTS, target, CONFIG)
    assert chosen.name == "tabi"
    assert chosen.seconds == min(candidate.seconds for candidate in every if candidate.accuracy >= target)


def test_single_is_the_cheapest_level_that_meets_the_target():
    accuracy = [candidate.accuracy for candidate in single_levels(TEXTS)]
    assert accuracy == sorted(accuracy)
    assert single(TEXTS, accuracy[1]).levels == (1,)
    assert single(TEXTS, accuracy[1] + 1e-9).levels == (2,)
    assert single(TEXTS, 1.01).levels == (2,)  # none: the most accurate
    assert single(TEXTS, 0.0).name == "single"


def test_voting_weighs_every_level_s_answer_by_its_accuracy():
    candidate = voting(TEXTS)
    weight = np.array([level.accuracy for level in TEXTS.levels])
    answer_RK = sum(
        w * walk(Candidate("", (i,), (), 0, 0, 0, ()), TEXTS)[0].answer_RK for i, w in enumerate(weight / weight.sum())
    )
    assert walk(candidate, TEXTS)[-1].answer_RK == pytest.approx(answer_RK)
    assert candidate.shares == (1.0, 1.0, 1.0)
    assert candidate.seconds == pytest.approx(sum(level.seconds for level in single_levels(TEXTS)))
