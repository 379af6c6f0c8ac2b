"""A body is read up to its limit, and is JSON without a field that is given twice."""

from __future__ import annotations

import asyncio
import json

import pytest
from starlette.requests import Request

from pliant.errors import InputError, WorkerError
from pliant.serving.http import bodies
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.bodies import (
    INLINE_BYTES,
    INLINE_VALUES,
    BodyParser,
    check_type,
    is_large,
    parse_value,
    read_body,
)


def request(chunks: tuple[bytes, ...] = (), **headers: str) -> Request:
    sent = list(chunks)

    async def receive():
        chunk = sent.pop(0) if sent else b""
        return {"type": "http.request", "body": chunk, "more_body": bool(sent)}

    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": raw}, receive)


def test_a_compressed_body_is_415_and_says_so():
    assert check_type(request(content_type="a/b", content_encoding="identity"), ("a/b",), "b") == "a/b"
    with pytest.raises(ApiError, match="content-encoding is gzip, but must be identity") as raised:
        check_type(request(content_type="a/b", content_encoding="gzip"), ("a/b",), "b")
    assert (raised.value.status, raised.value.code) == (415, "unsupported_encoding")


@pytest.mark.parametrize("announced", [{}, {"content_length": "6"}, {"content_length": "some"}])
def test_a_body_of_exactly_the_most_bytes_is_read_and_one_byte_more_is_413(announced):
    assert asyncio.run(read_body(request((b"abc", b"def"), **announced), 6)) == [b"abc", b"def", b""]
    with pytest.raises(ApiError, match="but must be at most 5 bytes") as raised:
        asyncio.run(read_body(request((b"abc", b"def"), **announced), 5))
    assert (raised.value.status, raised.value.code) == (413, "body_too_large")


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_json_is_400(body):
    with pytest.raises(ApiError, match="body is not JSON") as raised:
        parse_value(body)
    assert (raised.value.status, raised.value.code) == (400, "malformed")


def test_a_field_that_is_given_twice_is_named_with_how_often():
    with pytest.raises(InputError, match="'b' is given 3 times, but must be given once"):
        parse_value(b'{"a": 1, "b": 1, "b": 2, "b": 3}')


NUMBERS = json.dumps(list(range(INLINE_VALUES + 10))).encode()


def parsed(body: bytes):
    third = len(body) // 3
    return asyncio.run(BodyParser().parse([body[:third], body[third:]]))


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    "body, large",
    [
        (encoded({"a": "b" * (INLINE_BYTES - 100)}), False),
        (encoded({"a": "b" * INLINE_BYTES}), True),
        (encoded(list(range(INLINE_VALUES - 10))), False),
        (NUMBERS, True),
        (encoded([{}] * INLINE_VALUES), True),
    ],
)
def test_a_body_is_parsed_where_it_holds_nobody_up_with_the_same_value(body, large, monkeypatch):
    expected = parse_value(body)
    assert is_large([body]) == is_large([body[:1000], body[1000:]]) == large
    if large:
        monkeypatch.setattr(bodies, "parse_value", lambda _: pytest.fail("parsed on the event loop"))
    assert parsed(body) == expected


def test_a_client_that_leaves_while_its_body_is_parsed_hurts_no_other():
    async def main():
        parser = BodyParser()
        await parser.parse([NUMBERS])
        first = asyncio.create_task(parser.parse([b"[", b"1," * 4_000_000, b"1]"]))
        second = asyncio.create_task(parser.parse([NUMBERS]))
        await asyncio.sleep(0.05)
        first.cancel()
        assert len(await second) == INLINE_VALUES + 10
        with pytest.raises(asyncio.CancelledError):
            await first

    asyncio.run(main())


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        ([1] * 199_980, True),
        ([1] * 199_981, False),
        ({"a": [1] * 199_959}, True),
        ({"a": [1] * 199_960}, False),
        ({"a": {"b": [1] * 199_938}}, True),
        ({"a": {"b": [1] * 199_939}}, False),
    ],
)
def test_each_value_costs_1_and_a_list_or_object_20_more(value, fits):
    answer = bodies._answer(encoded(value))
    if fits:
        assert answer == value
    else:
        assert (type(answer), answer.status, str(answer)) == (ApiError, 413, "body has too many values")


class Process:
    """A process that parses, or fails as it is told."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.calls = error, []

    async def call(self, seconds, content):
        self.calls.append((seconds, content))
        if self.error:
            raise self.error
        return "parsed elsewhere"


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (TimeoutError(), "body takes more than 5 s to parse"),
        (WorkerError("it ended"), "body takes too much memory to parse"),
    ],
)
def test_a_body_that_no_process_can_parse_is_413(error, sentence):
    parser = BodyParser()
    parser._process = process = Process(error)
    with pytest.raises(ApiError) as raised:
        asyncio.run(parser.parse([NUMBERS]))
    assert (raised.value.status, raised.value.field, str(raised.value)) == (413, "body", sentence)
    assert process.calls == [(5.0, [NUMBERS])]
