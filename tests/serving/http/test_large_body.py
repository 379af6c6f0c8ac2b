"""Large bodies are parsed beside the event loop, with the same outcome, and none of too many values is read."""

from __future__ import annotations

import asyncio
import json

import pytest

from pliant.errors import InputError
from serving.http import large_body
from serving.http.api_errors import ApiError
from serving.http.json_body import parse_value
from serving.http.large_body import INLINE_BYTES, INLINE_VALUES, MAX_COST, BodyParser, is_large

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
        monkeypatch.setattr(large_body, "parse_value", lambda _: pytest.fail("parsed on the event loop"))
    assert parsed(body) == expected


@pytest.mark.parametrize(
    "body, kind, words",
    [
        (NUMBERS[:-1], ApiError, "body is not JSON"),
        (b'{"a": 1, "a": ' + NUMBERS + b"}", InputError, "'a' is given 2 times, but must be given once"),
        (b"[" * 100_000 + b"]" * 100_000, ApiError, "body is not JSON"),
        (b"\xff" + NUMBERS, ApiError, "body is not JSON"),
    ],
    ids=["truncated", "twice", "deep", "no text"],
)
def test_errors_are_the_same_as_of_a_small_body(body, kind, words):
    with pytest.raises(kind, match=words) as error:
        parsed(body)
    if kind is ApiError:
        assert (error.value.status, error.value.code, error.value.field) == (400, "malformed", "body")


@pytest.mark.parametrize(
    "body, fits",
    [
        (b"[" + b"1," * (MAX_COST - 100) + b"1]", True),
        (b"[" + b"1," * MAX_COST + b"1]", False),
        (b"[" + b"{}," * (MAX_COST // 22) + b"1]", True),
        (b"[" + b"{}," * (MAX_COST // 20) + b"1]", False),
        (b"[" + b"[]," * (MAX_COST // 20) + b"1]", False),
    ],
)
def test_the_values_of_a_body_are_limited(body, fits):
    if fits:
        assert parsed(body) == json.loads(body)
        return
    with pytest.raises(ApiError, match="body has too many values") as error:
        parsed(body)
    assert error.value.status == 413


def test_a_body_that_takes_too_long_is_given_up_and_the_next_is_parsed(monkeypatch):
    async def main():
        parser = BodyParser()
        await parser.parse([NUMBERS])
        former = parser._process.pid
        monkeypatch.setattr(large_body, "SECONDS", 0.0001)
        with pytest.raises(ApiError, match="body takes more than"):
            await parser.parse([NUMBERS])
        monkeypatch.setattr(large_body, "SECONDS", 60.0)
        assert len(await parser.parse([NUMBERS])) == INLINE_VALUES + 10
        assert parser._process.pid != former

    asyncio.run(main())


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
