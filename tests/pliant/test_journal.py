"""Entries come back from their lines unchanged, and a change of knowledge is part of every replay."""

from __future__ import annotations

import pytest

from pliant.errors import InputError
from pliant.journal import decode, encode
from pliant.protocol import (
    Answer,
    Arrived,
    Cancelled,
    Changed,
    Drop,
    Failed,
    Finished,
    JournalEntry,
    Launch,
    Limited,
    Request,
    Restarted,
    Result,
    Woke,
)

OLD = (
    '{"now": 0.5, "event": {"type": "arrived", "id": 1, "arrival": 0.5, "deadline": 1.5, "task": "a", "utility": 0.3}, '
    '"actions": [{"type": "launch", "id": 0, "worker": 1, "requests": [1], "setting": -5, "kind": "run"}]}',
    '{"now": 0.6, "event": {"type": "finished", "launch": 0, "seconds": 0.1, "results": [[1, true]]}, '
    '"actions": [{"type": "answer", "request": 1, "launch": 0}]}',
)
"""As written before requests had a length and a setting, results a gain and a length, and answers a reason."""


def test_old_lines_are_read_as_before_and_what_is_empty_is_still_written_so():
    first, second = map(decode, OLD)
    assert first == JournalEntry(0.5, Arrived(Request(1, 0.5, 1.5, "a", 0.3)), (Launch(0, 1, (1,), -5),))
    assert second == JournalEntry(0.6, Finished(0, 0.1, (Result(1, True),)), (Answer(1, 0),))
    assert (encode(first), encode(second)) == OLD


LINES = (
    (
        JournalEntry(1.0, Arrived(Request(1, 0.5, float("inf"), "a", 1.0, 7, 2, "ann", 0.5)), ()),
        '{"now": 1.0, "event": {"type": "arrived", "id": 1, "arrival": 0.5, "deadline": Infinity, "task": "a", '
        '"utility": 1.0, "length": 7, "setting": 2, "tenant": "ann", "weight": 0.5}, "actions": []}',
    ),
    (
        JournalEntry(1.0, Finished(3, 0.25, (Result(1), Result(2, True, None, 5), Result(3, False, 0.0))), ()),
        '{"now": 1.0, "event": {"type": "finished", "launch": 3, "seconds": 0.25, "results": [[1, null], '
        '[2, true, null, 5], [3, false, 0.0, 0]]}, "actions": []}',
    ),
    (
        JournalEntry(1.0, Failed(3, "planted"), (Drop(4, "late"),)),
        '{"now": 1.0, "event": {"type": "failed", "launch": 3, "reason": "planted"}, '
        '"actions": [{"type": "drop", "request": 4, "reason": "late"}]}',
    ),
    (
        JournalEntry(1.0, Failed(3, "planted", lost=False), (Answer(4, 2, "failed"),)),
        '{"now": 1.0, "event": {"type": "failed", "launch": 3, "reason": "planted", "lost": false}, '
        '"actions": [{"type": "answer", "request": 4, "launch": 2, "reason": "failed"}]}',
    ),
    (
        JournalEntry(1.0, Woke(), (Launch(5, 1, (), 2, "load", 0.5),)),
        '{"now": 1.0, "event": {"type": "woke"}, "actions": [{"type": "launch", "id": 5, "worker": 1, '
        '"requests": [], "setting": 2, "kind": "load", "expected": 0.5}]}',
    ),
    (JournalEntry(1.0, Cancelled(6), ()), '{"now": 1.0, "event": {"type": "cancelled", "request": 6}, "actions": []}'),
    (
        JournalEntry(1.0, Limited(-5, 16), ()),
        '{"now": 1.0, "event": {"type": "limited", "setting": -5, "batch": 16}, "actions": []}',
    ),
    (
        JournalEntry(1.0, Restarted("bug"), ()),
        '{"now": 1.0, "event": {"type": "restarted", "reason": "bug"}, "actions": []}',
    ),
    (
        JournalEntry(1.0, Changed({"a": [1]}), ()),
        '{"now": 1.0, "event": {"type": "changed", "facts": {"a": [1]}}, "actions": []}',
    ),
)


@pytest.mark.parametrize(("entry", "line"), LINES, ids=[type(entry.event).__name__ for entry, _ in LINES])
def test_each_event_and_action_has_its_line(entry, line):
    assert encode(entry) == line
    assert decode(line) == entry


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "Expecting property name"),
        ("[]", "list indices"),
        ('{"now": 1.0, "event": {"type": "slept"}, "actions": []}', "no event is called 'slept'"),
        ('{"now": 1.0, "event": {"type": "woke"}, "actions": [{"type": "rest"}]}', "no action is called 'rest'"),
        ('{"now": 1.0, "event": {"type": "woke"}}', "'actions'"),
        ('{"now": 1.0, "event": {"type": "changed"}, "actions": []}', "facts"),
        (OLD[0].replace('"utility"', '"usefulness"'), "usefulness"),
    ],
)
def test_a_line_that_holds_no_entry_is_refused_with_its_beginning_and_the_reason(line, reason):
    with pytest.raises(InputError) as caught:
        decode(line)
    assert str(caught.value).startswith(f"journal line is {line[:80]!r}, but must be one entry as written by encode (")
    assert reason in str(caught.value)
