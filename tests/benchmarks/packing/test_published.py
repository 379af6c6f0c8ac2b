"""S3's published tables: classes as accurate as published, lengths from words, a table near the published one."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.benchmarks.packing.hardware import LLAMA_13B
from pliant.benchmarks.packing.published import (
    run,
)


def test_memory_bounds_the_batch_of_equal_outputs():
    """32 sequences of the context fit beside LLaMA-13B: 64 outputs of 99 tokens are two full batches in turn."""
    outputs = np.full(64, 99)
    cell = run(LLAMA_13B, "orca", outputs, 31.6)
    assert cell.batch == pytest.approx(32.0)
    assert cell.ratio == pytest.approx(32 / 31.6)
    assert run(LLAMA_13B, "oracle", outputs).batch == pytest.approx(64.0)
