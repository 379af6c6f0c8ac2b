"""A cascade run text by text gives what the saved outputs of the same texts predict."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pliant.cascade.artifact import Candidate, Gate
from pliant.cascade.evaluate import EvaluationData, draws, settle, walk
from pliant.cascade.run import load, run
from pliant.errors import ArtifactError, InputError
from tests.fixtures.cascade.artifacts import MASS, Things, things


@pytest.fixture(scope="module", params=["single", "pairs", "regression"])
def setting(request) -> Things:
    if request.param == "regression":
        return things(classes=())
    return things(pair=request.param == "pairs")


@pytest.fixture(scope="module")
def models(setting):
    return load(setting.cascade, setting.classifiers)


@pytest.mark.parametrize("number", range(5))
def test_every_candidate_answers_as_planned_from_the_saved_outputs(setting, models, number):
    cascade, candidate = setting.cascade, setting.cascade.candidates[number]
    steps = walk(candidate, EvaluationData(setting.outputs, cascade.levels, cascade.tolerance))
    expected = settle(steps)
    answered = run(cascade, models, setting.texts.rows, number)
    assert len(answered) == len(setting.texts.rows)
    for row, answer in enumerate(answered):
        last = int(expected.steps_R[row]) - 1
        np.testing.assert_allclose(answer.answer, steps[last].answer_RK[row], rtol=1e-4, atol=1e-5)
        assert answer.level == candidate.levels[last]
        assert answer.lengths == tuple(int(step.length_R[row]) for step in steps[: last + 1])
    labels = np.array([_number(cascade, answer.label) for answer in answered])
    right = np.abs(labels - setting.texts.labels) <= cascade.tolerance
    np.testing.assert_array_equal(right, expected.correct_R)


def _number(cascade, label) -> float:
    return float(cascade.classes.index(label)) if cascade.classes else label


def test_the_published_rule_goes_by_the_numbers_drawn(setting, models):
    cascade, rows = setting.cascade, setting.texts.rows
    candidate = replace(cascade.candidates[2], gates=(replace(cascade.candidates[2].gates[0], threshold=0.0),))
    cascade = replace(cascade, candidates=(candidate,))
    low = run(cascade, models, rows, 0, np.zeros(len(rows)))
    high = run(cascade, models, rows, 0, np.full(len(rows), 0.999))
    assert {answer.level for answer in low} == {1}
    assert {answer.level for answer in high} == {0}
    again = run(cascade, models, rows, 0, draws(len(rows)))
    assert [a.level for a in run(cascade, models, rows)] == [a.level for a in again]


def test_a_text_longer_than_its_level_reads_is_declared(setting, models):
    (short,) = run(setting.cascade, models, [("a dog", "a cat" if setting.cascade.pair else None)], 4)
    (long,) = run(setting.cascade, models, [("dogs " * 90, "a cat" if setting.cascade.pair else None)], 4)
    assert (short.truncated, long.truncated) == (False, True)


@pytest.mark.parametrize("number", [-1, 5])
def test_a_candidate_that_there_is_not_is_refused(setting, models, number):
    with pytest.raises(InputError, match=f"candidate is {number}, but must be from 0 to 4"):
        run(setting.cascade, models, [], number)


def test_other_models_than_the_cascades_levels_are_refused(setting):
    with pytest.raises(ArtifactError, match="has the levels small, large, but was given large, small"):
        load(setting.cascade, setting.classifiers[::-1])


def test_on_a_path_of_three_levels_each_gate_prunes_by_the_importance_of_the_level_before_it():
    setting = things()
    small, large = setting.classifiers
    whole, pruned = Gate("always", weight=0.5), Gate("always", pruning=MASS)
    paths = [((0, 1, 2), (whole, pruned)), ((0, 1, 2), (pruned, whole)), ((1, 2), (pruned,)), ((0,), ())]
    candidates = tuple(Candidate("", levels, gates, 0, 0, 0, ()) for levels, gates in paths)
    first, last = setting.cascade.levels
    cascade = replace(setting.cascade, levels=(first, first, last), candidates=candidates)
    models, rows = load(cascade, (small, small, large)), setting.texts.rows[:6]
    late, early, short, alone = (run(cascade, models, rows, number) for number in range(4))
    assert any(answer.read != row for answer, row in zip(short, rows, strict=True))
    for a, b, c, d in zip(late, early, short, alone, strict=True):
        assert a.read == b.read == c.read
        assert [answer.level for answer in (a, b, c, d)] == [2, 2, 2, 0]
        assert a.lengths == (d.lengths[0], *c.lengths)
        assert b.lengths == (d.lengths[0], b.lengths[1], c.lengths[1]) and b.lengths[1] <= d.lengths[0]
        np.testing.assert_allclose(a.answer, c.answer, atol=1e-6)
