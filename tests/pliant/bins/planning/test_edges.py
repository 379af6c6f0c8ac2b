"""Edges agree with an exhaustive search; and which batch sizes are worthwhile."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pliant.bins.planning.edges import choose_edges, padding_cost, worthwhile_batches
from tests.fixtures.processor import cost


def every_choice(requests, seconds, count, candidates=None):
    """Return the least padding cost of all sets of at most `count` lengths."""
    longest = len(requests) - 1
    inner = sorted({n for n in (candidates or range(1, longest)) if n < longest})
    return min(
        padding_cost((*chosen, longest), requests, seconds)
        for size in range(min(count, len(inner) + 1))
        for chosen in combinations(inner, size)
    )


@st.composite
def histograms(draw):
    size = draw(st.integers(1, 9))
    requests = draw(st.lists(st.integers(0, 5), min_size=size + 1, max_size=size + 1))
    seconds = draw(st.lists(st.integers(1, 9), min_size=size + 1, max_size=size + 1))
    return requests, seconds


@given(histograms(), st.integers(1, 4), st.sets(st.integers(1, 9), min_size=1))
def test_no_other_choice_of_the_candidates_costs_less(histogram, count, candidates):
    requests, seconds = histogram
    candidates = {min(length, len(requests) - 1) for length in candidates}
    edges = choose_edges(requests, seconds, count, sorted(candidates))
    assert set(edges[:-1]) <= candidates
    assert padding_cost(edges, requests, seconds) == every_choice(requests, seconds, count, candidates)


def test_padding_cost_is_the_sum_over_requests_of_the_runtime_each_fits():
    requests, seconds = np.array([1, 2, 0, 3, 4]), np.array([9.0, 1.0, 2.0, 5.0, 7.0])
    one_by_one = sum(n * seconds[2 if length <= 2 else 4] for length, n in enumerate(requests))
    assert padding_cost((2, 4), requests, seconds) == one_by_one


def test_sixteen_of_512_candidates_take_no_more_than_a_few_million_additions():
    rng = np.random.default_rng(0)
    requests, seconds = rng.random(513), np.sort(rng.random(513)) + 0.1
    assert len(choose_edges(requests, seconds, 16)) == 16
    assert cost(lambda: choose_edges(requests, seconds, 16)) < 40


def test_a_batch_is_worthwhile_while_each_text_still_takes_less_by_the_gain():
    assert worthwhile_batches({1: 1.0, 2: 1.6, 4: 3.1, 8: 6.0, 16: 12.5}, 0.05) == (1, 2, 8)
    assert worthwhile_batches({1: 1.0, 2: 2.0, 4: 4.0}) == (1,)
