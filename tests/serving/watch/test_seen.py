"""Where nothing is watched, nothing is counted."""

from __future__ import annotations

from pliant.serving.arms import to_challenger, to_champion_as_copy
from pliant.serving.watch.seen import Seen
from pliant.watch.binning import classes
from pliant.watch.detector import Stream


def coin(name: str) -> Stream:
    return Stream(name, classes(("heads", "tails")), burn_in=100)


def never(name: str) -> Stream:
    raise AssertionError(f"the stream {name} was made")


def test_nothing_is_counted_and_no_stream_made_where_nothing_is_watched():
    seen = Seen()
    seen.counting = False
    assert not seen.takes()
    seen.label("coin", 0, never)
    seen.number("length", 3.0, never)
    assert seen.take() == {} and seen.streams == {}


def test_counts_say_beforehand_what_they_take():
    seen = Seen()
    assert seen.takes()
    with to_challenger():
        assert not seen.takes()
    with to_champion_as_copy():
        assert not seen.takes()
    seen.label("coin", 1, coin)
    assert seen.take() == {-1: {"coin": [0, 1]}}
