"""Published models on published devices: tokens that fit, seconds of an iteration, and spreads over devices."""

from __future__ import annotations

import pytest

from pliant.benchmarks.packing.hardware import (
    A100,
    GPT_3_175B,
    GPT_J_6B,
    GPT_NEOX_20B,
    LLAMA_13B,
    LLAMA_33B,
    Spread,
    capacity,
)

ORCA = {GPT_J_6B: 72, LLAMA_13B: 32, GPT_NEOX_20B: 17, LLAMA_33B: 4}


@pytest.mark.parametrize(("model", "sequences"), ORCA.items())
def test_so_many_sequences_of_2048_tokens_fit_on_one_a100(model, sequences):
    """S3's Table 2 has mean batches of 69.9, 31.6, 16.9 and 4 if the maximum is reserved."""
    assert capacity(model, A100) // 2048 == sequences


def test_the_fullest_stage_bounds_the_cache():
    """Of 96 layers in ten stages, some stages have ten, so less memory is left than a tenth of the model would leave."""
    even = (10 * A100.memory - GPT_3_175B.weight_bytes) / GPT_3_175B.kv_bytes
    assert capacity(GPT_3_175B, A100, Spread(10)) < 0.95 * even
    assert capacity(GPT_3_175B, A100, Spread(8)) == pytest.approx(
        (8 * A100.memory - GPT_3_175B.weight_bytes) / GPT_3_175B.kv_bytes, rel=1e-3
    )
