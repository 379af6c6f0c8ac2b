"""Floors of a promise: a slice that is right far less often is named, and none is where the promise and its floors hold."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

from pliant.errors import InputError
from pliant.outcomes.record import MAX_DECLARED, MAX_SLICES, Record, ReportedLabel
from pliant.outcomes.tracker import Answered, Report, Tracker
from pliant.state import read
from tests.fixtures.observed import remember_in

PROMISED = 0.9
EVEN = (0.05, *[0.95 / 9] * 9)


def broken_after(right: np.ndarray, run: int = 1, labels: int = 500, seed: int = 0) -> Record:
    """Return the record at the first alarm or after all labels. `right`: accuracies; `run`: mean labels that are one."""
    rng, record = np.random.default_rng(seed), Record()
    classes, draws = rng.choice(len(right), labels, p=EVEN), rng.random(labels)
    places = np.maximum.accumulate(np.where(rng.random(labels) < 1 / run, np.arange(labels), 0))
    for place in places:
        reported = ReportedLabel("", "", bool(draws[place] < right[classes[place]]), "", "", 0.0)
        if record.add("0", 0.9, PROMISED, reported, slices=(f"the class {classes[place]}", "the tenant acme")):
            break
    return record


@pytest.mark.parametrize("run", [1, 2])
def test_a_promise_that_is_kept_with_a_class_at_its_floor_raises_no_alarm(run):
    right = np.array([0.6, *[(PROMISED - 0.05 * 0.6 - 2 * 0.95 / 9 * 0.8) / (7 * 0.95 / 9)] * 7, 0.8, 0.8])
    assert np.dot(EVEN, right) == pytest.approx(PROMISED) and right.max() <= 1
    kept = [broken_after(right, run, 400, seed).figures(("t", 1, "0")) for seed in range(200)]
    assert sum(figures.broken or figures.slices != () for figures in kept) <= 10


def test_a_class_of_5_percent_that_is_never_right_is_named_within_500_labels():
    right = np.array([0.0, *[PROMISED / 0.95] * 9])
    figures = [broken_after(right, seed=seed).figures(("t", 1, "0")) for seed in range(40)]
    assert sum([each.name for each in every.slices] == ["the class 0"] and not every.broken for every in figures) >= 38


def report(tracker: Tracker, number: int, correct: bool, tenant: str | None = "", declared: str = ""):
    kind = Answered("t", 1, "0", "0", "b", 0.8, PROMISED, classes=("a", "b"))
    remember_in(tracker, str(number), kind)
    return tracker.take(str(number), "b" if correct else "a", Report(tenant or ""), tenant, declared)


def test_a_declared_slice_alarms_once_outlives_a_restart_and_is_refuted_without_any_one_tenants_labels():
    """Answers of phones are right half the time, but for that none is wrong."""

    def rounds(tracker: Tracker, first: int, tenant: str) -> bool:
        return any(
            report(tracker, number, number % 40 > 0, tenant, ("phones", "web")[number % 20 > 0]).refuted
            for number in range(first, first + 2000)
        )

    tracker = Tracker(recorded=True, floor=0.2)
    assert not rounds(tracker, 0, "evil")
    names = [[each.name for each in alarm.figures.slices] for alarm in tracker.alarms()]
    assert names == [["the class a"], ["the class a", "the slice phones"]]
    ((key, record),) = tracker.drain().records.items()
    tracker = Tracker(floor=0.2)
    tracker.restore((), {key: read(Record, json.loads(json.dumps(asdict(record))), "a record")}, ())
    assert rounds(tracker, 2000, "acme")
    (figures,) = tracker.figures()
    assert [each.name for each in figures.slices] == names[1] and not figures.broken


def test_slices_are_bounded_and_a_declared_one_too_many_is_refused_by_name():
    tracker, record = Tracker(), Record()
    for number in range(MAX_DECLARED):
        report(tracker, number, True, declared=f"s{number}")
    with pytest.raises(
        InputError, match=r"^slice is 'more', but must be one of the 16 that were declared first: s0, s1"
    ):
        report(tracker, 99, True, declared="more")
    assert report(tracker, 99, True, declared="s3").counted, "the refused report changed nothing"
    for number in range(200):
        record.add("0", 0.9, PROMISED, ReportedLabel("", "", True, "", "", 0.0), slices=(f"the class {number}",))
    assert len(record.slices) == MAX_SLICES
