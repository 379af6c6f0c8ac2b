"""Evaluating all texts at once gives the same as text by text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.cascade.artifact import Candidate, Gate, Pruning
from pliant.cascade.evaluate import (
    EvaluationData,
    evaluate,
    level_step,
)
from pliant.cascade.route import answers, combine, judge
from pliant.errors import InputError
from tests.fixtures.cascade.artifacts import by_doubt
from tests.fixtures.cascade.scenarios import MEAN, classification, profiles, regression

RULES = [(0, 1, MEAN), (1, 2, MEAN)]
CLASSES = EvaluationData(classification(0, 60, 3, (0.5, 1.5, 3.0), pruned=RULES), profiles(3))
VALUES = EvaluationData(regression(0, 60, (0.8, 0.5, 0.2)), profiles(3, regression=True), 0.4)

paths = st.sampled_from([(0,), (2,), (0, 1), (1, 2), (0, 1, 2)])
gates = st.one_of(
    st.builds(by_doubt, st.floats(0, 0.9)),
    st.builds(Gate, st.just("tabi"), st.floats(0, 0.95), st.floats(0, 20)),
    st.sampled_from([Gate("always"), Gate("never")]),
)


@st.composite
def candidates(draw, ground):
    path = draw(paths)
    chosen = []
    for pruner in path[:-1]:
        gate = replace(draw(gates), weight=1.0 if ground.regression else draw(st.sampled_from([1.0, 0.6])))
        prunes = bool(ground.outputs.pruned) and pruner + 1 in path and draw(st.booleans())
        chosen.append(replace(gate, pruning=MEAN if prunes else Pruning()))
    return Candidate("", path, tuple(chosen), 0, 0, 0, ())


def one_by_one(candidate, ground, draw_R):
    """Return for each text, run through the levels until it is answered: correct, seconds, levels run, share of words."""
    outputs, rows = ground.outputs, []
    for text in range(len(outputs.labels)):
        said_so_far, seconds, kept, ran = [], 0.0, 1.0, 0
        for place, number in enumerate(candidate.levels):
            before = candidate.gates[place - 1] if place else None
            saved, kept = outputs.levels[number], 1.0
            if before and before.pruning.rule != "none":
                saved = next(
                    o for o in outputs.pruned if o.pruner == candidate.levels[place - 1] and o.reader == number
                )
                kept = float(saved.kept[text])
            level = ground.levels[number]
            said = answers(level, ground.tolerance, saved.logits[[text]], saved.length[[text]])
            answer = combine(before, said_so_far[-1], said) if before else said
            said_so_far.append(answer)
            after = candidate.gates[place] if place < len(candidate.gates) else None
            prunes = after and after.pruning.rule != "none"
            seconds += (level.importance if prunes else level.latency).between(float(saved.length[text]), 1)
            ran += 1
            length_1 = saved.length[[text]]
            if after is None or np.isnan(
                judge(after, said_so_far, length_1, draw_R[[text]], ground.regression, ground.tolerance)[0]
            ):
                break
        if ground.regression:
            correct = abs(answer[0, 0] - outputs.labels[text]) <= ground.tolerance
        else:
            correct = answer[0].argmax() == outputs.labels[text]
        rows.append((bool(correct), seconds, ran, kept))
    return rows


def compare(candidate, ground):
    draw_R = np.random.default_rng(1).random(len(ground.outputs.labels))
    evaluation = evaluate(candidate, ground, draw_R)
    correct, seconds, ran, kept = zip(*one_by_one(candidate, ground, draw_R), strict=True)
    assert evaluation.correct_R.tolist() == list(correct)
    assert evaluation.seconds_R == pytest.approx(seconds)
    assert evaluation.steps_R.tolist() == list(ran)
    assert evaluation.kept_R == pytest.approx(kept)


@settings(max_examples=40, deadline=None)
@given(candidates(CLASSES))
def test_classes_are_evaluated_as_text_by_text(candidate):
    compare(candidate, CLASSES)


@settings(max_examples=25, deadline=None)
@given(candidates(VALUES))
def test_values_are_evaluated_as_text_by_text(candidate):
    compare(candidate, VALUES)


def test_a_pruning_that_was_not_run_is_refused():
    candidate = Candidate("", (0, 2), (Gate("always", pruning=MEAN),), 0, 0, 0, ())
    with pytest.raises(InputError, match=r"pruning is mean 0\.6 of level 0 for 2, but must be one that was run"):
        evaluate(candidate, CLASSES)


def test_importance_costs_its_seconds_only_where_words_are_pruned():
    plain, costly = level_step(CLASSES, 0), level_step(CLASSES, 0, onward=MEAN)
    assert costly.seconds_R == pytest.approx(1.1 * plain.seconds_R)
    unmeasured = EvaluationData(CLASSES.outputs, tuple(replace(level, importance=None) for level in CLASSES.levels))
    assert level_step(unmeasured, 0, onward=MEAN).seconds_R.tolist() == plain.seconds_R.tolist()
