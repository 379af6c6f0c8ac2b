"""A journal of packing comes back from its lines unchanged, and its inputs give its plans again."""

from __future__ import annotations

import json
from math import nextafter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.packing.scheduling.journal import decode, encode
from pliant.packing.scheduling.request import Chunk, Prompt, StepInput, StepPlan

ids = st.integers(0, 2**53)
some = st.lists(ids, max_size=4).map(tuple)
finite = st.floats(allow_nan=False, allow_infinity=False)
prompts = st.builds(
    Prompt, ids, finite, ids, ids, st.lists(finite, min_size=8, max_size=8).map(tuple), ids,
    st.floats(allow_nan=False), finite, st.booleans(), ids,
)  # fmt: skip
rounds = st.builds(StepInput, st.lists(prompts, max_size=2).map(tuple), some, some)
dropped = st.lists(st.tuples(ids, st.text(max_size=9)), max_size=2).map(tuple)
chunks = st.lists(st.builds(Chunk, ids, ids), max_size=3).map(tuple)
decisions = st.builds(StepPlan, dropped, some, some, some, chunks, some)


@given(finite, rounds, decisions)
def test_an_entry_comes_back_from_its_line_to_the_last_bit(now, step_input, plan):
    line = encode(now, step_input, plan)
    assert decode(line) == (now, step_input, plan) and "\n" not in line
    assert repr(decode(line)) == repr((now, step_input, plan))


FORECAST = (1.0, 2.0, 3.0, 4.5, 5.0, 6.0, 7.0, nextafter(8.0, 9.0))
PLAIN = Prompt(1, 0.1, 5, 7, FORECAST)
FULL = Prompt(2, 0.2, 6, 8, FORECAST, 10, 3.5, 0.5, True, 4, "ann", 2.0)
INPUT = StepInput((PLAIN, FULL), (3, 4), (5,))
PLAN = StepPlan(((1, "late"), (2, "full")), (3,), (4,), (5, 6), (Chunk(5, 9), Chunk(6, 1)), (7,))


def test_a_line_has_the_keys_that_journals_have_always_had():
    line = json.loads(encode(2, INPUT, PLAN))
    assert line["dropped"] == [[1, "late"], [2, "full"]]
    assert line["chunks"] == [[5, 9], [6, 1]] and line["idle"] == [7]
    assert (line["offloaded"], line["discarded"], line["admitted"]) == ([3], [4], [5, 6])
    assert (line["finished"], line["cancelled"]) == ([3, 4], [5])
    assert line["arrived"][0] == {"id": 1, "arrival": 0.1, "tokens": 5, "limit": 7, "forecast": list(FORECAST)}
    assert line["arrived"][1]["tenant"] == "ann"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "Expecting value"),
        ("[1]", ""),
        ("3", ""),
        ("{}", "now"),
        ('{"now": "x"}', "now is 'x'"),
        ('{"now": null}', "now is None"),
        ('{"now": 1, "stalled": [1], "b": 2}', "unknown: b, stalled"),
        ('{"now": 1, "arrived": [{"id": 1}]}', "forecast"),
        ('{"now": 1, "chunks": [[1]]}', "not enough values"),
        ('{"now": 1, "dropped": [1]}', ""),
    ],
)
def test_a_line_that_holds_no_entry_is_refused_with_its_beginning_and_the_reason(line, reason):
    with pytest.raises(InputError, match=r"journal line is .* must be one entry as written by encode") as caught:
        decode(line)
    assert reason in str(caught.value)
