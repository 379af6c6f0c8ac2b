"""The latency table between measured batches, outside them, and its errors."""

from __future__ import annotations

import pytest

from pliant.errors import InputError
from pliant.latency import LatencyTable

TABLE = LatencyTable((-5, 0), (2, 4, 8), ((0.1, 0.2, 0.3), (0.2, 0.3, 0.8)))


@pytest.mark.parametrize(
    ("batch", "seconds"), [(2, 0.2), (3, 0.25), (4, 0.3), (6, 0.55), (8, 0.8), (1, 0.2), (16, 1.6), (9, 0.9)]
)
def test_seconds_are_linear_between_points_flat_below_and_per_item_beyond(batch, seconds):
    assert TABLE.at(0, batch) == pytest.approx(seconds)


STAIRS = LatencyTable((-5, 0), (2, 4, 8), ((0.1, 0.2, 0.3), (0.2, 0.3, 0.8)), (2, 4, 8))


@pytest.mark.parametrize(
    ("batch", "seconds"), [(1, 0.2), (2, 0.2), (3, 0.3), (4, 0.3), (5, 0.8), (8, 0.8), (9, 0.9), (16, 1.6)]
)
def test_with_buckets_a_batch_takes_as_long_as_the_bucket_that_holds_it(batch, seconds):
    assert STAIRS.at(0, batch) == pytest.approx(seconds)
    assert STAIRS.dense(16)[1, batch] == pytest.approx(seconds)


def test_a_table_of_some_settings_keeps_its_buckets():
    assert STAIRS.only([-5]) == LatencyTable((-5,), (2, 4, 8), ((0.1, 0.2, 0.3),), (2, 4, 8))
    with pytest.raises(InputError, match="setting is 4"):
        STAIRS.only([4])


LENGTHS = LatencyTable((8, 16, 64), (1, 4), ((0.1, 0.2), (0.2, 0.4), (0.5, 1.7)))


@pytest.mark.parametrize(
    ("length", "batch", "seconds"),
    [
        (8, 1, 0.1),
        (16, 4, 0.4),
        (12, 1, 0.15),
        (40, 1, 0.35),
        (40, 2, (0.2 + 0.2 / 3 + 0.5 + 0.4) / 2),  # the mean of both lengths at two texts
        (3, 1, 0.1),
        (3, 8, 0.4),  # per item beyond the batches, constant below the lengths
        (128, 1, 1.0),
        (128, 8, 6.8),
    ],
)
def test_lengths_between_the_measured_ones_are_linear_flat_below_and_proportional_beyond(length, batch, seconds):
    assert LENGTHS.between(length, batch) == pytest.approx(seconds)


def test_throughput_is_the_best_over_batches_that_keep_the_limit():
    assert TABLE.throughput(0, 8) == pytest.approx(max(n / TABLE.at(0, n) for n in range(1, 9)))
    assert TABLE.throughput(0, 8, within=0.25) == pytest.approx(3 / 0.25)
    assert TABLE.throughput(0, 8, within=0.01) == pytest.approx(1 / 0.2)  # no batch keeps to it: one at a time
