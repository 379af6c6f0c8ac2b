"""Published models on published devices: tokens that fit, seconds of an iteration, and spreads over devices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.packing.engine.hardware import (
    A100,
    ALONE,
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
from pliant.packing.scheduling.request import Memory
from tests.fixtures.packing.values import is_frozen

LARGE_MODELS = (GPT_J_6B, LLAMA_13B, GPT_NEOX_20B, LLAMA_33B, GPT_3_175B)
ORCA = {GPT_J_6B: 72, LLAMA_13B: 32, GPT_NEOX_20B: 17, LLAMA_33B: 4}


@pytest.mark.parametrize(("model", "sequences"), ORCA.items())
def test_so_many_sequences_of_2048_tokens_fit_on_one_a100(model, sequences):
    """S3's Table 2 has mean batches of 69.9, 31.6, 16.9 and 4 if the maximum is reserved."""
    assert capacity(model, A100) // 2048 == sequences


def test_bytes_of_a_token_are_a_key_and_a_value_in_every_layer():
    assert LLAMA_13B.kv_bytes == 2 * 40 * 5120 * 2
    assert LLAMA_13B.weight_bytes == pytest.approx(26e9, rel=0.01)


@pytest.mark.parametrize("model", LARGE_MODELS)
def test_layers_and_width_account_for_the_parameters(model):
    """A layer has 12 width^2 parameters; the rest are embeddings."""
    assert model.parameters == pytest.approx(12 * model.layers * model.hidden**2, rel=0.08)


def test_weights_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match=r"4 x A100 80 GB, but must be enough for GPT-3 175B's 350 GB"):
        capacity(GPT_3_175B, A100, Spread(4))
    assert capacity(GPT_3_175B, A100, Spread(5)) > 0


def test_the_fullest_stage_bounds_the_cache():
    """Of 96 layers in ten stages, some stages have ten, so less memory is left than a tenth of the model would leave."""
    even = (10 * A100.memory - GPT_3_175B.weight_bytes) / GPT_3_175B.kv_bytes
    assert capacity(GPT_3_175B, A100, Spread(10)) < 0.95 * even
    assert capacity(GPT_3_175B, A100, Spread(8)) == pytest.approx(
        (8 * A100.memory - GPT_3_175B.weight_bytes) / GPT_3_175B.kv_bytes, rel=1e-3
    )


