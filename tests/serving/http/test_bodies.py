"""What the models of bodies share: errors that name a place, values of headers, and the schemas of pages."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Annotated, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, Tag
from starlette.datastructures import Headers
from starlette.requests import Request

from pliant.errors import InputError, WorkerError
from pliant.serving.http import bodies
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.bodies import (
    BY_TYPE,
    IGNORED,
    INLINE_BYTES,
    INLINE_VALUES,
    MAX_NAMES,
    SHOWN,
    Body,
    BodyParser,
    Closed,
    Lenient,
    Utf8,
    Utility,
    check_count,
    check_type,
    clean,
    cleaned,
    deadline,
    header_number,
    ignored_header,
    is_large,
    parse_value,
    read_body,
)


class Inner(Lenient):
    size: int = Field(1, ge=1)


class Strict(Closed):
    name: str


class Example(Body):
    whole: ClassVar[frozenset[str]] = frozenset(("marks",))

    text: Utf8 = "a"
    share: float = Field(0.5, ge=0, le=1, allow_inf_nan=False)
    marks: list[int] | None = Field(None, max_length=2)
    inner: list[Inner] | None = None
    either: Annotated[Annotated[str, Tag("<str>")] | Annotated[Strict, Tag("<dict>")], BY_TYPE] | None = None
    utility: Utility = 1.0


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"text": 7}, "text is 7, but must be a text"),
        ({"text": "ab\ud800c"}, r"text is a text with the lone surrogate '\ud800' at character 2, but must be"),
        ({"share": 1.5}, "share is 1.5, but must be at most 1"),
        ({"share": math.nan}, "share is nan, but must be finite"),
        ({"share": True}, "share is True, but must be a number"),
        ({"share": 10**400}, "share is 1000"),
        ({"marks": [1, "b"]}, "marks is 'b', but must be a whole number"),
        ({"marks": [1, 2, 3]}, "marks is a list of 3, but must be of at most 2"),
        ({"inner": [{}, {"size": 1.0}]}, "inner[1].size is 1.0, but must be a whole number"),
        ({"inner": [7]}, "inner[0] is 7, but must be an object"),
        ({"either": 7}, "either is 7, but must be a text or an object"),
        ({"either": {}}, "either.name is missing, but must be given"),
        ({"either": {"name": "a", "more": 1}}, "'more' is unknown, but must be one of the fields name"),
        ({"utility": -0.5}, "utility is -0.5, but must be at least 0"),
    ],
)
def test_an_error_names_place_value_and_limit(fields, sentence):
    with pytest.raises(InputError) as error:
        Example.read(fields)
    assert str(error.value).startswith(sentence)


@given(st.floats(allow_nan=True))
def test_a_deadline_is_above_0_and_at_most_the_limit(value):
    if 0 < value <= 60:
        assert deadline(value, 60.0) == value
    else:
        with pytest.raises(InputError):
            deadline(value, 60.0)


def test_a_number_comes_from_a_header():
    assert header_number(Headers({"x-a": "1.5"}), "x-a") == 1.5 and header_number(Headers(), "x-a") is None
    with pytest.raises(InputError, match="x-a is 'soon', but must be a number"):
        header_number(Headers({"x-a": "soon"}), "x-a")


def test_names_that_nobody_knows_are_listed_as_a_header_can_hold_them():
    assert ignored_header([]) == {}
    assert ignored_header(["", ""]) == {IGNORED: ", "}
    assert ignored_header(["colour", "é", "a,b", "a\r\nb"]) == {IGNORED: "colour, ?, a?b, a??b"}
    (names,) = ignored_header(["a" * 10_000_000] * 1000).values()
    assert names.split(", ") == ["a" * SHOWN] * MAX_NAMES


@pytest.mark.parametrize("blank", [" ", "\t\n", "\u200b", "\u3000", "\ue000", "\x00"])
def test_a_text_has_a_visible_character_wherever_it_is(blank):
    blanks = blank * 5000
    assert clean("text", blanks + "a").endswith("a")
    with pytest.raises(InputError, match="at least one visible character"):
        clean("text", blanks)


def test_a_text_holds_64_kib_in_utf_8():
    assert len(clean("text", "é" * 32768)) == 32768
    with pytest.raises(ApiError, match="text is 65537 bytes, but must be at most 65536 bytes") as raised:
        clean("text", "a" * 65537)
    assert (raised.value.status, raised.value.code, raised.value.field) == (413, "text_too_long", "text")


def test_control_characters_become_spaces_and_are_counted_but_tabs_and_line_ends_stay():
    assert cleaned("a\x00b\x1f\tc\n\r\x7f\x9f") == ("a b \tc\n\r  ", 4)


def test_a_request_has_from_one_text_to_as_many_as_the_limit_says():
    check_count("inputs", ["a"], 1)
    check_count("inputs", ["a", "b"], 2)
    with pytest.raises(ApiError, match="inputs is a list of 3, but must be at most 2") as raised:
        check_count("inputs", ["a", "b", "c"], 2)
    assert (raised.value.status, raised.value.code, raised.value.field) == (413, "too_many_texts", "inputs")
    with pytest.raises(InputError, match="inputs is empty, but must be a list of at least one text"):
        check_count("inputs", [], 2)


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
