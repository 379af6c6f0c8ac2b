"""The mask's effect: counted label by label, between two runtimes."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.profiling.tokens.mask import compare
from pliant.tokens.runtime import Execution, Payload, TokensRuntime
from tests.fixtures.tokens.samples import random_images, tiny_backbone, tiny_task

TASKS = [tiny_task("a", "xyz", "digest"), tiny_task("b", "vwxyz", "digest", seed=1)]
IMAGES = {"a": random_images(40), "b": random_images(30, seed=1)}


def answers(task: str, gamma: int, unmasked: frozenset[int]) -> np.ndarray:
    runtime = TokensRuntime(tiny_backbone(), "digest", TASKS, execution=Execution(unmasked=unmasked))
    run = runtime.run(gamma, [Payload(task, image) for image in IMAGES[task]])
    return np.array([p.argmax() for p in run.probabilities])


def test_agreement_and_accuracies_are_those_of_two_runtimes():
    with_mask = {task: answers(task, -5, frozenset()) for task in IMAGES}
    without = {task: answers(task, -5, frozenset([-5])) for task in IMAGES}
    (effect,) = compare(tiny_backbone(), TASKS, IMAGES, gammas=(-5, 0, 2), labels=without, batch=16)
    same = np.concatenate([with_mask[task] == without[task] for task in IMAGES])
    assert 0 < same.mean() < 1
    assert effect.agreement == pytest.approx(same.mean())
    assert effect.accuracies == (pytest.approx(same.mean()), 1.0)
    assert effect.gain > 0


def test_a_gamma_that_merges_nothing_does_not_ask():
    assert compare(tiny_backbone(), TASKS, IMAGES, gammas=(0, 2, 8)) == ()
