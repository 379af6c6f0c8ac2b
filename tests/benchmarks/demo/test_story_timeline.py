"""The story's timeline: what is averaged, when a release answers, where names stand, and that a picture is written."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from benchmarks.demo import story_timeline
from benchmarks.demo.story_timeline import Answer, Mark, Sample, Timeline

SECONDS = st.lists(st.floats(0, 500), max_size=30).map(sorted)


def answer(at: float, version: int = 1, correct: bool = True, failure: str = "") -> Answer:
    return Answer(at, 0.01, version, correct, 0.5, failure)


def test_accuracy_is_that_of_the_last_answers_and_failures_do_not_count_as_answers():
    answers = [answer(at, correct=at < 6) for at in range(12)]
    answers.insert(3, answer(2.5, correct=False, failure="status 500"))
    points = story_timeline.moving(answers, window=6)
    assert points[0] == (1, 1.0, 0.5)
    assert points[-1] == (11, 0.0, 0.5)
    assert {at: right for at, right, _ in points}[8] == pytest.approx(0.5)


def test_without_an_answer_there_is_nothing_to_average():
    assert story_timeline.moving([answer(1.0, failure="status 503")]) == []


def test_the_seconds_of_a_rollback_end_with_the_first_answer_of_the_former_release_after_it():
    answers = [answer(9.0, 2), answer(10.2, 3), answer(11.5, 2), answer(12.0, 2)]
    timeline = Timeline(answers, [], [], {2: 1, 3: 2})
    assert story_timeline.seconds_until(timeline, 1, 10.0) == pytest.approx(1.5)
    assert story_timeline.seconds_until(timeline, 1, 12.5) is None
    assert story_timeline.seconds_until(timeline, 7, 0.0) is None


def test_a_failed_request_is_no_answer_of_any_release():
    timeline = Timeline([answer(1.0, 0, failure="timeout")], [], [], {1: 1})
    assert story_timeline.seconds_until(timeline, 1, 0.0) is None


def test_a_status_becomes_a_sample_with_the_most_evidence_as_a_share_of_an_alarm():
    def row(evidence: float, state: str = "watching") -> dict[str, object]:
        return {"evidence": evidence, "threshold": 10_000.0, "state": state}

    status = {"release": 3, "watch": {"streams": [row(1.0), row(100.0)]}, "trial": {"stage": "canary", "share": 0.2}}
    assert story_timeline.sample(7.0, status) == Sample(7.0, 3, pytest.approx(0.5), "canary", 0.2)
    status["watch"] = {"streams": [row(2.0, "alarm")]}
    assert story_timeline.sample(7.0, status).evidence == 1.0
    assert story_timeline.sample(1.0, {"release": 1, "watch": None, "trial": None}) == Sample(1.0, 1, 0.0, "", 0.0)


def test_a_trial_rises_from_shadow_over_each_share_to_promoted():
    stages = [("", 0.0), ("shadow", 0.0), ("canary", 0.2), ("canary", 0.5), ("promoted", 1.0)]
    heights = [story_timeline.height(Sample(0.0, 1, 0.0, stage, share)) for stage, share in stages]
    assert heights == sorted(set(heights))


def test_rows_are_in_the_order_of_time_whatever_was_noted_first():
    marks = [Mark(5.0, "b", "later"), Mark(1.25, "a", "first")]
    assert story_timeline.rows(Timeline([], [], marks)) == [("1.2", "first"), ("5.0", "later")]


@given(SECONDS, st.floats(0.01, 20))
def test_names_never_stand_closer_than_the_gap_nor_left_of_their_event(seconds, gap):
    standing = story_timeline.places(seconds, gap)
    assert len(standing) == len(seconds)
    assert all(at >= second for at, second in zip(standing, seconds, strict=True))
    assert all(right - left >= gap * (1 - 1e-9) - 1e-9 for left, right in pairwise(standing))


def test_the_picture_is_written_as_png_also_of_a_story_that_ended_at_once(tmp_path):
    answers = [answer(at / 5, 1 + (at > 60), at % 3 > 0) for at in range(120)] + [answer(25, 0, failure="status 500")]
    samples = [Sample(float(at), 1, at / 30, "canary" if at > 10 else "", 0.2) for at in range(25)]
    marks = [Mark(3.0, "change", "a change"), Mark(4.0, "alarm", "an alarm")]
    whole = story_timeline.draw(Timeline(answers, samples, marks, {1: 1, 2: 2}), tmp_path / "new" / "story.png", "x")
    empty = story_timeline.draw(Timeline([], [], []), tmp_path / "empty.png", "x")
    for path in (whole, empty):
        with Image.open(path) as picture:
            assert picture.format == "PNG" and picture.width > 1000
    assert whole.read_bytes() != empty.read_bytes()
