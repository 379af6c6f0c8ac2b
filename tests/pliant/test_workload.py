"""Loads: rates, seeds, the reference loads of gates, and worlds that differ from the profile."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from pliant.bins import simulated as bins
from pliant.cascade import simulated as cascade
from pliant.tokens import simulated as tokens
from pliant.workload import RequestKind, Segment, markov_modulated, piecewise, poisson, requests, segment_of
from pliant.worlds import Course, Measured, World


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_poisson_arrivals_have_the_rate_and_the_spread_of_poisson():
    times = poisson(50, 400, rng())
    assert len(times) == pytest.approx(20_000, rel=0.03)
    assert np.all(np.diff(times) >= 0)
    assert 0 <= times[0] <= times[-1] < 400
    gaps = np.diff(times)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.05)


def test_each_segment_has_its_own_rate():
    segments = [Segment(10, 200), Segment(100, 100), Segment(0, 50)]
    times = piecewise(segments, rng())
    counts = np.bincount(segment_of(times, segments), minlength=3)
    assert counts[0] == pytest.approx(2000, rel=0.1)
    assert counts[1] == pytest.approx(10_000, rel=0.05)
    assert counts[2] == 0
    assert np.all(np.diff(times) >= 0)


def test_a_markov_load_fills_its_time_and_never_stays_in_a_state_when_it_jumps():
    segments, times = markov_modulated([5, 50, 500], dwell=2.0, seconds=300, rng=rng(1))
    assert sum(s.seconds for s in segments) == pytest.approx(300)
    assert all(a.rate != b.rate for a, b in pairwise(segments))
    assert {s.rate for s in segments} == {5, 50, 500}
    assert np.mean([s.seconds for s in segments]) == pytest.approx(2.0, rel=0.3)
    assert len(times) == pytest.approx(sum(s.rate * s.seconds for s in segments), rel=0.05)


def test_requests_carry_their_kinds_deadline_and_utility():
    kinds = [RequestKind("a", 0.5, 0.1), RequestKind("b", 2.0, 0.9)]
    drawn = requests(np.linspace(0, 1, 2000), kinds, rng())
    assert [r.id for r in drawn] == list(range(2000))
    for request in drawn:
        kind = kinds[0] if request.task == "a" else kinds[1]
        assert (request.deadline, request.utility) == (request.arrival + kind.deadline, kind.utility)
    assert sum(r.task == "a" for r in drawn) == pytest.approx(1000, rel=0.15)


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


def test_a_measured_world_takes_what_the_like_has_taken():
    """Short launches took three times their seconds, long ones these or twice these."""
    short_N, long_N = np.full(300, 0.001), np.linspace(0.1, 0.2, 300)
    took_N = np.concatenate([3 * short_N, long_N * (1 + np.arange(300) % 2)])
    course = Measured(np.concatenate([short_N, long_N]), took_N, 3)
    assert {course.seconds(0.001, 5.0) for _ in range(50)} == {0.003}
    drawn = np.array([course.seconds(0.15, 5.0, setting=1, size=8, length=3) for _ in range(400)])
    assert set(drawn.round(9)) == {0.15, 0.3} and drawn.mean() == pytest.approx(0.225, rel=0.05)
    few = Measured(np.array([0.1]), np.array([0.2]), 3)
    assert few.seconds(7.0, 0.0) == pytest.approx(14.0)


def mean_seconds(world: World, at: float = 0.0, count: int = 4000, **key) -> float:
    course = Course(world, 3)
    return float(np.mean([course.seconds(1.0, at, **key) for _ in range(count)]))


@pytest.mark.parametrize(
    ("world", "at", "mean"),
    [
        (World("noise", noise=0.5), 0.0, math.exp(0.125)),
        (World("pauses", pause=0.1, pause_seconds=2.0), 0.0, 1.2),
        (World("pauses over", pause=0.1, pause_seconds=2.0, pausing=(5.0, 6.0)), 4.0, 1.0),
        (World("step before", steps=((3.0, 2.0), (6.0, 1.0))), 2.9, 1.0),
        (World("step", steps=((3.0, 2.0), (6.0, 1.0))), 3.0, 2.0),
        (World("step over", steps=((3.0, 2.0), (6.0, 1.0))), 6.0, 1.0),
        (World("drift", drift=0.1), 10.0, math.e),
    ],
)
def test_seconds_are_on_average_what_the_world_says(world: World, at: float, mean: float) -> None:
    assert mean_seconds(world, at) == pytest.approx(mean, rel=0.05)


def test_errors_stay_the_same_for_an_operating_point_a_size_and_a_length_and_differ_between_them() -> None:
    for field, key in (("by_setting", "setting"), ("by_size", "size"), ("by_length", "length")):
        course = Course(World("errors", **{field: 0.3}), 5)
        seconds = [[course.seconds(1.0, at, **{key: of}) for at in (0.0, 1.0)] for of in (1, 4, 16, 64)]
        assert all(first == again for first, again in seconds)
        assert len({first for first, _ in seconds}) == 4
