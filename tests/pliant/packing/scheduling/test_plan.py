"""The batch beyond which more sequences generate no more tokens a second, and the cost of a preemption."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pliant.errors import InputError
from pliant.packing.scheduling.iteration_cost import LinearCost
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.reference import best_batch, rules_of
from tests.fixtures.packing.tiny import some_packing


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
