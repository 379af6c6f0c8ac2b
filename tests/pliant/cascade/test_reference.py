"""The reference load of cascades: rates around the capacity, texts with their lengths, urgent and patient ones alike."""

from __future__ import annotations

from collections import Counter

import pytest

from pliant.cascade.reference import ReferenceConfig, reference_load

LENGTHS = {"news": [5, 7, 9], "pairs": [100]}
CONFIG = ReferenceConfig(quiet=(0.5, 0.8), loud=(1.5, 2.0), seconds=3.0, urgent=(0.3, 1.0), patient=(1.0, 0.5))


@pytest.fixture(scope="module")
def load():
    return reference_load(LENGTHS, 200.0, 4, CONFIG)


@pytest.mark.parametrize("seed", range(3))
def test_quiet_and_loud_stretches_alternate_and_each_rate_has_one(seed):
    segments = reference_load(LENGTHS, 200.0, seed, CONFIG).segments
    assert [segment.seconds for segment in segments] == [3.0] * 4
    assert sorted(segment.rate for segment in segments[::2]) == [100.0, 160.0]
    assert sorted(segment.rate for segment in segments[1::2]) == [300.0, 400.0]


def test_requests_are_of_all_kinds_alike_and_have_a_texts_length(load):
    kinds = Counter()
    for request, row in zip(load.requests, load.rows, strict=True):
        assert request.length == LENGTHS[request.task][row]
        within = round(request.deadline - request.arrival, 9)
        assert (within, request.utility) in ((0.3, 1.0), (1.0, 0.5))
        kinds[request.task, within] += 1
    assert len(kinds) == 4 and max(kinds.values()) - min(kinds.values()) < 5 * 38
    assert abs(len(load.requests) - 3 * (100 + 160 + 300 + 400)) < 5 * 54
    assert [request.id for request in load.requests] == list(range(len(load.requests)))
    assert Counter(row for row, r in zip(load.rows, load.requests, strict=True) if r.task == "news").keys() == {0, 1, 2}


def test_the_same_seed_gives_the_same_load_and_another_one_another():
    first, again, other = (reference_load(LENGTHS, 50.0, seed, CONFIG) for seed in (1, 1, 2))
    assert first == again != other
