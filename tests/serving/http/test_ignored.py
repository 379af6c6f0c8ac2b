"""The header that names unknown fields holds whatever their names are."""

from __future__ import annotations

from serving.http.ignored import MAX_NAMES, header_of
from serving.http.json_body import SHOWN


def test_names_are_listed_as_a_header_can_hold_them():
    assert header_of([]) == {}
    assert header_of(["", ""]) == {"x-pliant-ignored": ", "}
    assert header_of(["colour", "é", "a,b", "a\r\nb"]) == {"x-pliant-ignored": "colour, ?, a?b, a??b"}


def test_many_and_long_names_are_cut_so_that_clients_can_read_the_header():
    (names,) = header_of(["a" * 10_000_000] * 1000).values()
    assert names.split(", ") == ["a" * SHOWN] * MAX_NAMES
