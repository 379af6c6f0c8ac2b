"""What a chat over HTTP carries, and what is read of its answer."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.packing.chats import Question, form
from pliant.protocol import Request


def test_a_request_carries_its_own_question_with_its_own_seed_and_deadline():
    chat, pool = form("tiny", 0.7), [Question("what?", 3), Question("why?", 4)]
    request = Request(3, 2.0, 2.5, "tiny")
    question = chat.choose(request, pool, np.random.default_rng(0))
    fields = json.loads(chat.body(request, question))
    assert fields["messages"] == [{"role": "user", "content": "why?"}] and fields["seed"] == 4
    assert (fields["model"], fields["temperature"], fields["deadline"]) == ("tiny", 0.7, pytest.approx(0.5))
    assert chat.path == "/v1/chat/completions"


def test_the_setting_of_a_reply_is_the_tokens_of_the_output():
    assert form("tiny", 0.7).read({"usage": {"completion_tokens": 7}}, Question("why?", 4)).setting == 7
