"""Requests of bad input: how one is sent, what is read of its answer, and the target over all of them."""

from __future__ import annotations

import io
import socket

import pytest

from benchmarks.bad_input import HEADINGS, Asked, Case, _read, ask, bar, shortly

TEI = {"error": "inputs is '', but must be longer", "error_type": "Validation"}
OPENAI = {"error": {"message": "no such model", "param": "model", "type": "invalid_request_error"}}

REQUEST = Asked("x", "/embed", b"{}", lambda status, said: True)


def case(well: bool) -> Case:
    return Case("any", 400, "said", well)


def test_a_row_says_whether_it_went_well():
    assert [case(well).row()[-1] for well in (True, False)] == ["well", "not as it should be"]
    assert len(case(True).row()) == len(HEADINGS)


def test_the_bar_wants_every_case_to_end_well():
    some = [Case("a", 400, "x", True), Case("b", 200, "y", False)]
    assert not bar(some).met
    assert bar(some[:1]).met


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (TEI, TEI["error"]),
        (OPENAI, "no such model model"),
        ([[0.1], [0.2]], "a list of 2"),
        (None, "None"),
        ({"error": 7}, "{'error': 7}"),
    ],
)
def test_what_was_said_is_shown_shortly_whatever_it_was(said, shown):
    assert shortly(said) == shown


def test_an_answer_that_is_no_json_is_nothing_said():
    assert _read(io.BytesIO(b"<html>")) is None
    assert _read(io.BytesIO(b"[1]")) == [1]


def test_a_connection_that_fails_is_a_case_with_status_0_and_no_end_of_the_run():
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        status, said = ask(
            f"http://127.0.0.1:{taken.getsockname()[1]}", Asked("x", "/embed", b"{}", lambda status, said: True)
        )
    assert status == 0
    assert "refused" in said
