"""A body is read up to its limit, and is JSON without a field that is given twice."""

from __future__ import annotations

import asyncio
import json

import pytest
from starlette.requests import Request

from pliant.errors import InputError
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.json_body import (
    as_object,
    check_type,
    content_type,
    parse_value,
    read_body,
    shorten,
)


def request(chunks: tuple[bytes, ...] = (), **headers: str) -> Request:
    sent = list(chunks)

    async def receive():
        chunk = sent.pop(0) if sent else b""
        return {"type": "http.request", "body": chunk, "more_body": bool(sent)}

    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": raw}, receive)


@pytest.mark.parametrize("given_type", ["application/json", "Application/JSON; charset=utf-8", " application/json "])
def test_a_content_type_is_compared_without_case_and_parameters(given_type):
    assert check_type(request(content_type=given_type), ("application/json",), "JSON") == "application/json"


@pytest.mark.parametrize(("headers", "shown"), [({}, "missing"), ({"content_type": "text/plain"}, "text/plain")])
def test_another_content_type_is_415_and_named(headers, shown):
    with pytest.raises(ApiError, match=f"content-type is {shown}, but must be JSON") as raised:
        check_type(request(**headers), ("application/json",), "JSON")
    assert (raised.value.status, raised.value.field) == (415, "content-type")


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


def test_an_announced_length_beyond_the_limit_is_refused_before_anything_is_read():
    never = Request({"type": "http", "headers": [(b"content-length", b"7")]}, None)
    with pytest.raises(ApiError, match="body is 7 bytes"):
        asyncio.run(read_body(never, 6))


def test_json_is_read_with_or_without_a_byte_order_mark():
    assert parse_value(b'{"a": [1]}') == parse_value(b'\xef\xbb\xbf{"a": [1]}') == {"a": [1]}


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_json_is_400(body):
    with pytest.raises(ApiError, match="body is not JSON") as raised:
        parse_value(body)
    assert (raised.value.status, raised.value.code) == (400, "malformed")


def test_a_field_that_is_given_twice_is_named_with_how_often():
    with pytest.raises(InputError, match="'b' is given 3 times, but must be given once"):
        parse_value(b'{"a": 1, "b": 1, "b": 2, "b": 3}')


@pytest.mark.parametrize("value", [[], "a", 1, None])
def test_a_body_that_is_no_object_is_400(value):
    with pytest.raises(ApiError, match=f"body is a JSON {type(value).__name__}, but must be an object"):
        as_object(parse_value(json.dumps(value).encode()))
    assert as_object({"a": 1}) == {"a": 1}


def test_a_message_repeats_80_characters_of_a_value():
    assert shorten("a" * 78) == "'" + "a" * 78 + "'"
    assert shorten("a" * 79) == "'" + "a" * 79 + "..."
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    assert len(shorten(deep)) <= 80


def test_errors_of_a_body_name_it_and_its_limit():
    with pytest.raises(ApiError) as raised:
        asyncio.run(read_body(request((b"abcd",)), 3))
    error = raised.value
    assert (error.status, error.field, str(error)) == (413, "body", "body is longer, but must be at most 3 bytes")
    with pytest.raises(ApiError, match="body is 999999999999999999 bytes"):
        asyncio.run(read_body(request(content_length="9" * 5000), 3))
    with pytest.raises(ApiError) as raised:
        as_object([])
    assert (raised.value.status, raised.value.code, raised.value.field) == (400, "malformed", "body")
    with pytest.raises(ApiError) as raised:
        check_type(request(content_type="x" * 1000), ("application/json",), "JSON")
    assert str(raised.value) == f"content-type is {'x' * 80}, but must be JSON"
    assert content_type(request()) == ""
