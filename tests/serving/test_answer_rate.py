"""When those that are turned away are told to come again."""

from __future__ import annotations

import math

import pytest

from pliant.serving.answers import AnswerRate
from pliant.serving.http.api_errors import ApiError, error_response


def test_a_queue_is_empty_after_as_many_seconds_as_its_answers_take():
    rate = AnswerRate()
    for index in range(1000):
        rate.count(index * 0.1)
    assert rate.seconds(50, 100.0) == pytest.approx(5.0, rel=0.02)


def test_nothing_is_known_before_the_first_answer_and_long_after_the_last():
    rate = AnswerRate()
    assert rate.seconds(50, 0.0) == 1.0
    rate.count(0.0)
    assert rate.seconds(50, 1000.0) == 1.0


@pytest.mark.parametrize("seconds, header", [(0.0, "1"), (1.0, "1"), (1.2, "2"), (700.0, "60")])
def test_retry_after_is_in_whole_seconds_from_1_to_60(seconds, header):
    assert error_response(ApiError(429, "full", "full", retry_after=seconds)).headers["retry-after"] == header
    assert "retry-after" not in error_response(ApiError(400, "malformed", "malformed", retry_after=seconds)).headers


def test_an_answer_counts_less_the_longer_it_is_ago():
    rate = AnswerRate()
    rate.count(20.0)
    assert rate.seconds(5, 20.0) == pytest.approx(50.0)  # one in ten seconds
    assert rate.seconds(5, 30.0) == pytest.approx(50.0 * math.e)
    rate.count(30.0)
    assert rate.seconds(5, 30.0) == pytest.approx(50.0 / (1 + 1 / math.e))
    assert rate.seconds(0, 30.0) == 1.0
