"""The chosen batch is the best of all subsets at the lengths that are tried; costs are those of the profile."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.cascade.choice import BatchTimes, densest, urgent
from pliant.latency import LatencyTable

TABLE = LatencyTable((16, 64, 256), (1, 3), ((0.010, 0.015), (0.020, 0.050), (0.080, 0.270)))
CLOCK = BatchTimes(TABLE)


@dataclass(frozen=True)
class Text:
    deadline: float
    length: int
    value: float


def texts(lengths) -> st.SearchStrategy[list[Text]]:
    text = st.builds(Text, st.floats(0.0, 0.4), lengths, st.sampled_from([0.1, 0.5, 1.0]) | st.floats(0.001, 1.0))
    return st.lists(text, min_size=1, max_size=7).map(lambda some: sorted(some, key=lambda text: text.deadline))


MEASURED = texts(st.sampled_from(TABLE.settings))
"""Texts of measured lengths only."""

ANY = texts(st.integers(1, 400))


def took(some: list[Text], slowdown: float, beyond: float) -> float:
    longest = max(text.length for text in some)
    return float(CLOCK.batch_seconds(longest)[len(some) - 1]) * slowdown + beyond


def brute(waiting, now=0.0, slowdown=1.0, beyond=0.0, must=None) -> float | None:
    """Return the density of the best of all subsets."""
    feasible = []
    for size in range(1, CLOCK.most + 1):
        for chosen in combinations(range(len(waiting)), size):
            some = [waiting[i] for i in chosen]
            seconds = took(some, slowdown, beyond)
            if (must is None or must in chosen) and all(text.deadline >= now + seconds for text in some):
                feasible.append(sum(text.value for text in some) / seconds)
    return max(feasible, default=None)


CASES = given(MEASURED, st.sampled_from([0.0, 0.1]), st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from([0.0, 0.01]))


@CASES
def test_the_densest_batch_is_that_of_all_subsets(waiting, now, slowdown, beyond):
    batch, best = densest(waiting, CLOCK, now, slowdown, beyond), brute(waiting, now, slowdown, beyond)
    assert (batch is None) == (best is None)
    assert batch is None or batch.density == pytest.approx(best)


@CASES
def test_the_most_urgent_batch_is_the_densest_of_all_subsets_with_the_first(waiting, now, slowdown, beyond):
    batch, best = urgent(waiting, CLOCK, now, slowdown, beyond), brute(waiting, now, slowdown, beyond, must=0)
    assert (batch is None) == (best is None)
    assert batch is None or (0 in batch.chosen and batch.density == pytest.approx(best))


@pytest.mark.parametrize("find", [densest, urgent])
@given(ANY, st.floats(0.5, 2.0), st.floats(0.0, 0.02))
def test_a_batch_of_any_lengths_keeps_its_deadlines_and_says_what_it_takes(find, waiting, slowdown, beyond):
    waiting = [text for text in waiting if text.deadline >= took([text], slowdown, beyond)]
    batch = find(waiting, CLOCK, 0.0, slowdown, beyond)
    if batch is None:
        assert not waiting
        return
    some = [waiting[i] for i in batch.chosen]
    assert len(set(batch.chosen)) == len(some) <= CLOCK.most
    seconds = took(some, slowdown, beyond)
    assert batch.seconds * slowdown + beyond == pytest.approx(seconds)
    assert all(text.deadline >= seconds for text in some)
    assert batch.density == pytest.approx(sum(text.value for text in some) / seconds)
    assert batch.density <= brute(waiting, 0.0, slowdown, beyond) * (1 + 1e-9)
