"""The learning rate of the prompts is chosen on the fit split alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pliant.training import data
from pliant.training.tokens.task import Sweep, TaskConfig, sweep
from tests.fixtures.tokens.samples import tiny_backbone
from tests.fixtures.watched import watched

SHORT = TaskConfig(gammas=(2, 4), head_steps=20, prompt_rates=(0.01, 0.1), trial_images=128)


def test_only_fit_images_are_looked_at():
    loops, seen = watched(data.digits("loops"))
    sweep(SHORT, loops, tiny_backbone())
    assert set(seen) == set(loops.split.fit.tolist())


def test_every_rate_has_the_same_start_and_draws():
    """Otherwise the trials would differ by their draws."""
    swept = sweep(replace(SHORT, head_steps=100, prompt_rates=(0.05, 5.0, 0.05)), data.digits("digit"), tiny_backbone())
    assert swept.accuracy[0] == swept.accuracy[2] != swept.accuracy[1]
    assert 0 < swept.plain < 1


@pytest.mark.parametrize(("accuracy", "best"), [((0.2, 0.5, 0.3), 0.01), ((0.5, 0.2, 0.5), 0.001)])
def test_the_best_trial_wins_and_among_equals_the_smaller_rate(accuracy, best):
    assert Sweep((0.001, 0.01, 0.1), accuracy, 0.4).best == best
