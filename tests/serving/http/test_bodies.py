"""What the models of bodies share: errors that name a place, values of headers, and the schemas of pages."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, Tag
from starlette.datastructures import Headers

from pliant.errors import InputError
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.bodies import (
    BY_TYPE,
    IGNORED,
    MAX_NAMES,
    SHOWN,
    Body,
    Closed,
    Lenient,
    Utf8,
    Utility,
    check_count,
    clean,
    cleaned,
    deadline,
    header_number,
    ignored_header,
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


def test_half_a_surrogate_pair_is_named_with_its_place():
    with pytest.raises(InputError) as raised:
        clean("text", "ab\ud800c")
    assert str(raised.value) == (
        r"text is a text with the lone surrogate '\ud800' at character 2, but must be a text that UTF-8 can hold"
    )


def test_a_request_has_from_one_text_to_as_many_as_the_limit_says():
    check_count("inputs", ["a"], 1)
    check_count("inputs", ["a", "b"], 2)
    with pytest.raises(ApiError, match="inputs is a list of 3, but must be at most 2") as raised:
        check_count("inputs", ["a", "b", "c"], 2)
    assert (raised.value.status, raised.value.code, raised.value.field) == (413, "too_many_texts", "inputs")
    with pytest.raises(InputError, match="inputs is empty, but must be a list of at least one text"):
        check_count("inputs", [], 2)