def test_memory_is_told_in_pages_of_device_and_host():
    memory = memory_of(LLAMA_13B, A100, host_bytes=LLAMA_13B.kv_bytes * 16 * 10)
    assert (memory.pages, memory.page_tokens, memory.host_pages) == (capacity(LLAMA_13B, A100) // 16, 16, 10)


def test_few_sequences_take_as_long_as_reading_weights_and_cache():
    seconds = Roofline(LLAMA_13B, A100).seconds(4, 4, 1000)
    assert seconds == pytest.approx((26.032e9 + 1000 * LLAMA_13B.kv_bytes) / 2.0e12)


def test_a_long_prompt_takes_as_long_as_its_products():
    assert Roofline(LLAMA_13B, A100).seconds(4096, 1, 4096) == pytest.approx(2 * 13.016e9 * 4096 / (312e12 * 0.6))


def test_many_iterations_are_told_at_once_like_one_by_one():
    steps, cached = Roofline(GPT_3_175B, A100, Spread(4, 2), 1e-4), np.arange(100, 3000, 700)
    together = steps.seconds(7, 7, cached)
    assert together.tolist() == [float(steps.seconds(7, 7, int(c))) for c in cached]


def test_attention_run_by_the_host_costs_each_sequence():
    alone = Roofline(LLAMA_13B, A100).seconds(8, 8, 800)
    assert Roofline(LLAMA_13B, A100, sequence=1e-3).seconds(8, 8, 800) == pytest.approx(alone + 8e-3)


def test_stages_read_their_weights_for_every_micro_batch_but_share_the_cache():
    """With eight busy stages an iteration takes as long as reading all weights and an eighth of the cache."""
    seconds = Roofline(GPT_3_175B, A100, Spread(8)).seconds(64, 64, 6400)
    assert seconds == pytest.approx((350e9 + GPT_3_175B.kv_bytes * 6400 / 8) / 2.0e12)


def test_one_sequence_passes_all_stages_one_after_another():
    seconds = Roofline(GPT_3_175B, A100, Spread(8)).seconds(1, 1, 100)
    assert seconds == pytest.approx((350e9 + GPT_3_175B.kv_bytes * 100) / 2.0e12)


def test_devices_that_share_layers_read_them_together_and_exchange_sums():
    shared, staged = (Roofline(GPT_3_175B, A100, way).seconds(64, 64, 6400) for way in (Spread(1, 8), Spread(8)))
    read = (350e9 + GPT_3_175B.kv_bytes * 6400) / 8 / 2.0e12
    assert read < shared < staged


def test_a_preempted_sequence_moves_over_the_link_to_the_host():
    assert Roofline(LLAMA_13B, A100).swap_seconds(100) == pytest.approx(100 * LLAMA_13B.kv_bytes / 16e9)
    assert Roofline(GPT_3_175B, A100, Spread(8)).swap_seconds(100) == pytest.approx(
        100 * GPT_3_175B.kv_bytes / 8 / 16e9
    )


def test_fast_links_share_layers_and_slow_ones_make_stages():
    assert spread(GPT_3_175B, A100, 8) == Spread(1, 8)
    slow = replace(A100, peer=0.2e9)
    assert spread(GPT_3_175B, slow, 8) == Spread(8, 1)


def test_heads_that_do_not_divide_are_not_split():
    """On ten devices, 96 heads go over two, and five such pairs make a pipeline."""
    assert spread(GPT_3_175B, A100, 10) == Spread(5, 2)


def test_too_few_devices_are_refused():
    with pytest.raises(InputError, match="350 GB of weights"):
        spread(GPT_3_175B, A100, 2)


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


@pytest.mark.parametrize(
    ("model", "width"), [(GPT_J_6B, 256), (LLAMA_13B, 128), (GPT_NEOX_20B, 96), (LLAMA_33B, 128), (GPT_3_175B, 128)]
)
def test_heads_are_as_wide_as_published_and_contexts_as_long(model, width):
    """Head widths of the models' own papers; all of them read 2,048 tokens."""
    assert model.heads * width == model.hidden
    assert model.context == 2048


@pytest.mark.parametrize(("stages", "tensor", "devices"), [(1, 1, 1), (4, 1, 4), (1, 8, 8), (3, 2, 6)])
def test_a_spread_takes_the_devices_of_all_its_stages(stages, tensor, devices):
    assert Spread(stages, tensor).devices == devices
    assert Spread(stages, tensor).share(GPT_3_175B) == pytest.approx(1 / devices)  # 96 layers divide by all of these


def test_models_and_the_accelerator_are_as_published():
    figures = [(m.name, m.layers, m.hidden, m.heads, m.parameters, m.context) for m in LARGE_MODELS]
    assert figures == [
        ("GPT-J 6B", 28, 4096, 16, 6.051e9, 2048),
        ("LLaMA-13B", 40, 5120, 40, 13.016e9, 2048),
        ("GPT-NeoX 20B", 44, 6144, 64, 20.555e9, 2048),
        ("LLaMA-33B", 60, 6656, 52, 32.529e9, 2048),
        ("GPT-3 175B", 96, 12288, 96, 175.0e9, 2048),
    ]
    assert (A100.memory, A100.bandwidth, A100.flops, A100.peer, A100.host, A100.efficiency) == (
        *(80e9, 2.0e12, 312e12, 300e9, 16e9),
        0.6,
    )
    assert Roofline(LLAMA_13B, A100) == Roofline(LLAMA_13B, A100, Spread(1, 1), 0.0) and Spread(1, 1) == ALONE
    assert all(map(is_frozen, (LLAMA_13B, A100, ALONE, Roofline(LLAMA_13B, A100))))


def test_devices_that_share_layers_sum_each_twice_in_a_ring():
    """An exchange takes 10 us to begin, and sends 14 of 16 halves of the activations over a link of 300 GB/s."""
    seconds = float(Roofline(GPT_3_175B, A100, Spread(1, 8)).seconds(64, 64, 6400))
    read = (350e9 + GPT_3_175B.kv_bytes * 6400) / 8 / 2.0e12
    sums = 2 * 96 * (10e-6 + 2 * (7 / 8) * (2 * 12288 * 64) / 300e9)
    assert seconds == pytest.approx(read + sums, rel=1e-12)
    staged = float(Roofline(GPT_3_175B, A100, Spread(2, 4), 1e-3).seconds(64, 64, 6400))
    read = (350e9 + GPT_3_175B.kv_bytes * 3200) / 4 / 2.0e12
    sums = 2 * 96 * (10e-6 + 2 * (3 / 4) * (2 * 12288 * 32) / 300e9)
    assert staged == pytest.approx(read + 2 * 1e-3 * 32 + sums, rel=1e-12)


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


def test_the_spread_is_chosen_for_sixty_four_sequences_of_half_the_context():
    """So slow a link is worth it for few sequences only, where reading the weights takes longest."""
    slow = replace(A100, peer=30e9)
    few, many = (spread(GPT_3_175B, slow, 8, sequences) for sequences in (1, 4096))
    assert few != many
    assert spread(GPT_3_175B, slow, 8) == spread(GPT_3_175B, slow, 8, 64)
