"""The reference load repeats observed requests at rates relative to a device's capacity."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.errors import InputError
from pliant.packing.scheduling.iteration_cost import LinearCost
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.reference import ReferenceConfig, capacity, reference_load
from pliant.packing.scheduling.request import Memory
from pliant.packing.scheduling.simulated import simulate, summary
from tests.fixtures.packing.tiny import CONTEXT, some_packing


def load(packing=None, seed: int = 0, **changes):
    packing = packing or some_packing()
    return reference_load(packing, CONTEXT, capacity(packing), seed, ReferenceConfig(**changes))


def test_each_prompt_repeats_an_observed_request_with_what_was_forecast_for_it():
    packing, reference = some_packing(), load()
    for prompt, row in zip(reference.prompts, reference.rows, strict=True):
        assert prompt.tokens == packing.prompt_tokens[row]
        assert reference.lengths[prompt.id] == prompt.exact == packing.output_tokens[row]
        assert np.array_equal(np.float32(prompt.forecast), packing.forecasts[row])
        assert prompt.tokens + prompt.limit == CONTEXT
        assert prompt.bucket == packing.buckets[row]


def test_a_memory_smaller_than_the_context_bounds_prompts_and_outputs():
    packing = some_packing(memory=Memory(pages=5, page_tokens=8, step_tokens=32, sequences=8))
    reference = load(packing)
    assert all(
        prompt.tokens + prompt.limit == 40 and 1 <= reference.lengths[prompt.id] <= prompt.limit
        for prompt in reference.prompts
    )
    run = simulate(reference.prompts, reference.lengths, Rules("paged", CONTEXT), packing.memory, packing.steps)
    assert summary(run).finished == len(reference.prompts)


def test_the_capacity_is_what_a_simulated_device_does_when_it_is_asked_far_too_much():
    """The capacity is an upper estimate, but not far off."""
    packing = some_packing()
    reference = reference_load(packing, CONTEXT, capacity(packing), 0, ReferenceConfig((9.0,), (9.0,), 400))
    run = simulate(reference.prompts, reference.lengths, Rules("oracle", CONTEXT), packing.memory, packing.steps)
    assert 0.6 < summary(run).sequences_per_second / capacity(packing) < 1.1


@pytest.mark.parametrize(
    "told", [{"requests": 0}, {"quiet": ()}, {"quiet": (0.5,), "loud": (1.0, 2.0)}, {"loud": (0.0, 1.0)}]
)
def test_a_load_of_nothing_is_refused(told):
    with pytest.raises(InputError, match="reference"):
        ReferenceConfig(**told)


@pytest.mark.parametrize(
    ("memory", "batch"),
    [
        (Memory(50, 8, 0, 128, 64), 16),  # 400 tokens by 25
        (Memory(50, 8, 0, 128, 10), 10),  # places
        (Memory(50, 8, 0, 7, 10), 7),  # tokens that an iteration reads
        (Memory(1, 8, 0, 128, 64), 1),  # a sequence at least
    ],
)
def test_the_capacity_is_that_of_paper_and_pencil(memory, batch):
    """A sequence holds its prompt of 20 tokens and half of its output of 10."""
    steps = LinearCost(base=0.5, query=0.01, sequence=0.002, token=0.0001, pair=0.0)
    packing = some_packing(
        count=2,
        memory=memory,
        steps=steps,
        prompt_tokens=np.array([10, 30], np.int32),
        output_tokens=np.array([4, 16], np.int32),
    )
    iteration = 0.5 + 0.01 * batch + 0.002 * batch + 0.0001 * 25 * batch
    assert capacity(packing) == pytest.approx(1 / (10 * iteration / batch + 0.01 * 20))


def test_a_load_begins_at_nothing_counts_its_prompts_and_keeps_the_order_of_time():
    reference = load(requests=40, quiet=(0.5,), loud=(1.5,))
    assert [prompt.id for prompt in reference.prompts] == list(range(len(reference.prompts)))
    times = [prompt.arrival for prompt in reference.prompts]
    assert times == sorted(times) and times[0] >= 0
    seconds = 40 / capacity(some_packing())
    assert [segment.seconds for segment in reference.segments] == pytest.approx([seconds] * 2)
    assert times[-1] <= 2 * seconds
    assert {type(row) for row in reference.rows} == {int} and set(reference.lengths) == set(range(len(times)))


def test_an_observed_request_longer_than_the_context_is_cut_to_it_and_one_of_no_tokens_has_one():
    packing = some_packing(
        count=2, prompt_tokens=np.array([500, 20], np.int32), output_tokens=np.array([500, 0], np.int32)
    )
    prompts = {row: prompt for prompt, row in zip(load(packing).prompts, load(packing).rows, strict=True)}
    assert [(prompts[row].tokens, prompts[row].limit, prompts[row].exact) for row in (0, 1)] == [
        (CONTEXT - 1, 1, 1),
        (20, CONTEXT - 20, 1),
    ]
