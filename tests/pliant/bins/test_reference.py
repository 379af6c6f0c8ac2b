"""The reference load of bins: rates around the capacity, lengths and deadlines of each stream, and the same by a seed."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from pliant.bins.reference import ReferenceConfig, capacity, reference_load

LENGTHS, SLOS = {"news": [5, 7], "mail": [100]}, {"news": 0.1, "mail": 0.5}
CONFIG = ReferenceConfig(quiet=(0.5, 0.8), loud=(1.5, 2.0), seconds=3.0)


def test_the_capacity_is_that_of_a_device_that_serves_all_streams_in_turn():
    streams = [SimpleNamespace(mean_seconds=seconds) for seconds in (0.1, 0.3)]
    assert capacity(SimpleNamespace(streams=streams)) == pytest.approx(5.0)  # two requests take 0.4 s


@pytest.mark.parametrize("seed", range(3))
def test_quiet_and_loud_stretches_alternate_and_each_rate_has_one(seed):
    segments = reference_load(LENGTHS, SLOS, 200.0, seed, CONFIG).segments
    assert [segment.seconds for segment in segments] == [3.0] * 4
    assert sorted(segment.rate for segment in segments[::2]) == [100.0, 160.0]
    assert sorted(segment.rate for segment in segments[1::2]) == [300.0, 400.0]


def test_requests_are_numbered_in_time_and_of_all_streams_alike():
    load = reference_load(LENGTHS, SLOS, 200.0, 4, CONFIG)
    requests = load.requests
    assert [request.id for request in requests] == list(range(len(requests)))
    times = [request.arrival for request in requests]
    assert times == sorted(times) and times[0] >= 0 and times[-1] < 12
    # 2880 are expected, with a deviation of 54
    assert abs(len(requests) - 3 * (100 + 160 + 300 + 400)) < 5 * 54
    counts = Counter(request.task for request in requests)
    assert abs(counts["news"] - counts["mail"]) < 5 * 54
    first = sum(at < 3.0 for at in times)
    assert abs(first - 3 * load.segments[0].rate) < 5 * 22
    for request in requests:
        assert request.deadline == pytest.approx(request.arrival + SLOS[request.task])
        assert request.utility == 1.0
    lengths = Counter(request.length for request in requests)
    assert set(lengths) == {5, 7, 100} and abs(lengths[5] - lengths[7]) < 5 * 38
    assert lengths[100] == counts["mail"]


def test_the_same_seed_gives_the_same_load_and_another_one_another():
    first, again, other = (reference_load(LENGTHS, SLOS, 50.0, seed, CONFIG) for seed in (1, 1, 2))
    assert first == again != other
