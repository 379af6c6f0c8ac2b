"""Old and later texts are pooled so that the later ones count: a plan's promise then holds for what comes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.cascade.artifact import PrunedOutputs, Pruning
from pliant.cascade.evaluate import EvaluationData, evaluate
from pliant.cascade.plan import PlanConfig, make
from pliant.cascade.pool import pooled
from pliant.errors import ArtifactError
from tests.fixtures.cascade.tiny import some_outputs, table

PLAN = PlanConfig(drop=0.04, further=(), horizon=None)


def with_pruning(outputs):
    level = outputs.levels[1]
    kept = np.arange(len(outputs.labels), dtype=np.float32)
    return replace(outputs, pruned=(PrunedOutputs(0, 1, Pruning("mass", 0.8), level.logits, level.length, kept),))


@given(st.integers(1, 120), st.integers(1, 120), st.integers(40, 150))
def test_old_texts_only_fill_up_what_is_lacking(old, new, rows):
    before, after = some_outputs(count=old), some_outputs(count=new, seed=1, data="traffic")
    joined = pooled(before, after, rows)
    count = len(joined.labels)
    assert count == new + min(old, max(0, rows - new))
    assert np.array_equal(joined.labels[count - new :], after.labels)
    if new >= rows / 2:
        assert new >= count - new, "later texts are half of them or more"
    for level, later in zip(joined.levels, after.levels, strict=True):
        assert np.array_equal(level.logits[count - new :], later.logits) and len(level.length) == count


def test_equal_arguments_draw_the_same_old_texts_for_whatever_levels():
    first, second = (with_pruning(some_outputs(accuracy, 100)) for accuracy in ((0.7, 0.9), (0.5, 0.8)))
    for outputs in (first, second):
        kept = pooled(outputs, with_pruning(some_outputs(count=30, seed=2)), 80).pruned[0].kept
        assert len(set(kept[:50].tolist())) == 50
    drawn = [pooled(each, with_pruning(some_outputs(count=30, seed=2)), 80).pruned[0].kept for each in (first, second)]
    assert np.array_equal(*drawn)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"names": ("a", "b")}, "names"),
        ({"classifiers": ("a", "b")}, "classifiers"),
        ({"classes": ("x", "y", "z")}, "classes"),
        ({"precision": "bfloat16"}, "precision"),
    ],
)
def test_outputs_of_something_else_are_refused(change, what):
    with pytest.raises(ArtifactError, match=what):
        pooled(some_outputs(), replace(some_outputs(), **change), 400)
    with pytest.raises(ArtifactError, match="prunings"):
        pooled(some_outputs(), with_pruning(some_outputs()), 400)


def planned(outputs):
    return make(outputs, [table(1.0), table(10.0)], [None, None], PLAN, False, "cpu")


def on(cascade, outputs) -> float:
    return evaluate(cascade.candidates[0], EvaluationData(outputs, cascade.levels)).accuracy


def test_a_plan_with_traffic_on_which_levels_are_less_often_right_promises_what_that_traffic_keeps():
    """The levels are as sure as ever and right less often; of ten plans at 95% one may miss."""
    held_old, held_new, share_of_large = [], [], []
    for seed in range(10):
        old = some_outputs((0.8, 0.95), 1000, seed)
        new, later = (some_outputs((0.55, 0.9), count, seed + 100, "traffic") for count in (400, 5000))
        before, after = planned(old), planned(pooled(old, new, 400))
        assert before.levels[0].temperature < after.levels[0].temperature, "it is no longer as sure"
        held_old.append(on(before, later) >= before.candidates[0].promised)
        held_new.append(on(after, later) >= after.candidates[0].promised)
        share_of_large.append(after.candidates[0].shares[-1] > before.candidates[0].shares[-1])
    assert sum(held_old) == 0
    assert sum(held_new) >= 9
    assert sum(share_of_large) >= 8
