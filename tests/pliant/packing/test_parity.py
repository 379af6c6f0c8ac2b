"""A journal of packing comes back from its lines unchanged, and its inputs give its plans again."""

from __future__ import annotations

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
