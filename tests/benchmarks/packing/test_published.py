"""S3's published tables: classes as accurate as published, lengths from words, a table near the published one."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.benchmarks.packing.hardware import LLAMA_13B
from pliant.benchmarks.packing.published import (
    ACCURACY,
    classes,
    run,
)


def test_the_predictor_is_right_as_often_as_published_and_else_says_a_neighbour():
    outputs = np.random.default_rng(0).integers(1, 2049, 50_000)
    right = -(-outputs * 10 // 2048)
    said = classes(outputs)
    assert np.mean(said == right) == pytest.approx(ACCURACY, abs=0.002)
    assert set(np.abs(said - right).tolist()) == {0, 1}
    assert said.min() == 1 and said.max() == 10


def test_memory_bounds_the_batch_of_equal_outputs():
    """32 sequences of the context fit beside LLaMA-13B: 64 outputs of 99 tokens are two full batches in turn."""
    outputs = np.full(64, 99)
    cell = run(LLAMA_13B, "orca", outputs, 31.6)
    assert cell.batch == pytest.approx(32.0)
    assert cell.ratio == pytest.approx(32 / 31.6)
    assert run(LLAMA_13B, "oracle", outputs).batch == pytest.approx(64.0)
