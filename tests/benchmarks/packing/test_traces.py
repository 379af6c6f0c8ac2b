"""The recorded lengths, and the loads made of them."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from pliant.benchmarks.packing.traces import SOURCES, Lengths, at_rate, lengths

MADE = Lengths("made up", np.arange(1, 11), np.arange(11, 21), np.arange(10) / 2)


def test_arrivals_begin_at_zero_and_are_in_order_whatever_the_file_does(tmp_path):
    rows = {"seconds": [5.0, 3.0, 4.0], "context_tokens": [50, 30, 40], "generated_tokens": [5, 3, 4]}
    pandas.DataFrame(rows).to_parquet(tmp_path / SOURCES["azure"][0])
    found = lengths("azure", tmp_path)
    assert found.seconds.tolist() == [0.0, 1.0, 2.0]
    assert found.prompt.tolist() == [30, 40, 50] and found.output.tolist() == [3, 4, 5]


def test_a_poisson_load_has_the_rate_and_repeats_a_row_only_when_all_were_taken():
    load, again, other = at_rate(MADE, 20.0, 50.0, 0), at_rate(MADE, 20.0, 50.0, 0), at_rate(MADE, 20.0, 50.0, 1)
    assert len(load.arrivals) == pytest.approx(1000, rel=0.15) and 0 <= load.arrivals[0] <= load.arrivals[-1] < 50
    assert (np.diff(load.arrivals) >= 0).all() and set(load.rows[:10].tolist()) == set(range(10))
    assert (load.arrivals == again.arrivals).all() and (load.rows == again.rows).all()
    assert len(other.rows) != len(load.rows) or (other.rows != load.rows).any()
