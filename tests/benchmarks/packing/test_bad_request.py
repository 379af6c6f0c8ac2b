"""A bad request to packing: how it is sent, and what is read of its answer."""

from __future__ import annotations

import io
import socket

import pytest

from benchmarks.packing.input import HEADINGS, BadRequest, Case, _read, send, shortly

OPENAI = {"error": {"message": "no such model", "param": "model", "type": "invalid_request_error"}}
REQUEST = BadRequest("x", "/v1/completions", b"{}", lambda _status, _answer: True)


def test_a_row_says_whether_it_went_well():
    rows = [Case("any", 400, "said", well).row() for well in (True, False)]
    assert [row[-1] for row in rows] == ["well", "not as it should be"]
    assert len(rows[0]) == len(HEADINGS)


@pytest.mark.parametrize(
    ("answer", "shown"), [(OPENAI, "no such model model"), (None, "None"), ({"error": 7}, "{'error': 7}")]
)
def test_an_answer_is_shown_shortly_whatever_it_is(answer, shown):
    assert shortly(answer) == shown


def test_an_answer_that_is_no_json_is_none():
    assert _read(io.BytesIO(b"<html>")) is None
    assert _read(io.BytesIO(b"[1]")) == [1]


def test_a_connection_that_fails_is_a_case_with_status_0_and_no_end_of_the_run():
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        status, answer = send(f"http://127.0.0.1:{taken.getsockname()[1]}", REQUEST)
    assert status == 0
    assert "refused" in answer
