"""Loads by their names: what they hold, and that every mistake says what a load looks like."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from pliant import loads
from pliant.errors import InputError

RNG = np.random.default_rng


@pytest.mark.parametrize("numbers", ["", "5", "1:2:3", "x:y", "nan:1", "-1:1", "inf:1", "1e30:1", "0:5", "5:0"])
@pytest.mark.parametrize("kind", ["poisson", "bursty"])
def test_numbers_that_are_none_are_refused(kind, numbers):
    with pytest.raises(InputError, match=f"{kind}:RATE:SECONDS"):
        loads.drawn(f"{kind}:{numbers}", "", 1000, RNG(0))


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"time": [1.0]}, "it has no seconds"),
        ({"seconds": [1.0]}, "it has no length"),
        ({"seconds": ["now"], "length": [1]}, "numbers in seconds, length"),
        ({"seconds": [], "length": []}, "1 to 3 requests"),
        ({"seconds": [1.0, float("nan")], "length": [1, 1]}, "none with a missing number"),
        ({"seconds": [1.0] * 4, "length": [1] * 4}, "1 to 3 requests"),
    ],
)
def test_a_trace_that_cannot_be_used_is_refused(tmp_path, table, sentence):
    pandas.DataFrame(table).to_csv(tmp_path / "trace.csv", index=False)
    with pytest.raises(InputError, match=sentence):
        loads.trace(f"trace:{tmp_path / 'trace.csv'}", ("length",), 3)


def test_a_file_that_is_not_there_is_answered_with_what_there_is(tmp_path):
    with pytest.raises(InputError, match=r"absent.csv, but must be trace:FILE, a csv or parquet file"):
        loads.trace(f"trace:{tmp_path / 'absent.csv'}", (), 3)
