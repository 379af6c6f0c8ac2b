"""A detector and a system's watch: they learn, keep quiet, notice, stay latched and survive a restart."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.watch.binning import classes, linear
from pliant.watch.detector import Detector, Stream, detector_from
from pliant.watch.reference import Reference
from pliant.watch.system import ALPHA, SystemWatch, part, system_watch_from

CLASS = Stream("class of task digit", classes("0123"), burn_in=400, pace=1000.0, refinements=2)
SCORE = Stream("confidence", linear(0, 1, 32), burn_in=400, pace=1000.0)


def stored(watch) -> dict:
    return json.loads(json.dumps(watch.to_dict()))


def feed(detector, shares, blocks: int, seed: int = 0, size: int = 20):
    """Return the alarm that so many blocks raise, or None."""
    rng = np.random.default_rng(seed)
    for _ in range(blocks):
        if alarm := detector.update(rng.multinomial(size, shares)):
            return alarm
    return None


def blocks_of(bins: int):
    return st.lists(st.lists(st.integers(0, 30), min_size=bins, max_size=bins), max_size=40)


def test_a_class_that_becomes_frequent_is_noticed_and_named():
    detector = Detector(CLASS)
    assert feed(detector, [0.1, 0.3, 0.3, 0.3], 200) is None
    alarm = feed(detector, [0.5, 0.2, 0.2, 0.1], 50)
    assert alarm is not None
    assert (alarm.bin, alarm.up) == (0, True)
    assert alarm.observations <= 4000 + 200
    assert abs(alarm.since - 4000) <= 60
    assert alarm.share == pytest.approx(0.5, abs=0.12)
    assert alarm.sentence.startswith("class of task digit: the share of class 0 is ")
    assert "was 1" in alarm.sentence.replace("was 9", "was 1")


@pytest.mark.parametrize("stream", [CLASS, SCORE, replace(CLASS, reference=Reference(CLASS.binning, (0.25,) * 4))])
@pytest.mark.parametrize("blocks", [0, 10, 21, 60, 120])
def test_a_state_is_the_same_after_a_round_trip_and_goes_on_alike(stream, blocks):
    detector, shares = Detector(stream), np.full(stream.binning.bins, 1 / stream.binning.bins)
    feed(detector, shares, blocks)
    again = detector_from(stored(detector))
    assert stored(again) == stored(detector)
    changed = np.linspace(0, 2, stream.binning.bins) / stream.binning.bins
    feed(detector, changed / changed.sum(), 60, 1)
    feed(again, changed / changed.sum(), 60, 1)
    assert stored(again) == stored(detector)


@given(blocks_of(4), st.data())
@settings(deadline=None, max_examples=30)
def test_any_blocks_can_be_stored_and_evidence_is_never_negative(blocks, data):
    detector = Detector(CLASS)
    for block in blocks:
        detector.update(block)
        assert detector.evidence > 0
    again = detector_from(stored(detector))
    assert stored(again) == stored(detector)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("stream", None),
        ("observations", -1),
        ("observations", "many"),
        ("start", 10**9),
        ("due", 99),
        ("used", 99),
        ("counts", [1, 2]),
        ("counts", [1, 2, 3, -4]),
        ("tracks", {"wealth": [1.0]}),
        ("tracks", None),
        ("alarm", {"stream": "x"}),
        ("learnt", {"shares": 1}),
        ("learnt", {"binning": {"edges": [], "labels": ["a", "b"]}, "shares": [0.5, 0.5], "size": 3}),
    ],
)
def test_a_corrupt_state_is_refused(key, value):
    detector = Detector(CLASS)
    feed(detector, [0.25] * 4, 30)
    with pytest.raises(InputError):
        detector_from({**detector.to_dict(), key: value})


@pytest.mark.parametrize("counts", [[1, 2], [1.0, 2.0, 3.0, 4.0], [1, 2, 3, -1], [10**7, 1, 0, 0]])
def test_counts_that_are_none_are_refused_and_change_nothing(counts):
    detector = Detector(CLASS)
    with pytest.raises(InputError):
        detector.update(counts)
    assert detector.to_dict() == Detector(CLASS).to_dict()


@pytest.mark.parametrize(
    "changes",
    [{"alpha": 0.0}, {"tolerance": 0.9}, {"burn_in": 0}, {"burst": 0.5}, {"direction": "sideways"}, {"pace": 0.0}],
)
def test_a_stream_outside_its_limits_is_refused(changes):
    with pytest.raises(InputError):
        replace(CLASS, **changes)


def test_false_alarms_are_as_rare_as_promised_at_the_edge_of_the_tolerance():
    alarms = 0
    known = Reference(CLASS.binning, (0.25,) * 4)
    edge = 0.25 * 1.12 / (0.75 + 0.25 * 1.12)  # the odds of one class are all that the tolerance allows
    shares = [edge, *[(1 - edge) / 3] * 3]
    for run in range(40):
        detector = Detector(replace(CLASS, reference=known, alpha=0.1))
        alarms += feed(detector, shares, 100, run, 100) is not None
    assert alarms <= 4


@pytest.mark.parametrize("odds", [1.0, 1.1])
def test_a_learnt_stream_raises_no_more_false_alarms_than_its_alpha_with_edges_at_the_ends(odds):
    """Every share above an edge moves by its odds within the tolerance; the reference is learnt in each run anew."""
    shares, alarms = np.array([0.03, *[0.94 / 30] * 30, 0.03]), 0
    tails = np.cumsum(shares[::-1])[::-1]
    moved = tails * odds / (1 - tails + tails * odds)
    after = -np.diff(np.append(moved, 0.0))
    for run in range(20):
        detector = Detector(replace(SCORE, alpha=0.1, burn_in=3000, refinements=0))
        assert feed(detector, shares, 6, run, 500) is None
        alarms += feed(detector, after, 60, 100 + run, 500) is not None
    assert alarms <= 2


COIN = classes("ab")


def coin(name: str, **more) -> Stream:
    return Stream(name, COIN, reference=Reference(COIN, (0.5, 0.5)), **more)


@given(st.integers(0, 10_000))
def test_parts_never_sum_to_more_than_the_budget(number):
    assert 0 < part(number, ALPHA) <= ALPHA / 4
    assert sum(part(each, ALPHA) for each in range(300)) <= ALPHA


def test_an_alarm_names_its_stream_and_is_raised_once():
    watch = SystemWatch()
    for name in ("x", "y"):
        watch.add(coin(name))
    alarms = watch.update({"x": [50, 50], "y": [200, 0]})
    assert [alarm.stream for alarm in alarms] == ["y"]
    assert watch.update({"y": [200, 0]}) == []
    assert [(row.stream, row.state, row.observations) for row in watch.figures()] == [
        ("x", "watching", 100),
        ("y", "alarm", 400),
    ]
    assert watch.figures()[1].sentence == alarms[0].sentence and watch.figures()[1].threshold > 20


def test_the_budget_is_divided_among_streams_in_their_order():
    watch = SystemWatch(0.02)
    for number in range(20):
        watch.add(coin(str(number)))
    assert [each.stream.alpha for each in watch.detectors.values()] == [part(number, 0.02) for number in range(20)]


def test_a_state_is_the_same_after_a_round_trip():
    watch, rng = SystemWatch(), np.random.default_rng(0)
    watch.add(coin("x"))
    watch.add(Stream("y", COIN, burn_in=50))
    for _ in range(20):
        watch.update({"x": rng.multinomial(10, [0.4, 0.6]), "y": rng.multinomial(10, [0.4, 0.6])})
    assert stored(system_watch_from(stored(watch))) == stored(watch)


@pytest.mark.parametrize(
    "state",
    [
        None,
        {},
        {"schema": 2, "alpha": 0.01, "added": 0, "detectors": []},
        {"schema": 1, "alpha": 2.0, "added": 0, "detectors": []},
        {"schema": 1, "alpha": 0.01, "added": 0, "detectors": [1]},
    ],
)
def test_a_corrupt_state_of_a_system_is_refused(state):
    with pytest.raises(InputError):
        system_watch_from(state)
