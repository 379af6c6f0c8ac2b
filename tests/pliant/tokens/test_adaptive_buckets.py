"""The default policy where batches are padded to buckets, as captured graphs do: it knows, and chooses sizes by them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.latency import LatencyTable
from pliant.report import report
from pliant.simulator import simulate
from pliant.tokens.adaptive import first_sizes
from pliant.tokens.artifact import RateRule
from pliant.tokens.policies import make
from pliant.tokens.policy import Knowledge
from pliant.tokens.reference import ReferenceConfig, reference_load
from pliant.tokens.simulated import SimulatedDevice
from tests.fixtures.tokens.adaptive import ONE, filled, policy

BUCKETS = (1, 2, 4, 8, 16, 32, 64)
STAIRS = Knowledge(
    LatencyTable(
        (-10, 0), BUCKETS, tuple(tuple(0.001 + cost * n for n in BUCKETS) for cost in (0.0004, 0.0008)), BUCKETS
    ),
    {"easy": {-10: 0.8, 0: 0.9}},
    RateRule((), (0,)),
)


def sizes(adaptive) -> list[int]:
    taken = []
    while len(adaptive):
        taken.append(len(adaptive.decide(ONE, 0.0).run))
        adaptive.check()
    return taken


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [(1, [1]), (3, [3]), (8, [8]), (9, [8, 1]), (17, [16, 1]), (31, [31]), (33, [32, 1]), (48, [32, 16]), (63, [63])],
)
def test_requests_are_divided_into_the_batches_that_take_least_time(waiting, expected):
    """33 requests once ran padded to 64, which takes nearly twice as long as 32."""
    assert sizes(filled(policy(STAIRS), (waiting, "easy", 1.0, 9.0))) == expected


def test_a_full_batch_fills_its_bucket():
    """61 requests would waste less than the twentieth allowed, and yet three more cost nothing."""
    table = LatencyTable((0,), BUCKETS, (tuple(0.02 + 0.0008 * n for n in BUCKETS),), BUCKETS)
    dear = Knowledge(table, STAIRS.accuracy, STAIRS.rule)
    assert sizes(filled(policy(dear, seconds=0.001), (128, "easy", 1.0, 9.0))) == [64, 64]


def test_requests_of_another_setting_join_where_the_bucket_has_room():
    adaptive = filled(policy(STAIRS), (3, "easy", 1.0, 0.5), (1, "easy", 0.02, 0.9))
    assert sizes(adaptive) == [4]


@given(
    st.lists(st.floats(0.001, 1.0), min_size=1, max_size=5),
    st.sets(st.integers(1, 12), min_size=1, max_size=5).map(sorted),
)
def test_no_other_division_takes_less_time(steps, edges):
    """By trying every division of up to twelve requests into batches, each of which takes as long as its bucket."""
    row = np.cumsum(steps + [0.001] * (len(edges) - len(steps)))
    seconds_N = np.array([0.0, *(row[next(i for i, e in enumerate(edges) if e >= n)] for n in range(1, edges[-1] + 1))])
    first = first_sizes(seconds_N, edges)

    def taken(count: int) -> float:
        return 0.0 if not count else float(seconds_N[first[count]]) + taken(count - first[count])

    least = [0.0]
    for count in range(1, edges[-1] + 1):
        least.append(min(float(seconds_N[size]) + least[count - size] for size in range(1, count + 1)))
        assert taken(count) == pytest.approx(least[count])


def test_a_policy_that_knows_the_buckets_earns_more_on_a_device_that_has_them():
    """The device rises in steps; before, the policy planned with a line between them. Deadlines are short here."""
    config = ReferenceConfig(urgent=(0.05, 1.0), patient=(0.1, 0.3))
    smooth = replace(STAIRS, latency=replace(STAIRS.latency, buckets=()))

    def earned(known: Knowledge, seed: int) -> float:
        load = reference_load(["easy"], STAIRS.latency.throughput(0, 64), seed, config).requests[:2000]
        device = SimulatedDevice(STAIRS.latency, STAIRS.accuracy, load, np.random.default_rng(seed))
        return report(simulate(make("default", known), load, device)).utility

    assert earned(STAIRS, 0) > 1.03 * earned(smooth, 0)
