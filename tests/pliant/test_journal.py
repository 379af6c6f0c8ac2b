"""A change of knowledge stands in the journal like any event: its line gives it back, and so does a replay."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.journal import decode, encode
from pliant.protocol import Changed, Drop, JournalEntry, Launch, replay
from tests.pliant.tokens.loads import KNOWN, VARIANTS, ask, run, scheduler

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=3), plain, max_size=3))
def test_plain_facts_come_back_equal_from_their_line(facts):
    entry = JournalEntry(0.1 + 0.2, Changed(facts), (Drop(3, "late"), Launch(4, 0, (), 2, "load")))
    line = encode(entry)
    assert decode(line) == entry
    assert "\n" not in line


def test_what_a_scheduler_knows_comes_back_equal_from_its_line():
    for some in (KNOWN, VARIANTS):
        entry = JournalEntry(1.5, Changed(some.plain()), ())
        assert decode(encode(entry)) == entry


def test_a_change_without_facts_is_no_entry():
    line = json.dumps({"now": 1.0, "event": {"type": "changed"}, "actions": []})
    with pytest.raises(InputError, match="journal line"):
        decode(line)


def test_a_replay_needs_the_change():
    """With the other profile the scheduler decides otherwise, so a journal without it cannot be replayed."""
    load = [ask(i, at=i / 100, within=0.2) for i in range(80)]
    journal, _ = run(load, changes=[(0.1, KNOWN.only((-10, -5)))])
    lines = [encode(entry) for entry in journal]
    assert replay(scheduler(), map(decode, lines)) == journal
    without = [decode(line) for line in lines if '"changed"' not in line]
    assert len(without) == len(journal) - 1
    assert replay_differs(without)


def replay_differs(journal) -> bool:
    fresh = scheduler()
    return any(replay(fresh, [entry]) != [entry] for entry in journal)
