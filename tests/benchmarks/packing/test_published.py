"""S3's published tables: what fits into a published device's memory, and batches that it bounds."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.benchmarks.packing.published import run
from pliant.packing.hardware import A100, GPT_J_6B, GPT_NEOX_20B, LLAMA_13B, LLAMA_33B, capacity


@pytest.mark.parametrize(("model", "count"), [(GPT_J_6B, 72), (LLAMA_13B, 32), (GPT_NEOX_20B, 17), (LLAMA_33B, 4)])
def test_so_many_sequences_of_2048_tokens_fit_on_one_a100(model, count):
    """S3's Table 2 has mean batches of 69.9, 31.6, 16.9 and 4 if the maximum is reserved."""
    assert capacity(model, A100) // 2048 == count


def test_memory_bounds_the_batch_of_equal_outputs():
    """32 sequences of the context fit beside LLaMA-13B: 64 outputs of 99 tokens are two full batches in turn."""
    outputs = np.full(64, 99)
    cell = run(LLAMA_13B, "orca", outputs, 31.6)
    assert cell.batch == pytest.approx(32.0)
    assert cell.ratio == pytest.approx(32 / 31.6)
    assert run(LLAMA_13B, "oracle", outputs).batch == pytest.approx(64.0)
