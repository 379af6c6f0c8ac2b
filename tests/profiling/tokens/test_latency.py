"""Profiles of the tokens system: accuracies that can be counted by hand, latency tables of the right shape."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pliant.profiling.timer import TimerConfig
from pliant.profiling.tokens import latency
from pliant.profiling.tokens.accuracy import profile
from pliant.profiling.tokens.latency import LatencyConfig
from pliant.tokens.runtime import Payload, TokensRuntime
from pliant.training.data import ImageData, Split
from pliant.training.pictures import ArrayImages
from tests.fixtures.tokens.samples import IMAGE_SIZE, random_images, tiny_backbone, tiny_task

TASK = tiny_task("a", "xyz", "digest")
PIXELS = random_images(20)
FAST = TimerConfig(warmup=1, least=1, most=1)


@pytest.fixture(scope="module")
def runtime():
    return TokensRuntime(tiny_backbone(), "digest", [TASK])


def answers(runtime, gamma: int) -> np.ndarray:
    run = runtime.run(gamma, [Payload("a", image) for image in PIXELS])
    return np.array([probabilities.argmax() for probabilities in run.probabilities])


def labelled(labels) -> ImageData:
    split = Split(np.arange(0, 8), np.arange(8, 12), np.arange(12, 20))
    return ImageData("a", ArrayImages(PIXELS), np.asarray(labels), ("x", "y", "z"), split, "")


def test_a_profile_measures_both_splits_each_by_itself(runtime):
    labels = answers(runtime, 0)
    labels[8:10] = (labels[8:10] + 1) % 3  # half of the profiling split
    measured = profile(tiny_backbone(), TASK, labelled(labels), gammas=(0,))
    assert (measured.accuracy, measured.test_accuracy) == ({0: 0.5}, {0: 1.0})
    assert replace(measured, accuracy=TASK.accuracy, test_accuracy=TASK.test_accuracy).name == "a"


def test_a_latency_profile_has_a_time_for_every_gamma_and_batch(runtime):
    reports = []
    config = LatencyConfig(gammas=(-5, 0, 8), batches=(1, 4), timer=FAST)
    measured = latency.profile(runtime, ["a"], IMAGE_SIZE, config, progress=lambda *at: reports.append(at))
    assert (measured.latency.settings, measured.latency.batches) == ((-5, 0, 8), (1, 4))
    assert [len(row) for row in measured.spread] == [len(row) for row in measured.memory] == [2, 2, 2]
    assert reports[-1] == (6, 6)
