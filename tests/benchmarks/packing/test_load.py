"""What the load over HTTP asks and counts."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.load_generator import Reply
from benchmarks.packing.load import HEADINGS, TIMEOUT, Fared, LoadConfig, Question, arrivals, form
from pliant.packing.scheduling.reference import capacity
from pliant.protocol import Request
from pliant.report import Observation
from tests.fixtures.packing.worlds import packing

ONE = packing()


def test_a_request_asks_its_own_question_with_its_own_seed():
    how, pool = form("tiny", 0.7), [Question("what?", 3), Question("why?", 4)]
    chosen = how.choose(Request(3, 0.0, 1.0, "tiny"), pool, np.random.default_rng(0))
    told = json.loads(how.body(Request(3, 0.0, 1.0, "tiny"), chosen))
    assert told["messages"] == [{"role": "user", "content": "why?"}] and told["seed"] == 4
    assert (told["model"], told["temperature"], told.get("deadline")) == ("tiny", 0.7, None)
    assert how.path == "/v1/chat/completions"
    timed = form("tiny", 0.7, deadlines=True).body(Request(3, 2.0, 2.5, "tiny"), chosen)
    assert json.loads(timed)["deadline"] == pytest.approx(0.5)
    assert how.read({"usage": {"completion_tokens": 7}}, chosen).setting == 7


def test_arrivals_are_a_share_of_what_the_profile_bears():
    config = LoadConfig(seconds=200 / capacity(ONE), share=1.5)
    assert len(arrivals(ONE, config)) == pytest.approx(300, rel=0.2)


def _reply(arrival: float, answered: float | None, tokens: int | None = None) -> Reply:
    seen = Observation(Request(0, arrival, 9.0, "tiny"), answered, setting=tokens, dropped=None if answered else "503")
    return Reply(seen, 200 if answered else 503, 0.0, float("nan"))


def test_who_has_no_answer_counts_with_the_time_that_was_waited():
    found = Fared("s3", [_reply(1.0, 2.0, 10), _reply(2.0, 5.0, 40), _reply(3.0, None)], 2, 0)
    assert found.took.tolist() == [1.0, 3.0, TIMEOUT] and (found.answered, found.tokens) == (2, 50)
    assert dict(zip(HEADINGS, found.row(), strict=True))["tokens/s"] == "10"
