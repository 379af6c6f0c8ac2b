"""Large bodies are parsed beside the event loop, with the same outcome, and none of too many values is read."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from starlette.requests import Request

from pliant.errors import InputError, WorkerError
from pliant.serving.http import large_body
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.json_body import parse_value
from pliant.serving.http.large_body import INLINE_BYTES, INLINE_VALUES, BodyParser, checked, is_large, parse

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


@pytest.mark.parametrize(
    ("body", "large"),
    [
        (b"a" * 524_288, False),
        (b"a" * 524_289, True),
        (b"," * 2_000 + b"a" * 500, False),
        (b"," * 2_001, True),
        (b"[" * 1_000 + b"{" * 1_000 + b"a", False),
        (b"[" * 1_000 + b"{" * 1_001, True),
        (b"[" * 2_001, True),
        (b"{" * 2_001, True),
    ],
)
def test_a_body_is_large_beyond_half_a_megabyte_or_two_thousand_values(body, large):
    assert is_large([body]) is large


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
    answer = large_body._answer(encoded(value))
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


@pytest.mark.parametrize("large", [False, True])
def test_the_fields_of_a_large_body_are_checked_in_a_thread(large):
    parser = BodyParser()
    parser._process = Process()
    app = type("App", (), {"state": type("State", (), {"parser": parser})})
    request = Request({"type": "http", "app": app})

    def check(value, more):
        return value, more, threading.current_thread() is threading.main_thread()

    async def main():
        value = await parse(request, [NUMBERS] if large else [b"[", b"1]"])
        return await checked(request, check, value, more=2)

    assert asyncio.run(main()) == (("parsed elsewhere", 2, False) if large else ([1], 2, True))
