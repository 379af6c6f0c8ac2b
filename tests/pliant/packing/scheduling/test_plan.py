"""The batch beyond which more sequences generate no more tokens a second, and the cost of a preemption."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pliant.errors import InputError
from pliant.packing.scheduling.iteration_cost import LinearCost
from pliant.packing.scheduling.plan import WORTH, best_batch, rules_of
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory, Prompt
from pliant.packing.scheduling.simulated import simulate, summary
from tests.fixtures.packing.tiny import some_packing

PAIRS = LinearCost(base=4e-3, query=1e-4, sequence=1e-4, token=1e-6, pair=1e-7)
OWN = LinearCost(base=4e-3, query=1e-4, sequence=1e-4, token=1e-6, pair=0.0)
PROMPTS, OUTPUTS = [20] * 400, [80] * 400


def throughput(steps, most: int) -> float:
    """Return the tokens a second of 400 requests that all wait from the start, with memory for all of them."""
    prompts = [Prompt(i, 0.0, 20, 80, (80.0,) * 8) for i in range(400)]
    memory = Memory(pages=20_000, page_tokens=4, step_tokens=4096, sequences=most)
    return summary(simulate(prompts, {p.id: 80 for p in prompts}, Rules("paged", 128), memory, steps)).tokens_per_second


def test_where_every_pair_is_read_the_chosen_batch_makes_nearly_the_most_tokens_that_any_batch_makes():
    chosen = best_batch(PAIRS, PROMPTS, OUTPUTS, 400)
    best = max(throughput(PAIRS, most) for most in (5, 10, 15, 20, 30, 40, 60, 100, 200, 400))
    assert 5 < chosen < 60
    assert throughput(PAIRS, chosen) > 0.93 * best
    assert throughput(PAIRS, 400) < 0.5 * best


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


def test_where_each_sequence_reads_its_own_tokens_the_largest_batches_are_worth_it():
    assert best_batch(OWN, PROMPTS, OUTPUTS, 64) > 0.9 * WORTH * 64


@pytest.mark.parametrize("steps", [PAIRS, OWN])
def test_the_limit_is_kept_and_at_least_one_runs(steps):
    assert best_batch(steps, PROMPTS, OUTPUTS, 1) == 1
    assert 1 <= best_batch(steps, [5000], [3], 7) <= 7


def test_where_copies_are_cheap_knowing_it_makes_more_tokens_a_second_and_hardly_fewer_where_they_are_not():
    rng = np.random.default_rng(1)
    prompts = [Prompt(i, 0.0, 8, 60, (2.0, 3.0, 6.0, 10.0, 18.0, 30.0, 40.0, 60.0)) for i in range(300)]
    lengths = {prompt.id: int(np.clip(rng.lognormal(2.3, 0.9), 1, 60)) for prompt in prompts}
    memory = Memory(pages=32, page_tokens=4, host_pages=1000, step_tokens=128, sequences=64)

    def rate(swap: float, known: bool) -> float:
        steps = LinearCost(5e-3, 3e-4, 1e-4, 2e-6, 0.0, swap)
        rules = Rules("default", 128, cost=steps if known else None)
        return summary(simulate(prompts, lengths, rules, memory, steps)).tokens_per_second

    assert rate(1e-6, True) > 1.05 * rate(1e-6, False)
    assert rate(2e-3, True) > 0.98 * rate(2e-3, False)


def test_the_rules_of_a_plan_are_its_level_its_patience_and_the_cost_of_its_iterations():
    plan = some_packing(level=0.75, patience=2.5)
    assert rules_of(plan, 300) == Rules("default", 300, 0.75, 0.05, 2.5, True, cost=plan.steps)
    assert rules_of(plan, 300, "s3").policy == "s3"
    assert rules_of(plan, 300, engine="pliant") == rules_of(plan, 300)
    on_vllm = replace(rules_of(plan, 300), preemption_target=0.0, turnover_preemptions=2.0)
    assert rules_of(plan, 300, engine="vllm") == rules_of(replace(plan, engine="vllm"), 300) == on_vllm
    with pytest.raises(InputError, match="policy is best"):
        rules_of(plan, 300, "best")
