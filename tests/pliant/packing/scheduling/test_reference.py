"""The reference load repeats observed requests at rates relative to a device's capacity."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.packing.scheduling.iteration_cost import LinearCost, Point, fit
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.reference import ReferenceConfig, best_batch, capacity, reference_load, rules_of
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


@pytest.mark.parametrize(
    ("outputs", "base", "limit", "chosen"),
    [
        ((80, 80), 7.5e-3, 40, 9),  # a sequence holds 60 tokens and reads 1.25: n / (base + 75e-6 n^2) is most at 10
        ((80, 80), 7.5e-3, 8, 8),
        ((20, 180), 12.24e-3, 40, 9),  # it holds 102 on average over time, as the long one runs nine times as long
    ],
)
def test_the_smallest_batch_of_nearly_the_best_rate_is_that_of_paper_and_pencil(outputs, base, limit, chosen):
    pairs_alone = LinearCost(base=base, query=0.0, sequence=0.0, token=0.0, pair=1e-6)
    assert best_batch(pairs_alone, (20, 20), outputs, limit) == chosen


def test_the_rules_of_a_plan_are_its_level_its_patience_and_the_cost_of_its_iterations():
    plan = some_packing(level=0.75, patience=2.5)
    assert rules_of(plan, 300) == Rules("default", 300, 0.75, 0.05, 2.5, True, cost=plan.steps)
    assert rules_of(plan, 300, "s3").policy == "s3"
    assert rules_of(plan, 300, engine="pliant") == rules_of(plan, 300)
    on_vllm = replace(rules_of(plan, 300), preemption_target=0.0, turnover_preemptions=2.0)
    assert rules_of(plan, 300, engine="vllm") == rules_of(replace(plan, engine="vllm"), 300) == on_vllm
    with pytest.raises(InputError, match="policy is best"):
        rules_of(plan, 300, "best")


coefficient = st.floats(0.0, 1.0)


def points(steps: LinearCost, seed: int, noise: float = 0.0, count: int = 80) -> list[Point]:
    rng = np.random.default_rng(seed)
    measured = []
    for _ in range(count):
        sequences = int(rng.integers(1, 64))
        queries, cached = sequences + int(rng.integers(0, 400)), sequences * int(rng.integers(1, 900))
        seconds = float(steps.seconds(queries, sequences, cached)) * float(np.exp(noise * rng.normal()))
        measured.append(Point(queries, sequences, cached, seconds))
    return measured


@given(st.floats(0.01, 1.0), coefficient, coefficient, coefficient, coefficient, st.integers(0, 2**32 - 1))
def test_known_coefficients_are_found_again(base, query, sequence, token, pair, seed):
    truth = LinearCost(base, 1e-3 * query, 1e-3 * sequence, 1e-5 * token, 1e-7 * pair)
    fitted = fit(points(truth, seed), swap=0.25)
    for name in ("base", "query", "sequence", "token", "pair"):
        assert getattr(fitted, name) == pytest.approx(getattr(truth, name), rel=1e-3, abs=1e-9)
    assert fitted.error < 1e-6 and fitted.swap == 0.25


def test_an_error_is_relative_so_that_a_short_iteration_counts_as_much_as_a_long_one():
    """The sum of the squares of a/s - 1 is least where a is the sum of 1/s over that of 1/s^2."""
    measured = [Point(1, 1, 1, seconds) for seconds in (0.01, 0.01, 0.01, 0.04)]
    assert float(fit(measured).seconds(1, 1, 1)) == pytest.approx(325 / 30625, rel=1e-6)
    assert fit(measured).error == pytest.approx(325 / 306.25 - 1, rel=1e-6)
