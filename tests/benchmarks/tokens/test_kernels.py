"""The kernel benchmark: a row for every gamma and batch that fits the time, and targets that can fall."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.benchmarks.tokens import kernels
from pliant.benchmarks.tokens.kernels import Kernels, measure, untrained
from pliant.tokens.artifact import GAMMAS
from pliant.tokens.runtime import Payload, TokensRuntime
from pliant.training.tokens.foundation import FoundationConfig
from pliant.training.tokens.task import TaskConfig
from tests.fixtures.tokens.samples import tiny_backbone, tiny_task


@pytest.fixture(scope="module")
def measured() -> Kernels:
    tasks = [tiny_task("a", "xyz", "digest"), tiny_task("b", "vw", "digest", seed=1)]
    return measure(tiny_backbone(), tasks)


def test_every_gamma_and_batch_has_a_row(measured):
    assert {(row.gamma, row.batch) for row in measured.rows} == {
        (gamma, batch) for gamma in GAMMAS for batch in kernels.BATCHES
    }
    assert all(row.images_per_second > 0 and row.rounds >= 3 for row in measured.rows)


def test_a_batch_too_slow_for_the_time_is_left_out():
    pair = kernels._Pair(tiny_backbone(), [tiny_task("a", "xyz", "digest")])
    assert pair.rows(8, budget=0.0) == []
    assert np.isfinite([row.ratio for row in pair.rows(2, budget=0.5)]).all()


def test_without_a_champion_the_flows_sizes_are_measured_with_random_weights():
    backbone, tasks = untrained()
    assert dict(backbone.options) == dict(FoundationConfig().options)
    assert set(tasks[0].heads) == {0, *TaskConfig().gammas}
    runtime = TokensRuntime(backbone, tasks[0].backbone, tasks)
    pixels_HWC = np.zeros((backbone.image_size, backbone.image_size, 3), np.uint8)
    for gamma in GAMMAS:
        assert runtime.run(gamma, [Payload("random", pixels_HWC)]) is not None
