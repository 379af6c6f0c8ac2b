"""A deadline comes from the body or else the header, and an answer says in headers how it came about."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from pliant.errors import InputError
from pliant.serving.bins.bodies import Answer, TextRequest, read_deadline
from pliant.serving.client import ANYBODY


def request(header: str | None = None) -> Request:
    headers = [] if header is None else [(b"x-pliant-deadline", header.encode())]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": headers})


@pytest.mark.parametrize(
    ("value", "header", "seconds"),
    [(None, None, None), (None, "2.5", 2.5), (1, "2.5", 1.0), (1, "soon", 1.0), (None, "60", 60.0)],
)
def test_the_body_says_more_than_the_header(value, header, seconds):
    assert read_deadline(request(header), value, 60.0) == seconds


@pytest.mark.parametrize(
    ("value", "header", "name"),
    [
        (60.5, "1", "deadline"),
        (None, "0", "x-pliant-deadline"),
        (None, "60.5", "x-pliant-deadline"),
        (None, "soon", "x-pliant-deadline"),
    ],
)
def test_a_deadline_that_does_not_fit_is_named_where_it_stands(value, header, name):
    with pytest.raises(InputError) as raised:
        read_deadline(request(header), value, 60.0)
    assert raised.value.field == name


def test_a_request_is_truncated_at_its_end_and_has_the_streams_deadline_unless_it_says_otherwise():
    plain = TextRequest("mails", (("a", None),))
    assert (plain.deadline, plain.truncate, plain.left, plain.client) == (None, True, False, ANYBODY)


def test_headers_tell_lengths_bins_and_times():
    answer = Answer(None, 1, [], [2, 40], ["8x1", "dynamic"], 0.25, 1.0)
    assert answer.headers == {
        "x-pliant-length": "2,40",
        "x-pliant-bin": "8x1,dynamic",
        "x-pliant-queue-seconds": "0.250000",
        "x-pliant-run-seconds": "1.000000",
    }
