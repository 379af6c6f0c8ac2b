"""At deadlines as short as a GPU allows the default policy's price comes in time for a load that jumps."""

from __future__ import annotations

import pytest

from benchmarks.tokens.short_deadlines import LIMITS, LOADS, STEADY, Earned, earned, known, targets


def test_the_table_is_the_measured_one_in_the_sizes_of_its_graphs() -> None:
    table = known().latency
    assert table.buckets == table.batches == (1, 2, 4, 8, 16, 32, 64)
    assert table.throughput(-20, 64) > table.throughput(0, 64) > 5000


@pytest.mark.parametrize("load", LOADS)
def test_a_jump_of_the_load_is_priced_within_the_time_that_requests_have(load: str) -> None:
    ours = earned("default", load)
    assert ours.bound >= LIMITS[load]
    assert ours.bound <= 1.01, "a lucky run may be a little above a bound of expected utilities"


def test_the_least_share_of_all_seeds_is_the_target() -> None:
    rows = [Earned(load, "default", 0.9, bound) for load in LOADS for bound in (0.8, 0.99)]
    assert [target.measured for target in targets([*rows, Earned(STEADY, "otas", 0.1, 0.1)])] == [0.8, 0.8]
    assert not any(target.met for target in targets(rows))
