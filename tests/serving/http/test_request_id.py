"""An answer has the id of its request, if that may stand in a header, or a new one."""

from __future__ import annotations

import asyncio
import re

import pytest

from pliant.serving.http.request_id import RequestIdMiddleware, request_id

NEW = re.compile(rb"[0-9a-f]{32}")


@pytest.mark.parametrize("id", [b"a", b"req 7/~!", b"x" * 128])
def test_the_requests_own_id_comes_back(id):
    assert request_id([(b"host", b"here"), (b"x-request-id", id)]) == id


@pytest.mark.parametrize(
    "ids", [[], [b""], [b"x" * 129], ["ü".encode()], [b"a\tb"], [b"a\x7f"], [b"a", b"a"], [b"a\n"]]
)
def test_any_other_is_replaced_by_a_new_one(ids):
    headers = [(b"x-request-id", id) for id in ids]
    first, second = request_id(headers), request_id(headers)
    assert NEW.fullmatch(first) and NEW.fullmatch(second) and first != second


def answered(scope, headers=((b"x-request-id", b"of the route"), (b"a", b"b"))):
    sent = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 404, "headers": list(headers)})
        await send({"type": "http.response.body", "body": b"gone"})

    async def send(message):
        sent.append(message)

    asyncio.run(RequestIdMiddleware(app)(scope, None, send))
    return sent


def test_every_answer_has_one_id_and_is_otherwise_left_alone():
    start, body = answered({"type": "http", "headers": [(b"x-request-id", b"seven")]})
    assert start == {
        "type": "http.response.start",
        "status": 404,
        "headers": [(b"a", b"b"), (b"x-request-id", b"seven")],
    }
    assert body == {"type": "http.response.body", "body": b"gone"}


def test_what_is_no_request_passes():
    start, _ = answered({"type": "lifespan"})
    assert start["headers"] == [(b"x-request-id", b"of the route"), (b"a", b"b")]
