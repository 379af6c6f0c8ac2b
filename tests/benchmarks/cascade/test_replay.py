"""What is made of the replies of the cascade's service under load, all of them made up."""

from __future__ import annotations

import math

from pliant.benchmarks.cascade.replay import Loaded
from pliant.benchmarks.load_generator import Reply
from pliant.protocol import Request
from pliant.report import Observation


def reply(number: int, setting: int, after: float = 0.1, correct: bool = True) -> Reply:
    request = Request(number, number * 0.01, number * 0.01 + 0.25, "topics")
    return Reply(Observation(request, request.arrival + after, correct, setting, None), 200, 0.0, 0.01)


def test_the_ratio_counts_correct_answers_in_time():
    refused = Reply(Observation(Request(4, 0.04, 0.29, "topics"), dropped="503"), 503, 0.0, math.nan)
    ours = [reply(0, 0), reply(1, 0), reply(2, 0, correct=False), reply(3, 0, after=0.5), refused]
    found = Loaded(100.0, 90.0, {"default": ours, "only large": [reply(0, 4)]}, ("small", "middle", "large"))
    assert found.ratio("default", "only large") == 2.0
