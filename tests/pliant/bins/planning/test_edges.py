"""Edges agree with an exhaustive search; and which batch sizes are worthwhile."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.bins.planning.edges import choose_edges, fixed_edges, padding_cost, worthwhile_batches
from pliant.errors import InputError
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


@given(histograms(), st.integers(1, 6))
def test_no_other_choice_costs_less(histogram, count):
    requests, seconds = histogram
    edges = choose_edges(requests, seconds, count)
    assert edges[-1] == len(requests) - 1 and list(edges) == sorted(set(edges)) and len(edges) <= count
    assert padding_cost(edges, requests, seconds) == every_choice(requests, seconds, count)


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


def test_of_a_staircase_only_the_ends_of_its_treads_are_chosen():
    seconds = np.ceil(np.arange(513) / 64 + 1e-9)
    assert choose_edges(np.ones(513), np.maximum(seconds - (np.arange(513) % 64 == 0), 1), 8) == fixed_edges(512)


def test_seconds_at_lengths_that_are_no_candidates_are_not_read():
    assert choose_edges([0, 1, 1, 1], [np.nan, np.nan, 1.0, 2.0], 2, [2]) == (2, 3)


def test_the_papers_edges_end_with_the_longest_length():
    assert fixed_edges(512) == (64, 128, 192, 256, 320, 384, 448, 512)
    assert fixed_edges(100) == (64, 100) and fixed_edges(30) == (30,)


def test_sixteen_of_512_candidates_take_no_more_than_a_few_million_additions():
    rng = np.random.default_rng(0)
    requests, seconds = rng.random(513), np.sort(rng.random(513)) + 0.1
    assert len(choose_edges(requests, seconds, 16)) == 16
    assert cost(lambda: choose_edges(requests, seconds, 16)) < 40


def test_a_batch_is_worthwhile_while_each_text_still_takes_less_by_the_gain():
    assert worthwhile_batches({1: 1.0, 2: 1.6, 4: 3.1, 8: 6.0, 16: 12.5}, 0.05) == (1, 2, 8)
    assert worthwhile_batches({1: 1.0, 2: 2.0, 4: 4.0}) == (1,)


@pytest.mark.parametrize(
    ("call", "field", "value"),
    [
        (lambda: choose_edges([0, 1], [1.0, 1.0], 0), "count", "0"),
        (lambda: choose_edges([0], [1.0], 1), "histogram and seconds", "(1,) and (1,)"),
        (lambda: choose_edges([[0, 1]], [[1.0, 1.0]], 1), "histogram and seconds", "(1, 2) and (1, 2)"),
        (lambda: choose_edges([0, np.inf], [1.0, 1.0], 1), "requests_by_length", "0.0"),
        (lambda: choose_edges([0, -1], [1.0, 1.0], 1), "requests_by_length", "-1.0"),
        (lambda: choose_edges([0, 1], [1.0, np.inf], 1), "seconds_by_length", "inf"),
        (lambda: choose_edges([0, 1], [1.0, 1.0], 1, [2]), "candidates", "1 to 2"),
        (lambda: choose_edges([0, 1], [1.0, 1.0], 1, [0]), "candidates", "0 to 1"),
        (lambda: padding_cost((0, 2), [0, 1, 1], [1.0] * 3), "edges", "(0, 2)"),
        (lambda: padding_cost((1, 3), [0, 1, 1], [1.0] * 3), "edges", "(1, 3)"),
        (lambda: fixed_edges(0), "step and max_length", "64 and 0"),
        (lambda: fixed_edges(8, 0), "step and max_length", "0 and 8"),
        (lambda: worthwhile_batches({4: 1.0, 2: 1.0}), "seconds_by_batch", "[2, 4]"),
        (lambda: worthwhile_batches({1: 1.0, 2: np.nan}), "seconds_by_batch", "nan"),
    ],
)
def test_what_is_no_histogram_no_latency_or_no_length_is_refused_by_name(call, field, value):
    with pytest.raises(InputError) as caught:
        call()
    assert (caught.value.field, str(caught.value.value)) == (field, value)
