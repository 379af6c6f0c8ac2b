"""All streams of a system share a budget, a state and a table."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.watch import Reference, Stream, SystemWatch, classes, system_watch_from
from pliant.watch.system import ALPHA, MAX_STREAMS, part

COIN = classes("ab")


def coin(name: str, **more) -> Stream:
    return Stream(name, COIN, reference=Reference(COIN, (0.5, 0.5)), **more)


@given(st.integers(0, 10_000))
def test_parts_never_sum_to_more_than_the_budget(number):
    assert 0 < part(number, ALPHA) <= ALPHA / 4
    assert sum(part(each, ALPHA) for each in range(300)) <= ALPHA


def test_an_alarm_names_its_stream_and_stands_until_the_reset():
    watch = SystemWatch()
    for name in ("x", "y"):
        watch.add(coin(name))
    alarms = watch.update({"x": [50, 50], "y": [200, 0]})
    assert [alarm.stream for alarm in alarms] == ["y"]
    assert watch.update({"y": [200, 0]}) == []
    assert watch.alarms() == alarms
    watch.reset("y")
    assert watch.alarms() == []


def test_a_stream_that_is_watched_alike_goes_on_and_another_starts_anew():
    watch = SystemWatch()
    watch.add(coin("x"))
    watch.update({"x": [5, 5]})
    assert watch.add(coin("x")).observations == 10
    assert watch.add(coin("x", tolerance=2.0)).observations == 0
    assert len(watch) == 1


def test_the_stream_that_was_not_used_for_longest_goes():
    watch = SystemWatch()
    for number in range(MAX_STREAMS):
        watch.add(coin(str(number)))
    watch.update({"0": [1, 1]})
    watch.add(coin("new"))
    assert len(watch) == MAX_STREAMS
    assert "0" in watch
    assert "1" not in watch


def test_a_state_is_the_same_after_a_round_trip():
    watch, rng = SystemWatch(), np.random.default_rng(0)
    watch.add(coin("x"))
    watch.add(Stream("y", COIN, burn_in=50))
    for _ in range(20):
        watch.update({"x": rng.multinomial(10, [0.4, 0.6]), "y": rng.multinomial(10, [0.4, 0.6])})
    state = json.loads(json.dumps(watch.to_dict(), allow_nan=False))
    assert system_watch_from(state).to_dict() == watch.to_dict()


@pytest.mark.parametrize(
    "state",
    [
        None,
        {},
        {"schema": 2, "alpha": 0.01, "added": 0, "detectors": []},
        {"schema": 1, "alpha": 2.0, "added": 0, "detectors": []},
        {"schema": 1, "alpha": 0.01, "added": 0, "detectors": [1]},
        {"schema": 1, "alpha": 0.01, "added": 1, "detectors": [1]},
    ],
)
def test_a_corrupt_state_is_refused(state):
    with pytest.raises(InputError):
        system_watch_from(state)
