"""Loads that `pliant simulate bins` takes, as requests, and what its table compares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas
import pytest

from benchmarks.bins.traces import missing
from cli.bins.simulate import compared, requests, simulate_load, typical
from pliant.errors import InputError, RegistryError
from tests.fixtures.bins.worlds import bins

needs_data = pytest.mark.skipif(bool(missing()), reason=missing() or "-")
ONE = bins(batches=(1, 2), placement="shared")
TWO = bins("notes", lengths=(64, 128), slo=0.45)


def test_a_poisson_load_has_the_rate_the_length_and_the_streams_asked_for():
    made = requests("poisson:200:5", [ONE, TWO], 1, 0)
    assert len(made) == pytest.approx(1000, rel=0.15) and max(one.arrival for one in made) < 5.0
    assert {(one.task, round(one.deadline - one.arrival, 6)) for one in made} == {("mail", 0.15), ("notes", 0.45)}
    assert max(one.length for one in made if one.task == "notes") <= 128


def test_lengths_are_those_that_the_champion_was_made_for():
    observed = np.zeros(513, np.int64)
    observed[[20, 300]] = 30, 10
    assert np.bincount(typical(replace(ONE, lengths=observed)), minlength=301)[[20, 300]].tolist() == [375, 125]
    assert set(typical(replace(ONE, lengths=np.zeros(513, np.int64)))) == {512}


def test_the_reference_load_grows_with_the_number_of_devices():
    one, two = (len(requests("reference", [TWO], workers, 0)) for workers in (1, 2))
    assert two == pytest.approx(2 * one, rel=0.1)


@needs_data
@pytest.mark.parametrize("load", ["twitter-stable:100:20", "twitter-bursty:100:20", "twitter-bursty:100:20:drift"])
def test_a_twitter_load_brings_its_lengths_cut_to_what_the_stream_takes(load):
    made = requests(load, [ONE, TWO], 1, 0)
    assert len(made) == pytest.approx(2000, rel=0.15)
    assert max(one.length for one in made if one.task == "mail") > 128
    assert max(one.length for one in made if one.task == "notes") == 128


def test_a_recorded_load_is_read_from_the_last_numeric_column(tmp_path):
    path = tmp_path / "trace.parquet"
    pandas.DataFrame({"second": [0, 1, 2], "count": [5, 0, 3], "note": ["a", "b", "c"]}).to_parquet(path)
    arrivals = [one.arrival for one in requests(str(path), [ONE], 1, 0)]
    assert [sum(int(at) == second for at in arrivals) for second in range(3)] == [5, 0, 3]


BAD = ("x:y", "5", "1:2:3", "nan:1", "-1:1", "inf:1", "1e30:1", "0:5", "5:0", "5:5:drift")


@pytest.mark.parametrize("load", [*(f"poisson:{bad}" for bad in BAD), *(f"twitter-stable:{bad}" for bad in BAD)])
def test_a_load_that_is_none_is_refused(load):
    with pytest.raises(InputError, match="load"):
        requests(load, [ONE], 1, 0)


def test_a_load_without_a_single_request_is_refused():
    with pytest.raises(InputError, match="at least one"):
        requests("poisson:0.0001:0.0001", [ONE], 1, 0)


def test_a_load_that_is_no_parquet_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="parquet file"):
        requests(str(tmp_path / "absent.parquet"), [ONE], 1, 0)
    (tmp_path / "text.parquet").write_text("no parquet")
    with pytest.raises(InputError, match="readable csv or parquet file"):
        requests(str(tmp_path / "text.parquet"), [ONE], 1, 0)


@pytest.mark.parametrize(
    ("column", "match"),
    [(["a", "b"], "numeric column"), ([1.0, -1.0], "at least 0"), ([1.0, None], "at least 0"), ([0, 0], "1 to")],
)
def test_a_recorded_load_holds_counts(tmp_path, column, match):
    path = tmp_path / "trace.parquet"
    pandas.DataFrame({"count": column}).to_parquet(path)
    with pytest.raises(InputError, match=match):
        requests(str(path), [ONE], 1, 0)


def test_the_same_requests_are_served_by_all_and_ours_is_no_worse():
    table = compared([ONE, TWO], "poisson:300:2", "completion", None, 4, 0)
    columns = [list(column.cells) for column in table.columns]
    assert columns[0] == ["ours, shared", "ST: padding", "DT: dynamic shapes", "published pair"]
    assert len(set(columns[1])) == 1
    means = [float(cell) for cell in columns[3]]
    assert means[0] == min(means)
    assert "mail dynamic" in columns[8][2] and columns[8][1].startswith("mail 512:")


def test_a_placement_and_a_dispatch_can_be_asked_for():
    table = compared([ONE], "poisson:100:1", "published", "single", 2, 0)
    assert next(iter(table.columns[0].cells)) == "ours, published"


@pytest.mark.parametrize(
    ("dispatch", "placement", "match"),
    [
        ("completion", "both", "placement is both"),
        ("random", "single", "dispatch is random"),
        ("published", None, "placement single"),
    ],
)
def test_what_the_scheduler_does_not_know_is_refused(dispatch, placement, match):
    with pytest.raises(InputError, match=match):
        compared([ONE], "poisson:100:1", dispatch, placement, 2, 0)


def test_without_a_champion_it_is_told_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.setenv("PLIANT_HOME", str(tmp_path))
    with pytest.raises(RegistryError, match="pliant train bins"):
        simulate_load("reference", "completion", None, 1, 0)
