"""The cascade's promotion gate, on outputs without any model, in virtual time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pliant.cascade import evaluate
from pliant.cascade.plan import Measured, PlanConfig, make
from pliant.cascade.simulated import ReferenceConfig
from pliant.errors import ArtifactError
from pliant.flows.cascade.config import GateConfig
from pliant.flows.cascade.gate import EvaluatedCascade, judge
from tests.fixtures.cascade.scenarios import regression, tables
from tests.fixtures.cascade.tiny import some_cascade, some_outputs

SHORT = ReferenceConfig(quiet=(0.5,), loud=(1.5,), seconds=0.5)
ONCE = GateConfig(seeds=1)


def candidate(accuracy: tuple[float, ...] = (0.7, 0.95), data: str = "d", **changes) -> EvaluatedCascade:
    test = some_outputs(accuracy, data=data)
    return EvaluatedCascade(some_cascade(test, **changes), test)


def others(candidate: EvaluatedCascade) -> EvaluatedCascade:
    """The same with classifiers of other digests: its latencies are its own."""
    levels = tuple(replace(level, classifier=f"{level.classifier}-new") for level in candidate.cascade.levels)
    return replace(candidate, cascade=replace(candidate.cascade, levels=levels))


def test_a_challenger_of_lower_accuracy_fails_and_a_better_one_passes():
    good, bad = candidate(), candidate((0.7, 0.9), target=0.8)
    verdict = judge(good, bad, ONCE, SHORT)
    assert not verdict.passed
    assert f"its accuracy is {verdict.challenger.accuracy:.4f}, worse than the champion's" in verdict.reason
    assert judge(bad, good, ONCE, SHORT).passed


def test_a_challenger_that_falls_for_a_tenant_alone_is_refused_by_name():
    """A twentieth of the texts are of the tenant, and of all others it is right more often."""
    good, test = candidate((0.7, 0.85), target=0.5), some_outputs((0.7, 0.97))
    for level in test.levels:
        level.logits[::20] = np.roll(np.eye(3, dtype=np.float32)[test.labels[::20].astype(int)], 1, axis=1) * 9
    better = EvaluatedCascade(some_cascade(test, target=0.5), test)
    assert judge(good, better, ONCE, SHORT).passed
    named_R = [("the tenant acme",) if row % 20 == 0 else () for row in range(400)]
    verdict = judge(good, replace(better, named_R=named_R), ONCE, SHORT)
    assert not verdict.passed
    assert "things: the tenant acme: right in 0 of 20, the champion in 1" in verdict.reason


def test_a_test_accuracy_below_the_target_beyond_chance_is_refused_even_without_a_champion():
    """400 texts at 0.85 may be 0.88 in truth, but not 0.99."""
    fine, bold = candidate(target=0.86), candidate(target=0.99)
    assert judge(None, fine, ONCE, SHORT).passed
    for champion in (None, fine):
        verdict = judge(champion, bold, ONCE, SHORT)
        assert not verdict.passed
        assert "worse than its target 0.9900" in verdict.reason


@pytest.mark.parametrize("count", [50, 400])
def test_the_bound_is_that_of_the_binomial_distribution(count):
    """Refused exactly where so few right answers would be rarer than 1 in 20 if the target were true."""
    from scipy.stats import binom

    test = some_outputs(count=count)
    cascade = some_cascade(test)
    right = round(cascade.test_accuracy["default"] * count)
    for target in np.linspace(0.5, 0.999, 60):
        verdict = judge(
            None,
            EvaluatedCascade(replace(cascade, target=float(target)), test),
            ONCE,
            ReferenceConfig((0.1,), (0.1,), 0.01),
        )
        assert verdict.passed == (binom.cdf(right, count, target) >= 0.05)


def test_on_other_data_promises_and_expected_seconds_are_compared():
    old, new = candidate(data="old"), candidate(data="new")
    verdict = judge(old, new, ONCE, SHORT)
    assert verdict.passed
    assert verdict.challenger.reports == ()
    assert verdict.challenger.accuracy == 0.85
    assert not judge(old, others(candidate(data="new", seconds=2.0)), ONCE, SHORT).passed


def test_a_challenger_without_its_test_outputs_cannot_be_judged():
    with pytest.raises(ArtifactError, match="the outputs of things on its test split"):
        judge(None, replace(candidate(), test=None), ONCE, SHORT)


def regressor(errors: tuple[float, float]) -> EvaluatedCascade:
    outputs, measured = regression(0, 400, errors), [Measured(table, table) for table in tables(2)]
    cascade = make(outputs, measured, PlanConfig(further=()), False, "cpu")
    return EvaluatedCascade(evaluate.with_test_accuracy(cascade, outputs), outputs)


def test_a_worse_regression_is_not_promoted_by_a_wider_tolerance_of_its_own():
    good, bad = regressor((0.9, 0.2)), regressor((0.9, 0.8))
    assert bad.cascade.tolerance > 2 * good.cascade.tolerance
    assert not judge(good, bad, ONCE, SHORT).passed
    assert judge(bad, good, ONCE, SHORT).passed


def with_promise(side: EvaluatedCascade, promised: float) -> EvaluatedCascade:
    default, *others = side.cascade.candidates
    return replace(side, cascade=replace(side.cascade, candidates=(replace(default, promised=promised), *others)))


def test_a_champion_whose_promise_the_test_texts_refute_need_not_be_outearned():
    """It is as right as the challenger and much faster, and promises what it does not keep."""
    slower = others(candidate(seconds=20.0))
    accuracy = candidate().cascade.test_accuracy["default"]
    kept = judge(with_promise(candidate(), accuracy), slower, ONCE, SHORT)
    assert not kept.passed and "it earns" in kept.reason
    broken = judge(with_promise(candidate(), accuracy + 0.05), slower, ONCE, SHORT)
    assert broken.passed
    assert f"the champion promises {accuracy + 0.05:.4f} and is right on {accuracy:.4f}" in broken.reason


def test_a_broken_promise_excuses_no_loss_of_accuracy_and_no_missed_target():
    worse = judge(with_promise(candidate(), 0.999), candidate((0.7, 0.85), target=0.7), ONCE, SHORT)
    assert not worse.passed and "points worse on 400 rows" in worse.reason
    exact, near = GateConfig(seeds=1, tolerance=0.0), candidate((0.7, 0.945), target=0.7)
    assert not judge(with_promise(candidate(), 0.9), near, exact, SHORT).passed
    chance = judge(with_promise(candidate(), 0.999), near, exact, SHORT)
    assert chance.challenger.accuracy < chance.champion.accuracy
    assert chance.passed, "so few texts may differ by chance"
    missed = judge(with_promise(candidate(), 0.999), candidate(target=0.99), ONCE, SHORT)
    assert not missed.passed and "worse than its target" in missed.reason
