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
from pliant.watch.system import ALPHA, SystemWatch, part, system_watch_from

CLASS = Stream("class of task digit", classes("0123"), burn_in=400)
SCORE = Stream("confidence", linear(0, 1, 32), burn_in=400)


def stored(watch) -> dict:
    return json.loads(json.dumps(watch.to_dict(), allow_nan=False))


def feed(detector, shares, blocks: int, seed: int = 0, size: int = 20, every: float = 60.0):
    """Return the alarm that so many blocks raise, or None. Time goes on from the observations before."""
    rng, start = np.random.default_rng(seed), detector.observations / size * every
    for number in range(blocks):
        if alarm := detector.update(rng.multinomial(size, shares), start + number * every):
            return alarm
    return None


def blocks_of(bins: int):
    return st.lists(st.lists(st.integers(0, 30), min_size=bins, max_size=bins), max_size=40)


def test_a_class_that_becomes_frequent_is_noticed_at_once_and_named():
    detector = Detector(CLASS)
    assert feed(detector, [0.1, 0.3, 0.3, 0.3], 200, every=1.0) is None
    alarm = feed(detector, [0.9, 0.1, 0.0, 0.0], 50, every=1.0)
    assert alarm is not None
    assert (alarm.bin, alarm.up) == (0, True)
    assert alarm.observations <= 4000 + 800
    assert abs(alarm.since - 4000) <= 60
    assert alarm.share == pytest.approx(0.9, abs=0.12)
    assert alarm.sentence.startswith("class of task digit: the share of class 0 is ")


@pytest.mark.parametrize("shares", [[0.2, 0.2667, 0.2667, 0.2666], [0.25, 0.25, 0.25, 0.25]], ids=["odds x 2.2", "x 3"])
def test_a_mild_change_is_a_shift_on_the_first_days_and_an_alarm_once_the_week_is_known(shares):
    shares, usual = np.array(shares) / sum(shares), [0.1, 0.3, 0.3, 0.3]
    early, late, often = Detector(CLASS), Detector(CLASS), {"size": 100, "every": 300.0}
    assert feed(early, usual, 12 * 12, **often) is None and feed(early, shares, 5 * 12, 1, **often) is None
    assert feed(late, usual, 9 * 288, **often) is None and late.state == "watching"
    alarm = feed(late, shares, 5 * 12, 1, **often)
    assert alarm is not None and (alarm.bin, alarm.up) == (0, True)
    assert abs(alarm.since - 9 * 288 * 100) <= 1200


def test_a_window_that_is_mildly_unlike_the_beginning_shows_as_shifted_and_raises_nothing():
    detector = Detector(CLASS)
    feed(detector, [0.1, 0.3, 0.3, 0.3], 3 * 288, size=500, every=300.0)
    assert feed(detector, [0.16, 0.24, 0.3, 0.3], 12, 1, size=500, every=300.0) is None
    assert detector.state == "shifted" and "was 1" in detector.sentence.replace("was 9", "was 1")


@pytest.mark.parametrize("stream", [CLASS, SCORE])
@pytest.mark.parametrize("blocks", [0, 10, 21, 60, 120, 2000])
def test_a_state_is_the_same_after_a_round_trip_and_goes_on_alike(stream, blocks):
    detector, shares = Detector(stream), np.full(stream.binning.bins, 1 / stream.binning.bins)
    feed(detector, shares, blocks)
    again = detector_from(stored(detector))
    assert stored(again) == stored(detector)
    changed = np.linspace(0, 2, stream.binning.bins) / stream.binning.bins
    for each in (detector, again):
        feed(each, changed / changed.sum(), 60, 1)
    assert stored(again) == stored(detector)


