"""The simulated rollouts: answers are as right as they are called, and short ones end as they must."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.benchmarks.watch.rollout import BETTER, CLASS, EQUAL, FIVE, SAME, WORSE, _answers, simulate


@pytest.mark.parametrize(("case", "right"), [(BETTER, 0.95), (EQUAL, 0.9), (SAME, 0.9), (CLASS, 0.95 * 0.95)])
def test_releases_are_as_right_as_they_are_called(case, right):
    draw = _answers(case, np.random.default_rng(0))
    drawn = [draw() for _ in range(20_000)]
    assert np.mean([champion for _, champion, _, _ in drawn]) == pytest.approx(0.9, abs=0.01)
    assert np.mean([challenger for _, _, challenger, _ in drawn]) == pytest.approx(right, abs=0.01)
    never = np.mean([challenger for name, _, challenger, _ in drawn if name == FIVE])
    assert never == (0.0 if case is CLASS else pytest.approx(right, abs=0.03))
    assert all(same for *_, same in drawn) == (case is SAME)


def test_a_better_one_and_one_that_answers_the_same_are_promoted_and_worse_ones_are_not():
    assert [simulate(case, 0).end for case in (BETTER, SAME, CLASS)] == ["promoted", "promoted", "taken_back"]
    unlabelled = simulate(WORSE[0], 0)
    assert unlabelled.rollout.asks and "nothing proves" in unlabelled.rollout.reason and unlabelled.labels == 0
