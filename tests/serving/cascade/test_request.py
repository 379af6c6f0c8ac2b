"""Which requests the cascade accepts, and the message of each error."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.cascade.fakes import TASKS, Service


def test_one_text_many_texts_and_pairs_in_three_shapes_reach_the_endpoint_as_one_question():
    service = Service()
    pair = (("It rains.", "Rain falls."),)
    for fields, texts in (
        ({"task": "reviews", "text": "Good."}, (("Good.", None),)),
        ({"task": "reviews", "text": {"text": "Good."}}, (("Good.", None),)),
        ({"task": "reviews", "texts": ["Good.", {"text": "Bad."}]}, (("Good.", None), ("Bad.", None))),
        ({"task": "paraphrase", "text": ["It rains.", "Rain falls."]}, pair),
        ({"task": "paraphrase", "text": "It rains.", "text_pair": "Rain falls."}, pair),
        ({"task": "paraphrase", "texts": [{"text": "It rains.", "text_pair": "Rain falls."}]}, pair),
    ):
        response = service.ask(**fields)
        assert response.status_code == 200, response.text
        assert service.endpoint.requests[-1].texts == texts


def test_targets_deadline_and_utility_are_passed_on_and_may_all_be_left_out():
    service = Service()
    service.ask(task="reviews", text="Good.", accuracy=0.9, latency=0.02, deadline=0.5, utility=2)
    asked = service.endpoint.requests[-1]
    assert (asked.accuracy, asked.latency, asked.deadline, asked.utility) == (0.9, 0.02, 0.5, 2.0)
    service.ask(task="reviews", text="Good.")
    asked = service.endpoint.requests[-1]
    assert (asked.accuracy, asked.latency, asked.deadline, asked.utility) == (None, None, 60.0, 1.0)


def test_a_task_need_not_be_named_where_just_one_is_served():
    assert Service("reviews").ask(text="Good.").json()["task"] == "reviews"
    response = Service().ask(text="Good.")
    assert response.status_code == 422
    assert "task is missing" in response.text


GOOD = {"task": "reviews", "text": "Good."}
MEGABYTE = "word " * 200_000
BAD = [
    ({"text": ""}, 422, "text", "text is ''"),
    ({"text": " \n\t\u00a0"}, 422, "text", "at least one visible character"),
    ({"text": "\x00\u200b\u2028"}, 422, "text", "at least one visible character"),
    ({"text": MEGABYTE}, 413, "text", "text is 1000000 bytes"),
    ({"text": "\ud83d"}, 422, "text", r"text with the lone surrogate '\ud83d' at character 0"),
    ({"text": 7}, 422, "text", "text is 7"),
    ({"text": None}, 422, "text", "text is missing"),
    ({"text": ["Good."]}, 422, "text", "text is a list of 1"),
    ({"text": ["a", "b"]}, 422, "text", "text is a pair of texts"),
    ({"text_pair": "b"}, 422, "text", "text is a pair of texts"),
    ({"text": {"text": "a", "words": 1}}, 422, "'words'", "'words' is unknown"),
    ({"text": {}}, 422, "text.text", "text.text is missing"),
    ({"task": "paraphrase"}, 422, "text", "text is one text"),
    ({"task": "paraphrase", "text": ["a", ""]}, 422, "text[1]", "text[1] is ''"),
    ({"texts": ["a"]}, 422, "texts", "texts is given together with text"),
    ({"text": None, "task": "none"}, 404, "task", "task is 'none'"),
    ({"task": 3}, 422, "task", "task is 3"),
    ({"task": "\ud800"}, 404, "task", r"task is '\ud800'"),
    ({"accuracy": 95}, 422, "accuracy", "accuracy is 95"),
    ({"accuracy": 1.001}, 422, "accuracy", "accuracy is 1.001"),
    ({"accuracy": -0.001}, 422, "accuracy", "accuracy is -0.001"),
    ({"candidate": 3}, 422, "candidate", "candidate is 3"),
    (
        {"candidate": "small", "accuracy": 0.5},
        *(422, "candidate", "candidate is given together with accuracy or latency"),
    ),
    ({"candidate": "small", "latency": 0.5}, 422, "candidate", "candidate is given together with accuracy or latency"),
    ({"accuracy": math.nan}, 422, "accuracy", "accuracy is nan"),
    ({"accuracy": True}, 422, "accuracy", "accuracy is True"),
    ({"latency": 0}, 422, "latency", "latency is 0"),
    ({"latency": math.inf}, 422, "latency", "latency is inf"),
    ({"latency": -1}, 422, "latency", "latency is -1"),
    ({"deadline": 0}, 422, "deadline", "deadline is 0"),
    ({"deadline": 61}, 422, "deadline", "deadline is 61"),
    ({"deadline": None}, 422, "deadline", "deadline is None"),
    ({"utility": -1}, 422, "utility", "utility is -1"),
    ({"utility": 10**400}, 422, "utility", "utility is 1000"),
    ({"colour": 1}, 422, "'colour'", "'colour' is unknown"),
]


@pytest.mark.parametrize(("changes", "status", "name", "sentence"), BAD)
def test_a_bad_field_is_named_with_its_value_and_limit(changes, status, name, sentence):
    service = Service()
    response = service.ask(**{**GOOD, **changes})
    error = response.json()["error"]
    assert (response.status_code, error["field"]) == (status, name)
    assert sentence in error["message"]
    assert not service.endpoint.requests
    assert service.ask(**GOOD).status_code == 200


def test_control_characters_become_spaces_one_for_one_and_the_answer_says_how_many():
    service = Service("reviews")
    response = service.ask(texts=["A\x00good\x1b film\x85", "Line\nby\tline\r\n"])
    assert service.endpoint.requests[-1].texts == (("A good  film ", None), ("Line\nby\tline\r\n", None))
    assert [answer["cleaned"] for answer in response.json()["answers"]] == [3, 0]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
NAMES = ["task", "text", "text_pair", "texts", "accuracy", "latency", "deadline", "utility", "inputs", "parameters"]
NAMES += ["truncate", "truncation_direction", "raw_scores", "id", "label"]
BODIES = JSON | st.dictionaries(st.sampled_from(NAMES), st.sampled_from([*TASKS, 0.5]) | JSON, max_size=6)


@given(path=st.sampled_from(["/predict", "/outcomes", "/tei/predict", "/tei/reviews/predict"]), body=BODIES)
def test_whatever_json_comes_the_answer_is_good_or_the_askers_fault_in_a_sentence(path, body):
    response = Service().call("POST", path, json.dumps(body).encode())
    assert response.status_code < 500
    if response.status_code >= 300 and path != "/outcomes":
        error = response.json()["error"]
        assert (error if isinstance(error, str) else error["message"]).count(" ") > 2


@given(body=st.binary(max_size=60))
def test_whatever_bytes_come_they_are_refused_as_the_askers_fault(body):
    assert 400 <= Service().call("POST", "/predict", body).status_code < 500
