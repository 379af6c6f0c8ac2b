"""Loads that `pliant simulate tokens` takes, as requests."""

from __future__ import annotations

import pandas
import pytest

from cli.tokens.simulate import _requests
from pliant.errors import InputError
from tests.fixtures.load_samples import bundle


def test_a_poisson_load_has_the_rate_and_length_that_were_asked_for():
    made = _requests("poisson:200:5", bundle(), 1, 0)
    assert len(made) == pytest.approx(1000, rel=0.15)
    assert max(r.arrival for r in made) < 5.0
    assert {r.task for r in made} == {"digit", "loops"}


def test_the_reference_load_grows_with_the_number_of_devices():
    one, two = (len(_requests("reference", bundle(), workers, 0)) for workers in (1, 2))
    assert two == pytest.approx(2 * one, rel=0.1)


def test_a_recorded_load_is_read_from_the_last_numeric_column(tmp_path):
    path = tmp_path / "trace.parquet"
    pandas.DataFrame({"second": [0, 1, 2], "count": [5, 0, 3], "note": ["a", "b", "c"]}).to_parquet(path)
    arrivals = [r.arrival for r in _requests(str(path), bundle(), 1, 0)]
    assert [sum(int(a) == second for a in arrivals) for second in range(3)] == [5, 0, 3]


@pytest.mark.parametrize(
    "load",
    ["poisson:x:y", "poisson:5", "poisson:1:2:3", "poisson:nan:1", "poisson:-1:1", "poisson:inf:1", "poisson:1e30:1"],
)
def test_a_poisson_load_that_is_none_is_refused(load):
    with pytest.raises(InputError):
        _requests(load, bundle(), 1, 0)


def test_a_load_that_is_no_parquet_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="parquet file"):
        _requests(str(tmp_path / "absent.parquet"), bundle(), 1, 0)
    (tmp_path / "text.parquet").write_text("no parquet")
    with pytest.raises(InputError, match="readable csv or parquet file"):
        _requests(str(tmp_path / "text.parquet"), bundle(), 1, 0)


@pytest.mark.parametrize(
    ("column", "match"), [(["a", "b"], "numeric column"), ([1.0, -1.0], "at least 0"), ([1.0, None], "at least 0")]
)
def test_a_recorded_load_holds_counts(tmp_path, column, match):
    path = tmp_path / "trace.parquet"
    pandas.DataFrame({"count": column}).to_parquet(path)
    with pytest.raises(InputError, match=match):
        _requests(str(path), bundle(), 1, 0)
