"""Published models on published devices: tokens that fit, seconds of an iteration, and spreads over devices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.benchmarks.packing.hardware import (
    A100,
    GPT_3_175B,
    GPT_J_6B,
    GPT_NEOX_20B,
    LLAMA_13B,
    LLAMA_33B,
    Roofline,
    Spread,
    capacity,
    memory_of,
    spread,
)
from pliant.errors import InputError
from pliant.packing.scheduling.request import Memory

LARGE_MODELS = (GPT_J_6B, LLAMA_13B, GPT_NEOX_20B, LLAMA_33B, GPT_3_175B)
ORCA = {GPT_J_6B: 72, LLAMA_13B: 32, GPT_NEOX_20B: 17, LLAMA_33B: 4}


@pytest.mark.parametrize(("model", "sequences"), ORCA.items())
def test_so_many_sequences_of_2048_tokens_fit_on_one_a100(model, sequences):
    """S3's Table 2 has mean batches of 69.9, 31.6, 16.9 and 4 if the maximum is reserved."""
    assert capacity(model, A100) // 2048 == sequences


@pytest.mark.parametrize("model", LARGE_MODELS)
def test_layers_and_width_account_for_the_parameters(model):
    """A layer has 12 width^2 parameters; the rest are embeddings."""
    assert model.parameters == pytest.approx(12 * model.layers * model.hidden**2, rel=0.08)


def test_the_fullest_stage_bounds_the_cache():
    """Of 96 layers in ten stages, some stages have ten, so less memory is left than a tenth of the model would leave."""
    even = (10 * A100.memory - GPT_3_175B.weight_bytes) / GPT_3_175B.kv_bytes
    assert capacity(GPT_3_175B, A100, Spread(10)) < 0.95 * even
    assert capacity(GPT_3_175B, A100, Spread(8)) == pytest.approx(
        (8 * A100.memory - GPT_3_175B.weight_bytes) / GPT_3_175B.kv_bytes, rel=1e-3
    )


def test_a_long_prompt_takes_as_long_as_its_products():
    assert Roofline(LLAMA_13B, A100).seconds(4096, 1, 4096) == pytest.approx(2 * 13.016e9 * 4096 / (312e12 * 0.6))


def test_many_iterations_are_told_at_once_like_one_by_one():
    steps, cached = Roofline(GPT_3_175B, A100, Spread(4, 2), 1e-4), np.arange(100, 3000, 700)
    together = steps.seconds(7, 7, cached)
    assert together.tolist() == [float(steps.seconds(7, 7, int(c))) for c in cached]


def test_a_preempted_sequence_moves_over_the_link_to_the_host():
    assert Roofline(LLAMA_13B, A100).swap_seconds(100) == pytest.approx(100 * LLAMA_13B.kv_bytes / 16e9)
    assert Roofline(GPT_3_175B, A100, Spread(8)).swap_seconds(100) == pytest.approx(
        100 * GPT_3_175B.kv_bytes / 8 / 16e9
    )


def test_fast_links_share_layers_and_slow_ones_make_stages():
    assert spread(GPT_3_175B, A100, 8) == Spread(1, 8)
    slow = replace(A100, peer=0.2e9)
    assert spread(GPT_3_175B, slow, 8) == Spread(8, 1)


@given(st.sampled_from(LARGE_MODELS), st.integers(1, 16), st.integers(1, 200))
def test_the_spread_is_the_fastest_of_all_that_hold_the_weights(model, devices, sequences):
    def seconds(way: Spread) -> float:
        return float(Roofline(model, A100, way).seconds(sequences, sequences, sequences * 1024))

    ways = [Spread(a, b) for a in range(1, 17) for b in range(1, 17) if a * b == devices and model.heads % b == 0]
    holding = [way for way in ways if way.share(model) * (model.weight_bytes + model.kv_bytes) <= A100.memory]
    if not holding:
        with pytest.raises(InputError):
            spread(model, A100, devices, sequences)
        return
    assert seconds(spread(model, A100, devices, sequences)) == min(map(seconds, holding))


def test_memory_is_all_that_is_left_in_pages_of_sixteen_tokens_for_many_sequences():
    pages = int((80e9 - LLAMA_13B.weight_bytes) / LLAMA_13B.kv_bytes) // 16
    assert memory_of(LLAMA_13B, A100) == Memory(pages, 16, 0, 4096, 4096)
    some = memory_of(
        LLAMA_13B, A100, page_tokens=8, host_bytes=10.9 * 8 * LLAMA_13B.kv_bytes, step_tokens=7, sequences=5
    )
    assert some == Memory(int((80e9 - LLAMA_13B.weight_bytes) / LLAMA_13B.kv_bytes) // 8, 8, 10, 7, 5)


def test_one_token_beside_the_weights_is_enough_and_stages_have_a_layer_at_least():
    tight = replace(A100, memory=float(LLAMA_13B.weight_bytes + LLAMA_13B.kv_bytes))
    assert capacity(LLAMA_13B, tight) == 1
    with pytest.raises(InputError) as caught:
        capacity(LLAMA_13B, replace(tight, memory=tight.memory - 1))
    assert str(caught.value) == "devices is 1 x A100 80 GB, but must be enough for LLaMA-13B's 26 GB of weights"
    assert capacity(LLAMA_13B, A100, Spread(40)) > 0
    with pytest.raises(InputError, match=r"^devices is 41 x A100 80 GB"):
        capacity(LLAMA_13B, A100, Spread(41))
    with pytest.raises(InputError) as caught:
        spread(GPT_3_175B, A100, 2)
    assert str(caught.value) == "devices is 2 x A100 80 GB, but must be enough for GPT-3 175B's 350 GB of weights"
