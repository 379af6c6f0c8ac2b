"""What is asked and read of the cascade's service under load, and what is made of replies, all of it made up."""

from __future__ import annotations

import math

from pliant.benchmarks.cascade.replay import LoadConfig, Loaded, TextExample, compare, form
from pliant.benchmarks.load_generator import Reply
from pliant.protocol import Request
from pliant.report import Observation

QUANTILES = ("small", "middle", "large")
SINGLE, PAIR = TextExample(("a text", None), "x"), TextExample(("a text", "another"), "x")


def told(example: TextExample = SINGLE, **changed):
    answer = {"label": "x", "level": "small", "cut_short": False, "queue_seconds": 0.01, "run_seconds": 0.02}
    return form("default", QUANTILES).read({"answers": [answer | changed]}, example)


def reply(number: int, setting: int, after: float = 0.1, correct: bool = True) -> Reply:
    request = Request(number, number * 0.01, number * 0.01 + 0.25, "topics")
    return Reply(Observation(request, request.arrival + after, correct, setting, None), 200, 0.0, 0.01)


def refused(number: int) -> Reply:
    request = Request(number, number * 0.01, number * 0.01 + 0.25, "topics")
    return Reply(Observation(request, dropped="503"), 503, 0.0, math.nan)


def loaded(*replies: Reply) -> Loaded:
    return Loaded(100.0, 90.0, {"default": replies, "only large": [reply(0, 4)]}, QUANTILES)


def compared(**config) -> Loaded:
    told = LoadConfig(**{"seconds": 2.0, "share": 1.5, "turns": 2, **config})
    return compare("", "topics", QUANTILES, ["default", "only large"], [SINGLE], told)


def test_the_ratio_counts_correct_answers_in_time():
    found = loaded(reply(0, 0), reply(1, 0), reply(2, 0, correct=False), reply(3, 0, after=0.5), refused(4))
    assert found.ratio("default", "only large") == 2.0
