"""The loads that gates judge by: rates around the capacity, requests of all kinds alike, and the same by a seed."""

from __future__ import annotations

from collections import Counter
from functools import partial
from types import SimpleNamespace

import pytest

from pliant.bins import reference as bins
from pliant.cascade import reference as cascade
from pliant.tokens import reference as tokens

LENGTHS, SLOS = {"news": [5, 7], "mail": [100]}, {"news": 0.1, "mail": 0.5}
LOADS = {
    "tokens": (partial(tokens.reference_load, tuple(LENGTHS)), tokens.ReferenceConfig),
    "bins": (partial(bins.reference_load, LENGTHS, SLOS), bins.ReferenceConfig),
    "cascade": (partial(cascade.reference_load, LENGTHS), cascade.ReferenceConfig),
}
KINDS = {
    "tokens": {(task, *kind) for task in LENGTHS for kind in ((0.6, 1.0), (1.0, 0.3))},
    "bins": {(task, slo, 1.0) for task, slo in SLOS.items()},
    "cascade": {(task, *kind) for task in LENGTHS for kind in ((0.3, 1.0), (1.0, 0.5))},
}
every_system = pytest.mark.parametrize("system", LOADS)


@every_system
def test_quiet_and_loud_stretches_alternate_in_an_order_that_is_drawn(system):
    make, config = LOADS[system]
    some = config(quiet=(0.5, 0.8), loud=(1.5, 2.0), seconds=3.0)
    orders = set()
    for seed in range(40):
        segments = make(200.0, seed, some).segments
        assert [segment.seconds for segment in segments] == [3.0] * 4
        orders.add(tuple(segment.rate for segment in segments))
    assert orders == {(q, a, 260.0 - q, 700.0 - a) for q in (100.0, 160.0) for a in (300.0, 400.0)}


@every_system
def test_without_a_setting_stretches_are_between_half_and_twice_the_capacity(system):
    segments = LOADS[system][0](100.0, 0).segments
    assert {segment.seconds for segment in segments} == {4.0}
    assert sorted(segment.rate for segment in segments[::2]) == pytest.approx([50, 65, 80, 95])
    assert sorted(segment.rate for segment in segments[1::2]) == pytest.approx([125, 150, 175, 200])


@every_system
def test_requests_are_numbered_in_time_and_of_all_kinds_alike(system):
    load = LOADS[system][0](200.0, 4)
    requests = load.requests
    assert [request.id for request in requests] == list(range(len(requests)))
    times = [request.arrival for request in requests]
    assert times == sorted(times) and times[0] >= 0 and times[-1] < 32
    expected = sum(segment.rate * segment.seconds for segment in load.segments)
    assert len(requests) == pytest.approx(expected, abs=5 * expected**0.5)
    kinds = Counter((r.task, round(r.deadline - r.arrival, 6), r.utility) for r in requests)
    assert set(kinds) == KINDS[system]
    assert max(kinds.values()) - min(kinds.values()) < 5 * (2 * expected / len(kinds)) ** 0.5
    if system == "cascade":
        assert all(r.length == LENGTHS[r.task][row] for r, row in zip(requests, load.rows, strict=True))
    if system == "bins":
        assert {(r.task, r.length) for r in requests} == {(task, n) for task, some in LENGTHS.items() for n in some}
    else:
        assert load.loud == {r.id for r in requests if r.arrival // 4 % 2 == 1} != set()


@every_system
def test_the_same_seed_gives_the_same_load_and_another_one_another(system):
    first, again, other = (LOADS[system][0](50.0, seed) for seed in (1, 1, 2))
    assert first == again != other


def test_the_capacity_of_bins_is_that_of_a_device_that_serves_all_streams_in_turn():
    streams = [SimpleNamespace(mean_seconds=seconds) for seconds in (0.1, 0.3)]
    assert bins.capacity(SimpleNamespace(streams=streams)) == pytest.approx(5.0)  # two requests take 0.4 s
