"""Figures from later labels, and the false alarms of the test of the promise."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.betting import Blocks, bet, evidence, initial_wealth
from pliant.outcomes.record import CONFIDENCE, TARGET, Record
from pliant.outcomes.tracker import DAY, Answered, LabelResult, Report, Tracker
from pliant.state import read
from tests.fixtures.observed import remember_in

BROKEN = 1 / (1 - CONFIDENCE)


def answered(level="small", label="b", confidence=0.8, promised: float | None = 0.9, **changes) -> Answered:
    fields = {"task": "t", "version": 1, "candidate": "default", "classes": ("a", "b"), **changes}
    return Answered(level=level, label=label, confidence=confidence, promised=promised, **fields)


def first_alarms(accuracy, promised: float, runs: int, labels: int, seed: int) -> np.ndarray:
    """Return [runs], the label that breaks the promise; a large number if none does. `accuracy`: of each label."""
    rng = np.random.default_rng(seed)
    wealth, alarm = np.tile(initial_wealth(), (runs, 1)), np.full(runs, 10**9)
    for label in range(labels):
        wealth = bet(wealth, label, rng.random(runs) >= accuracy(label), promised)
        broken = evidence(wealth, label + 1) >= BROKEN
        alarm[broken & (alarm == 10**9)] = label + 1
    return alarm


@pytest.mark.parametrize("promised", [0.6, 0.9, 0.98])
def test_a_promise_that_is_just_kept_is_called_broken_in_at_most_5_percent_of_long_runs(promised):
    alarms = first_alarms(lambda label: promised, promised, runs=1000, labels=6000, seed=1)
    assert np.mean(alarms <= 6000) <= 1 - CONFIDENCE


def broken_after(accuracy: float, run: int, runs: int, labels: int) -> list[int]:
    """Return after how many labels each promise of 0.9 that breaks does so. `run`: mean labels in a row that are one's."""
    after = []
    for seed in range(runs):
        rng, bets = np.random.default_rng(seed), Blocks()
        draws = rng.random(labels) >= accuracy
        places = np.maximum.accumulate(np.where(rng.random(labels) < 1 / run, np.arange(labels), 0))
        for wrong in draws[places]:
            bets.add(bool(wrong), 0.9)
            if not bets.held and bets.evidence >= TARGET:
                after.append(bets.labels)
                break
    return after


@pytest.mark.parametrize("run", [1, 2, 4])
def test_a_promise_that_is_kept_holds_where_texts_come_again(run):
    assert len(broken_after(0.9, run, runs=100, labels=3000)) <= 5


def test_a_broken_promise_is_noticed_within_some_hundred_labels():
    five, ten, again = (broken_after(*each, 40, 3000) for each in ((0.85, 1), (0.8, 1), (0.8, 2)))
    assert len(five) == len(ten) == len(again) == 40
    assert np.median(five) <= 500 and np.median(ten) <= 250 and np.median(again) <= 500


