"""Published models on a published device: tokens that fit."""

from __future__ import annotations

import pytest

from pliant.benchmarks.packing.hardware import A100, GPT_J_6B, GPT_NEOX_20B, LLAMA_13B, LLAMA_33B, capacity

ORCA = {GPT_J_6B: 72, LLAMA_13B: 32, GPT_NEOX_20B: 17, LLAMA_33B: 4}


@pytest.mark.parametrize(("model", "sequences"), ORCA.items())
def test_so_many_sequences_of_2048_tokens_fit_on_one_a100(model, sequences):
    """S3's Table 2 has mean batches of 69.9, 31.6, 16.9 and 4 if the maximum is reserved."""
    assert capacity(model, A100) // 2048 == sequences
