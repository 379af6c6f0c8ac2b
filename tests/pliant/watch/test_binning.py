"""Values fall into the bins that their edges say, and coarse bins are made of fine ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.watch.binning import END, Binning, binning_from, classes, coarse_bins, linear, logarithmic, merge, quantiles


@given(st.lists(st.floats(-10, 10), max_size=50))
def test_counting_many_values_is_counting_each(values):
    binning = linear(-3, 3, 7)
    each = [0] * 7
    for value in values:
        each[binning.bin_of(value)] += 1
    assert binning.counts(values).tolist() == each


def test_an_edge_belongs_to_the_bin_above_it():
    assert [Binning((1.0, 2.0)).bin_of(value) for value in (0.9, 1.0, 2.0, math.nan)] == [0, 1, 2, 2]


@given(st.lists(st.floats(0.1, 1000), min_size=1, max_size=200), st.integers(2, 12))
def test_merged_counts_are_those_of_the_coarse_bins(values, bins):
    fine = logarithmic(1, 500, 40)
    counts = fine.counts(values)
    coarse = quantiles(fine, counts, bins)
    assert 2 <= coarse.bins <= bins + 2
    assert merge(counts, coarse_bins(fine, coarse), coarse.bins).tolist() == coarse.counts(values).tolist()


def test_quantiles_hold_about_equally_many_and_the_ends_few():
    fine = linear(0, 1, 64)
    counts = fine.counts(np.random.default_rng(0).beta(5, 2, 10_000))
    coarse = quantiles(fine, counts, 8)
    shares = merge(counts, coarse_bins(fine, coarse), coarse.bins) / 10_000
    assert coarse.bins == 10
    assert (np.abs(shares[[0, -1]] - END) < 0.02).all()
    assert (np.abs(shares[2:-2] - 1 / 8) < 0.06).all()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Binning(),
        lambda: Binning((1.0,), ("a", "b")),
        lambda: Binning((1.0, 1.0)),
        lambda: Binning((math.nan,)),
        lambda: classes(["a", "a"]),
        lambda: classes(["a"]),
        lambda: classes([str(number) for number in range(257)]),
        lambda: logarithmic(0, 1),
        lambda: coarse_bins(linear(0, 1, 4), Binning((0.3,))),
        lambda: binning_from({"edges": ["x"], "labels": []}),
        lambda: binning_from(None),
    ],
)
def test_bins_that_make_no_sense_are_refused(wrong):
    with pytest.raises(InputError):
        wrong()
