"""The recorded lengths, and the loads made of them."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.benchmarks.packing.traces import Lengths, at_rate

MADE = Lengths("made up", np.arange(1, 11), np.arange(11, 21), np.arange(10) / 2)


def test_a_poisson_load_has_the_rate_and_repeats_a_row_only_when_all_were_taken():
    load, again, other = at_rate(MADE, 20.0, 50.0, 0), at_rate(MADE, 20.0, 50.0, 0), at_rate(MADE, 20.0, 50.0, 1)
    assert len(load.arrivals) == pytest.approx(1000, rel=0.15) and 0 <= load.arrivals[0] <= load.arrivals[-1] < 50
    assert (np.diff(load.arrivals) >= 0).all() and set(load.rows[:10].tolist()) == set(range(10))
    assert (load.arrivals == again.arrivals).all() and (load.rows == again.rows).all()
    assert len(other.rows) != len(load.rows) or (other.rows != load.rows).any()
