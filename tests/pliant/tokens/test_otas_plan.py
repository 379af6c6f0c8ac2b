"""The published dynamic programme is as published, including its defect."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pliant.tokens.otas_plan import DROP, OtasBatch, otas_plan

# Eighths: sums of them are exact, so plans can be compared without tolerance.
eighths = st.integers(1, 40).map(lambda n: n / 8)


@st.composite
def queues(draw, max_batches=5, gammas=4):
    g = draw(st.integers(1, gammas))
    row = st.lists(eighths, min_size=g, max_size=g).map(np.array)
    return draw(st.lists(st.builds(OtasBatch, eighths, row, row), max_size=max_batches))


def earned(batches, choices, clock):
    """Return what the choices earn by the programme's own estimate, or -inf if a batch ends after its deadline."""
    total = 0.0
    for batch, choice in sorted(zip(batches, choices, strict=True), key=lambda pair: pair[0].deadline):
        if choice != DROP:
            clock += batch.seconds_G[choice]
            total += batch.utility_G[choice] if clock <= batch.deadline else -np.inf
    return total


def in_plain_loops(batches, clock):
    """Return the utility of Algorithm 2 written as plain loops over (batch, choice)."""
    dp, clocks = {DROP: 0.0}, {DROP: clock}
    for batch in sorted(batches, key=lambda b: b.deadline):
        best, when = {}, {}
        for choice in (DROP, *range(len(batch.seconds_G))):
            for before in (DROP, *range(len(batch.seconds_G))):
                if before not in dp:
                    continue
                end = clocks[before] + (batch.seconds_G[choice] if choice != DROP else 0.0)
                gain = batch.utility_G[choice] if choice != DROP else 0.0
                fits = choice == DROP or end <= batch.deadline
                if fits and (choice not in best or dp[before] + gain > best[choice]):
                    best[choice], when[choice] = dp[before] + gain, end
        dp, clocks = best, when
    return max(dp.values())


@given(queues(), st.sampled_from([0.0, 0.5, 2.0]))
def test_it_earns_what_the_published_loops_earn(batches, clock):
    choices = otas_plan(batches, clock)
    assert len(choices) == len(batches)
    assert earned(batches, choices, clock) == in_plain_loops(batches, clock)


@given(queues(max_batches=4, gammas=3))
def test_it_never_earns_more_than_the_best_of_all_choices(batches):
    options = [DROP, *range(len(batches[0].seconds_G))] if batches else [DROP]
    best = max(earned(batches, choices, 0.0) for choices in product(options, repeat=len(batches)))
    assert earned(batches, otas_plan(batches, 0.0), 0.0) <= best


def test_a_state_with_less_utility_and_an_earlier_clock_is_forgotten():
    """After two batches (1, 0) earns less than (0, 0), but it alone leaves time for the third."""
    first = OtasBatch(9.0, np.array([5.0, 4.0]), np.array([1.0, 0.75]))
    second = OtasBatch(9.0, np.array([1.0, 9.0]), np.array([2.0, 2.0]))
    third = OtasBatch(9.0, np.array([4.0, 4.0]), np.array([3.0, 3.0]))
    queue = [first, second, third]
    assert earned(queue, (1, 0, 0), 0.0) == 5.75
    assert earned(queue, otas_plan(queue, 0.0), 0.0) == 4.0


def test_a_batch_that_ends_exactly_at_its_deadline_counts():
    batch = OtasBatch(1.0, np.array([1.0]), np.array([1.0]))
    assert otas_plan([batch], 0.0) == (0,)
    assert otas_plan([batch], 1e-9) == (DROP,)