@given(blocks_of(4))
@settings(deadline=None, max_examples=30)
def test_any_blocks_can_be_stored_and_evidence_is_never_negative(blocks):
    detector = Detector(CLASS)
    for number, block in enumerate(blocks):
        detector.update(block, 3600.0 * abs(number - 20))  # a clock that goes back, too
        assert detector.evidence > 0
    assert stored(detector_from(stored(detector))) == stored(detector)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("stream", None),
        ("observations", -1),
        ("observations", "many"),
        ("counts", [1, 2]),
        ("counts", [1, 2, 3, -4]),
        ("first", [1]),
        ("block", [-1, 0, 0, 0]),
        ("gross", {"wealth": [1.0]}),
        ("windows", None),
        ("alarm", {"stream": "x"}),
        ("course", {"known": 1}),
        ("course", {**Detector(CLASS).to_dict(), "begin": 0.0}),
        ("edges", [0.5]),
    ],
)
def test_a_corrupt_state_is_refused(key, value):
    detector = Detector(CLASS)
    feed(detector, [0.25] * 4, 30)
    with pytest.raises(InputError):
        detector_from({**detector.to_dict(), key: value})


@pytest.mark.parametrize("key", ["known", "window", "days", "visits", "noise", "last"])
def test_a_course_of_another_shape_is_refused(key):
    detector = Detector(CLASS)
    feed(detector, [0.25] * 4, 30)
    state = detector.to_dict()
    with pytest.raises(InputError):
        detector_from({**state, "course": {**state["course"], key: state["course"][key][:-1]}})


@pytest.mark.parametrize("counts", [[1, 2], [1.0, 2.0, 3.0, 4.0], [1, 2, 3, -1], [10**7, 1, 0, 0]])
def test_counts_that_are_none_are_refused_and_change_nothing(counts):
    detector = Detector(CLASS)
    with pytest.raises(InputError):
        detector.update(counts, 0.0)
    assert detector.to_dict() == Detector(CLASS).to_dict()


@pytest.mark.parametrize("changes", [{"alpha": 0.0}, {"burn_in": 0}])
def test_a_stream_outside_its_limits_is_refused(changes):
    with pytest.raises(InputError):
        replace(CLASS, **changes)


def test_blocks_that_are_all_of_one_class_are_no_evidence_while_each_class_is_as_frequent_as_before():
    """A client sends folder after folder of one class, for as long as two blocks each: as dependent as answers can be."""
    rng, detector = np.random.default_rng(0), Detector(replace(CLASS, alpha=0.1))
    feed(detector, [0.25] * 4, 20, every=1.0)
    for number, place in enumerate(rng.integers(4, size=500).repeat(2)):
        assert detector.update(np.eye(4, dtype=int)[place] * 20, 100.0 + number) is None


def coin(name: str) -> Stream:
    return Stream(name, classes("ab"), burn_in=100)


@given(st.integers(0, 10_000))
def test_parts_never_sum_to_more_than_the_budget(number):
    assert 0 < part(number, ALPHA) <= ALPHA / 4
    assert sum(part(each, ALPHA) for each in range(300)) <= ALPHA


def test_an_alarm_names_its_stream_and_is_raised_once():
    watch = SystemWatch()
    for name in ("x", "y"):
        watch.add(coin(name))
    assert watch.update({"x": [50, 50], "y": [50, 50]}, 0.0) == []
    alarms = [alarm for number in range(200) for alarm in watch.update({"x": [5, 5], "y": [10, 0]}, number)]
    assert [alarm.stream for alarm in alarms] == ["y"]
    rows = [(row.stream, row.state, row.observations) for row in watch.figures()]
    assert rows == [("x", "watching", 2100), ("y", "alarm", 2100)]
    assert watch.figures()[1].sentence == alarms[0].sentence and watch.figures()[1].threshold > 20


def test_the_budget_is_divided_among_streams_in_their_order():
    watch = SystemWatch(0.02)
    for number in range(20):
        watch.add(coin(str(number)))
    assert [each.stream.alpha for each in watch.detectors.values()] == [part(number, 0.02) for number in range(20)]


def test_a_state_is_the_same_after_a_round_trip():
    watch, rng = SystemWatch(), np.random.default_rng(0)
    watch.add(coin("x"))
    watch.add(Stream("y", classes("ab"), burn_in=500))
    for number in range(20):
        watch.update({"x": rng.multinomial(10, [0.4, 0.6]), "y": rng.multinomial(10, [0.4, 0.6])}, number)
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