def test_each_answer_is_drawn_and_listed_with_the_probability_that_is_said():
    """By Horvitz and Thompson the answers that are listed stand for all."""
    totals = []
    for seed in range(150):
        tracker = Tracker(drawn=20.0)
        tracker._random.seed(seed)
        for number in range(200):
            remember_in(tracker, str(number), answered(), 432.0 * number)
        rows = tracker.wanted(15, DAY, lambda tenant: True)
        totals.append([sum(1 / row.inclusion for row in rows if row.sequence // 50 == part) for part in range(4)])
    assert np.mean(totals, axis=0) == pytest.approx(50, abs=4 * np.std(totals) / math.sqrt(150))
    assert len(rows) == 15 and tracker.wanted(15, DAY, lambda tenant: True) == rows, "they wait for their labels"


@pytest.mark.parametrize("asks", [True, False])
def test_where_wanted_answers_are_labelled_complaints_bias_nothing(asks):
    """A tenth of the answers is wrong. Each day comes a label of every second wrong one, then the labels that are wanted."""
    tracker, rng = Tracker(drawn=100.0), np.random.default_rng(1)
    tracker._random.seed(1)
    wrong = rng.random(20_000) < 0.1
    complains = wrong & (rng.random(20_000) < 0.5)
    for number, at in enumerate(np.linspace(DAY, 21 * DAY, 20_000)):
        remember_in(tracker, str(number), answered(), at)
        if complains[number]:
            tracker.take(str(number), "a", Report(at=at))
        if asks and number % 1000 == 0:
            for row in tracker.wanted(200, at, lambda tenant: True):
                label = "a" if wrong[int(row.id)] else "b"
                assert tracker.take(row.id, label, Report(at=at)).counted
    (figures,) = tracker.figures()
    if asks:
        assert figures.accuracy == pytest.approx(0.9, abs=0.02) and not figures.broken
        assert figures.labels + figures.unasked > 2000 and figures.levels[0].labels == figures.labels
    else:
        assert figures.accuracy == 0 and figures.broken


@given(promised=st.floats(0, 1), shortfall=st.floats(0, 1), labels=st.integers(0, 10**6))
def test_no_bet_has_a_mean_gain_while_the_promise_is_kept(promised, shortfall, labels):
    """Ville's inequality needs this alone: the mean wealth after a label is at most the wealth before it."""
    wrong = (1 - promised) * shortfall  # right more often than promised
    right, lost = (bet(initial_wealth(), labels, was, promised) for was in (False, True))
    mean = wrong * evidence(lost, labels + 1) + (1 - wrong) * evidence(right, labels + 1)
    assert mean <= evidence(initial_wealth(), labels) + 1e-4  # a promise of 1 counts as 1 - 1e-6


@given(
    answers=st.lists(
        st.tuples(st.sampled_from(["small", "large"]), st.floats(0, 1), st.sampled_from("ab")), min_size=1, max_size=60
    )
)
def test_the_figures_of_each_level_are_those_counted_by_hand(answers):
    tracker = Tracker(memory=64)
    for number, (level, confidence, label) in enumerate(answers):
        remember_in(tracker, str(number), answered(level, confidence=confidence))
        tracker.take(str(number), label, Report())
    (figures,) = tracker.figures()
    assert figures.labels == len(answers)
    for counted in figures.levels:
        mine = [(confidence, label == "b") for level, confidence, label in answers if level == counted.level]
        bins = [min(int(confidence * 15), 14) for confidence, _ in mine]
        gaps = [abs(sum(c - right for b, (c, right) in zip(bins, mine, strict=True) if b == at)) for at in set(bins)]
        assert counted.labels == len(mine)
        assert counted.accuracy == pytest.approx(np.mean([right for _, right in mine]))
        assert counted.confidence == pytest.approx(np.mean([confidence for confidence, _ in mine]))
        assert counted.error == pytest.approx(sum(gaps) / len(mine), abs=1e-9)


def test_a_label_counts_once_and_cannot_be_changed():
    tracker = Tracker()
    remember_in(tracker, "x", answered())
    assert tracker.take("x", "b", Report()).counted
    assert tracker.take("x", "b", Report()).status == "repeated"
    again = tracker.take("x", "a", Report())
    assert (again.status, again.correct) == ("contradicted", True)
    assert tracker.figures()[0].labels == 1


CLASSES = Answered("t", 1, "default", "small", "b", 0.8, 0.9, classes=("a", "b"), tenant="acme", former_levels=("s",))
VALUES = Answered("u", "2", "quick", "large", -1.5, 0.25, None, tolerance=0.5)

kinds = st.one_of(
    st.builds(
        lambda label, share, tenant: replace(CLASSES, label=label, tenant=tenant, former=(("a", share),)),
        st.sampled_from("ab"),
        st.floats(0, 1),
        st.sampled_from(["", "acme"]),
    ),
    st.builds(lambda value: replace(VALUES, label=value), st.floats(allow_nan=False, allow_infinity=False)),
)


@given(size=st.integers(1, 9), given=st.lists(kinds, max_size=40), labelled=st.sets(st.integers(0, 40)))
def test_the_newest_answers_and_their_labels_are_kept_exactly(size, given, labelled):
    tracker, expected = Tracker(size), {}
    for number, each in enumerate(given):
        remember_in(tracker, f"id {number}", each, float(number))
        if number in labelled:
            tracker.take(f"id {number}", each.label, Report())
        expected[f"id {number}"] = each, each.label if number in labelled else None
    rows = {id: tracker.remembered(id) for id in expected}
    kept = {id: (row.answered, row.reported) for id, row in rows.items() if row is not None}
    assert kept == dict(list(expected.items())[-size:]) and len(tracker) == len(kept)


@pytest.mark.parametrize("id", ["", "x" * 10_000, "\ud800", "\0"])
def test_any_text_is_an_id(id):
    tracker = Tracker()
    assert tracker.remembered(id) is None
    remember_in(tracker, id, CLASSES)
    assert tracker.remembered(id).answered == CLASSES


def test_an_alarm_shows_who_reported_the_labels_that_led_to_it_and_can_be_taken_back_once():
    tracker = Tracker()
    for number in range(80):
        remember_in(tracker, str(number), answered())
        broke = tracker.take(str(number), "a", Report("acme", "1234abcd", number)).broke
        if broke:
            break
    (alarm,) = tracker.alarms()
    assert broke and alarm.figures.broken and alarm.at == number
    assert [entry.id for entry in alarm.labels] == [str(i) for i in range(number + 1)]
    assert {(entry.tenant, entry.correct) for entry in alarm.labels} == {("acme", False)}
    taken_back = tracker.take_back(alarm.id, Report("root", "0", 99.0))
    assert taken_back.taken_back == Report("root", "0", 99.0)
    assert tracker.figures() == []
    assert tracker.take_back(alarm.id, Report("another", "1", 100.0)).taken_back == taken_back.taken_back
    assert tracker.take_back(7, Report()) is None
    remember_in(tracker, "x", answered())
    assert not tracker.take("x", "a", Report()).broke
    (figures,) = tracker.figures()
    assert (figures.labels, figures.broken) == (1, False)


def test_alarms_and_the_labels_in_them_stay_within_their_bounds():
    tracker = Tracker()
    for number in range(250):
        remember_in(tracker, str(number), answered())
        tracker.take(str(number), "b", Report())
    for version in range(2, 68):
        for number in range(80):
            remember_in(tracker, f"{version}-{number}", answered(version=version))
            tracker.take(f"{version}-{number}", "a", Report())
    assert [alarm.figures.version for alarm in tracker.alarms()] == list(range(4, 68)), "64 alarms"
    for number in range(200):
        remember_in(tracker, f"x{number}", answered())
        if tracker.take(f"x{number}", "a", Report()).broke:
            break
    assert len(tracker.alarms()[-1].labels) == 200


def test_the_evidence_is_that_of_twelve_bets_and_a_reserve_counted_one_by_one():
    """The wealth is 1 at first; half of it is bet at once, at 1.1 to 6 times the promised odds of a wrong answer."""
    factors = [1.1 * (6 / 1.1) ** (number / 11) for number in range(12)]
    purses, held, wealth = [0.5 / 12] * 12, 0.5, initial_wealth()
    assert evidence(wealth, 0) == pytest.approx(1.0)
    labels = [(True, 0.9), (False, 0.9), (True, 0.75), (True, 1.0), (False, 0.0), (True, 0.0), (False, 1.0)]
    for number, (wrong, promised) in enumerate(labels):
        allowed = min(max(1 - promised, 1e-6), 1 - 1e-6)
        left = 0.5 / (1 + math.log(1 + (number + 1) / 200))
        for place, factor in enumerate(factors):
            rate = 1 / (1 + (1 - allowed) / (allowed * factor))
            purses[place] += (held - left) / 12
            purses[place] *= rate / allowed if wrong else (1 - rate) / (1 - allowed)
        held, wealth = left, bet(wealth, number, wrong, promised)
        assert wealth == pytest.approx(purses)
        assert evidence(wealth, number + 1) == pytest.approx(sum(purses) + held)


def test_one_tenants_labels_break_a_promise_for_all_to_see_and_refute_it_for_nobody():
    tracker = Tracker(recorded=True)

    def report(number: int, tenant: str | None) -> LabelResult:
        remember_in(tracker, str(number), answered())
        return tracker.take(str(number), "a", Report(tenant or ""), tenant)

    results = [report(number, tenant) for number, tenant in enumerate(["evil"] * 80 + [None] * 80)]
    assert sum(result.broke for result in results) == 1 and not any(result.refuted for result in results)
    ((key, record),) = tracker.drain().records.items()
    tracker = Tracker()
    tracker.restore((), {key: read(Record, json.loads(json.dumps(asdict(record))), "a record")}, ())
    results = [report(100 + number, "acme") for number in range(80)]
    assert sum(result.refuted for result in results) == 1, "with another tenant's it holds without any one's"
