"""The demo's sizes are settings of the flow, and its picture is drawn even where nothing was answered."""

from __future__ import annotations

from pliant.benchmarks.cascade.demo import words
from pliant.benchmarks.cascade.replay import Loaded
from pliant.benchmarks.load_generator import Reply
from pliant.protocol import Request
from pliant.report import Observation


def answers(*given: tuple[int, bool]) -> Loaded:
    """A load of which each request was answered with a setting, rightly or not; odd settings were cut short."""
    request = Request(0, 0.0, 0.25, "topics")
    replies = [Reply(Observation(request, 0.1, right, setting, None), 200, 0.0, 0.0) for setting, right in given]
    return Loaded(1.0, 1.4, {"default": replies, "only large": replies[:1]}, ("small", "large"))


def test_a_promise_that_was_not_kept_is_said_to_be_and_whether_chance_explains_it():
    few, many = [(0, True), (0, False)], [(0, True), (0, False)] * 500
    assert words(answers(*few), 0.7, 0.95).endswith(
        "The others are right in 0.500: less, but no more than chance explains with 2."
    )
    assert words(answers(*many), 0.7, 0.95).endswith("less, and more than chance explains with 1000.")
    assert words(answers((1, True)), 0.7, 0.95).endswith("None was given as planned.")
