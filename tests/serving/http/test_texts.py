"""What counts as a text."""

from __future__ import annotations

import pytest

from pliant.errors import InputError
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.texts import check_count, clean, cleaned


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
