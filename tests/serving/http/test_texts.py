"""What counts as a text."""

from __future__ import annotations

import pytest

from pliant.errors import InputError
from serving.http.api_errors import ApiError
from serving.http.texts import TEXT_BYTES, clean


@pytest.mark.parametrize("character", ["a", "é", "漢", "\U0001f600"])
def test_the_limit_counts_bytes(character):
    most = TEXT_BYTES // len(character.encode())
    assert clean("text", character * most) == (character * most, 0)
    with pytest.raises(ApiError, match=f"text is .* bytes, but must be at most {TEXT_BYTES} bytes"):
        clean("text", character * (most + 1))


@pytest.mark.parametrize("blank", [" ", "\t\n", "\u200b", "\u3000", "\ue000", "\x00"])
def test_a_text_has_a_visible_character_wherever_it_is(blank):
    blanks = blank * 5000
    assert clean("text", blanks + "a")[0].endswith("a")
    with pytest.raises(InputError, match="at least one visible character"):
        clean("text", blanks)
