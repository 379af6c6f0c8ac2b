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
from pliant.serving.http.bodies import (
    BY_TYPE,
    IGNORED,
    MAX_NAMES,
    Body,
    Closed,
    Lenient,
    Utf8,
    Utility,
    deadline,
    header_number,
    ignored_header,
)
from pliant.serving.http.json_body import SHOWN


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
