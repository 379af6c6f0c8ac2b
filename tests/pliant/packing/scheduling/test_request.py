"""Prompts at and beyond their limits, and the pages that hold a number of tokens."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import pytest

from pliant.errors import InputError
from pliant.packing.scheduling.request import Memory, Prompt, validate

PROMPT = Prompt(3, 0.0, 5, 7, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"id": 0},
        {"tokens": 1},
        {"limit": 1},
        {"arrival": -1e9},
        {"deadline": inf},
        {"deadline": -inf},
        {"utility": 0.0},
        {"utility": 1e300},
        {"bucket": 0},
        {"weight": 1e-9},
    ],
)
def test_a_prompt_at_its_limits_is_taken(changes):
    validate(replace(PROMPT, **changes))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"id": -1}, "id is -1, but must be at least 0"),
        ({"tokens": 0}, "prompt is 0 tokens, but must be at least 1 token"),
        ({"limit": 0}, "max_tokens is 0, but must be at least 1"),
        ({"arrival": inf}, "arrival is inf, but must be finite"),
        ({"arrival": nan}, "arrival is nan, but must be finite"),
        ({"deadline": nan}, "deadline is nan, but must be a number of seconds"),
        ({"utility": -0.1}, "utility is -0.1, but must be at least 0 and finite"),
        ({"utility": inf}, "utility is inf, but must be at least 0 and finite"),
        ({"utility": nan}, "utility is nan, but must be at least 0 and finite"),
        ({"bucket": -1}, "bucket is -1, but must be at least 0"),
        ({"weight": 0.0}, "weight is 0.0, but must be above 0 and finite"),
        ({"ttft": 0.0}, "ttft is 0.0, but must be .*"),
        ({"tpot": nan}, "tpot is nan, but must be .*"),
        ({"weight": inf}, "weight is inf, but must be above 0 and finite"),
        ({"forecast": (1.0,) * 7}, "forecast is .*, but must be 8 quantiles"),
        ({"forecast": (1.0,) * 9}, "forecast is .*, but must be 8 quantiles"),
        ({"forecast": (1.0,) * 7 + (nan,)}, "forecast is .*, but must be finite"),
    ],
)
def test_a_prompt_beyond_them_is_refused_with_the_field_the_value_and_the_limit(changes, sentence):
    with pytest.raises(InputError, match=f"^{sentence}$"):
        validate(replace(PROMPT, **changes))


def test_tokens_fill_whole_pages():
    memory = Memory(pages=4, page_tokens=16)
    assert [memory.need(tokens) for tokens in (0, 1, 15, 16, 17, 32, 33)] == [0, 1, 1, 1, 2, 2, 3]


@pytest.mark.parametrize(
    ("field", "least"), [("pages", 1), ("page_tokens", 1), ("host_pages", 0), ("step_tokens", 1), ("sequences", 1)]
)
def test_a_memory_holds_at_least_a_page_of_a_token_and_perhaps_none_on_the_host(field, least):
    given = {"pages": 2, "page_tokens": 2, field: least}
    assert getattr(Memory(**given), field) == least
    with pytest.raises(InputError, match=f"^{field} is {least - 1}, but must be at least {least}$"):
        Memory(**given | {field: least - 1})
