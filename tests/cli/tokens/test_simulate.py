"""Loads that `pliant simulate tokens` takes, as requests, and what it shows of them."""

from __future__ import annotations

import pandas
import pytest

from pliant.cli.tokens.simulate import requests_of
from tests.fixtures.commands import KINDS, cells, shown, write_trace
from tests.fixtures.load_samples import bundle
from tests.fixtures.tokens.samples import tiny_backbone, tiny_profile, tiny_task

COMMAND = ["simulate", "tokens", "--load"]


def test_a_poisson_load_has_the_rate_and_length_that_were_asked_for():
    requests = requests_of("poisson:200:5", bundle(), 1, 0)
    assert len(requests) == pytest.approx(1000, rel=0.15)
    assert max(request.arrival for request in requests) < 5.0
    assert {request.task for request in requests} == {"digit", "loops"}


def test_the_reference_load_grows_with_the_number_of_devices():
    single, double = (len(requests_of("reference", bundle(), workers, 0)) for workers in (1, 2))
    assert double == pytest.approx(2 * single, rel=0.1)


def test_a_recorded_load_is_read_from_the_last_numeric_column(tmp_path):
    path = tmp_path / "trace.parquet"
    pandas.DataFrame({"second": [0, 1, 2], "count": [5, 0, 3], "note": ["a", "b", "c"]}).to_parquet(path)
    arrivals = [request.arrival for request in requests_of(str(path), bundle(), 1, 0)]
    assert [sum(int(a) == second for a in arrivals) for second in range(3)] == [5, 0, 3]


@pytest.fixture
def champion(registry):
    digest = registry.publish("pliant-tokens-backbone", tiny_backbone())
    registry.publish("pliant-tokens-profile", tiny_profile(digest, "a device"))
    registry.publish("pliant-tokens-task-digits", tiny_task("digits", ("zero", "one"), digest))


def report(text: str) -> dict[str, str]:
    """Return the printed report, by the names of its rows."""
    return dict(cells(text))


@pytest.mark.parametrize("kind", KINDS)
def test_every_request_of_a_recorded_trace_is_simulated(kind, champion, tmp_path, capsys):
    load = write_trace(tmp_path, kind, {"seconds": [907.0, 905.0, 905.1], "note": [1, 2, 3]})
    result = report(shown([*COMMAND, load], capsys))
    assert (result["requests"], result["attainment"]) == ("3", "1")
