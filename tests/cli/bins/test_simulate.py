"""Loads that `pliant simulate bins` takes, as requests, and what its table compares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pliant.bins.policies import POLICIES
from pliant.cli.bins.simulate import compared, requests_of, typical
from pliant.errors import InputError
from pliant.registry.names import BINS_PREFIX
from tests.fixtures.bins.scenarios import bins
from tests.fixtures.commands import KINDS, columns, refused, shown, write_trace

COMMAND = ["simulate", "bins", "--load"]
MAIL = bins(batches=(1, 2), placement="shared")
NOTES = bins("notes", lengths=(64, 128), slo=0.45)


def test_a_poisson_load_has_the_rate_the_length_and_the_streams_asked_for():
    requests = requests_of("poisson:200:5", [MAIL, NOTES], 1, 0)
    assert len(requests) == pytest.approx(1000, rel=0.15) and max(request.arrival for request in requests) < 5.0
    slos = {(request.task, round(request.deadline - request.arrival, 6)) for request in requests}
    assert slos == {("mail", 0.15), ("notes", 0.45)}
    assert max(request.length for request in requests if request.task == "notes") <= 128


def test_lengths_are_those_that_the_champion_was_made_for():
    observed = np.zeros(513, np.int64)
    observed[[20, 300]] = 30, 10
    assert np.bincount(typical(replace(MAIL, lengths=observed)), minlength=301)[[20, 300]].tolist() == [375, 125]
    assert set(typical(replace(MAIL, lengths=np.zeros(513, np.int64)))) == {512}


def test_the_reference_load_grows_with_the_number_of_devices():
    single, double = (len(requests_of("reference", [NOTES], workers, 0)) for workers in (1, 2))
    assert double == pytest.approx(2 * single, rel=0.1)


def test_the_same_requests_are_served_by_all_and_ours_is_no_worse():
    table = compared([MAIL, NOTES], "poisson:300:2", "completion", None, 4, 0)
    columns = [list(column.cells) for column in table.columns]
    assert columns[0] == ["ours, shared", "ST: padding", "DT: dynamic shapes", "published pair"]
    assert len(set(columns[1])) == 1
    means = [float(cell) for cell in columns[3]]
    assert means[0] == min(means)
    assert "mail dynamic" in columns[8][2] and columns[8][1].startswith("mail 512:")


def test_ours_is_served_by_the_policy_asked_for_and_the_others_as_ever():
    rows = {}
    for policy in POLICIES:
        table = compared([MAIL], "poisson:700:2", "completion", "shared", 1, 0, policy)
        rows[policy] = list(zip(*(column.cells for column in table.columns), strict=True))
    assert [rows[policy][0][0] for policy in rows] == ["ours, shared", "first-come, shared"]
    assert len({row[0][1:] for row in rows.values()}) == 2 and len({tuple(row[1:]) for row in rows.values()}) == 1
    with pytest.raises(InputError, match="policy is first-come, but must be default"):
        compared([MAIL], "poisson:700:2", "completion", "single", 1, 0, "first-come")


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
        compared([MAIL], "poisson:100:1", dispatch, placement, 2, 0)


@pytest.fixture
def champion(registry):
    registry.publish(BINS_PREFIX + "mail", MAIL)


@pytest.mark.parametrize("kind", KINDS)
def test_every_request_of_a_recorded_trace_is_simulated_at_its_length(kind, champion, tmp_path, capsys):
    load = write_trace(tmp_path, kind, {"seconds": [907.0, 905.0, 905.5, 906.0], "length": [60, 120, 125, 9999]})
    table = columns(shown([*COMMAND, load], capsys))
    assert set(table["requests"]) == {"4"} and len(table["requests"]) == 4
    assert (table["in time"][0], table["ran as"][0]) == ("100.0%", "64:25% 128:50% 512:25%")
    assert table["ran as"][1] == "512:100%"


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [({"seconds": [1.0]}, "it has no length"), ({"seconds": [1.0], "length": [0]}, "lengths of at least 1 token")],
)
def test_a_trace_without_lengths_is_refused_with_a_sentence(columns, sentence, champion, tmp_path, capsys):
    assert sentence in refused([*COMMAND, write_trace(tmp_path, "csv", columns)], capsys)
