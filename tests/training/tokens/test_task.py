"""Training a task: heads and prompts have the right shapes, come from fit images only, and repeat with the same seed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pliant.profiling.tokens.accuracy import profile
from pliant.training import data
from pliant.training.tokens.task import TaskConfig, train
from tests.fixtures.tokens.samples import DEPTH, WIDTH, tiny_backbone
from tests.fixtures.watched import watched

SHORT = TaskConfig(gammas=(2, 4), epochs=0.2, head_steps=20, points=False, precision="float32")


@pytest.fixture(scope="module")
def task():
    return train(SHORT, data.digits("loops"), tiny_backbone(), "digest")


def test_a_task_has_a_head_and_prompts_for_every_gamma(task):
    assert sorted(task.heads) == [0, 2, 4]
    assert {gamma: prompts.shape for gamma, prompts in task.prompts.items()} == {
        2: (DEPTH, 2, WIDTH),
        4: (DEPTH, 4, WIDTH),
    }
    assert all(head.weight.shape == (3, WIDTH) and head.bias.shape == (3,) for head in task.heads.values())
    assert (task.name, task.backbone, task.classes) == ("loops", "digest", ("none", "one", "two"))
    assert task.data == data.digits("loops").fingerprint
    assert task.head(-5) is task.heads[0]


def test_a_seed_gives_the_same_task_again(task):
    again = train(SHORT, data.digits("loops"), tiny_backbone(), "digest")
    other = train(replace(SHORT, seed=1), data.digits("loops"), tiny_backbone(), "digest")
    assert all(np.array_equal(task.prompts[gamma], again.prompts[gamma]) for gamma in (2, 4))
    assert all(np.array_equal(task.heads[gamma].weight, again.heads[gamma].weight) for gamma in (0, 2, 4))
    assert not np.array_equal(task.prompts[4], other.prompts[4])


def test_only_fit_images_are_trained_on():
    loops, seen = watched(data.digits("loops"))
    train(SHORT, loops, tiny_backbone(), "digest")
    assert set(seen) == set(loops.split.fit.tolist())


def test_profiling_and_test_images_are_looked_at_only_to_measure(task):
    loops, seen = watched(data.digits("loops"))
    measured = profile(tiny_backbone(), task, loops, gammas=(0,))
    assert set(seen) == {*loops.split.profiling.tolist(), *loops.split.test.tolist()}
    assert set(measured.accuracy) == set(measured.test_accuracy) == {0}


def test_even_on_random_features_a_trained_head_is_far_better_than_chance():
    config = replace(SHORT, gammas=(), head_steps=200)
    digit = data.digits("digit")
    task = profile(tiny_backbone(), train(config, digit, tiny_backbone(), "digest"), digit, gammas=(0,))
    assert task.accuracy[0] > 0.2  # chance: 0.1
    assert set(task.judged) == {0} and not task.points


def test_a_head_fitted_to_fewer_pictures_looks_at_the_first_of_the_fit_split(task):
    loops = data.digits("loops")
    config = replace(SHORT, gammas=(), head_images=64)
    fitted = train(config, loops, tiny_backbone(), "digest")
    fewer = replace(loops, split=replace(loops.split, fit=loops.split.fit[:64]))
    alone = train(replace(config, head_images=None), fewer, tiny_backbone(), "digest")
    assert np.allclose(fitted.heads[0].weight, alone.heads[0].weight, atol=1e-5)
    assert not np.allclose(fitted.heads[0].weight, task.heads[0].weight, atol=1e-3)
