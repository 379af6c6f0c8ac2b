"""What a client of TEI reads of a model before it sends texts, and how its requests and errors are read and written."""

from __future__ import annotations

import json

import pytest

from pliant.errors import InputError
from serving.http.api_errors import ApiError
from serving.http.tei import (
    Form,
    classifier_type,
    error_response,
    flag,
    health,
    info,
    is_left,
    not_left,
    read_form,
    sequences,
    shaped,
    too_long,
)
from serving.http.texts import RawText


def test_the_limits_are_named_as_tei_does_and_texts_are_truncated_unless_a_client_refuses():
    assert info("mails", {"embedding": {"pooling": "cls"}}, max_length=512, max_waiting=100, max_texts=32) == {
        "model_id": "mails",
        "model_sha": None,
        "model_dtype": "float32",
        "model_type": {"embedding": {"pooling": "cls"}},
        "max_concurrent_requests": 100,
        "max_input_length": 512,
        "max_batch_tokens": 32 * 512,
        "max_batch_requests": None,
        "max_client_batch_size": 32,
        "auto_truncate": True,
        "tokenization_workers": 1,
        "version": "1.9.0",
        "sha": None,
        "docker_label": None,
    }


def test_a_classifier_names_its_classes_both_ways_and_what_gives_one_value_is_a_reranker():
    labels = {"id2label": {"0": "bad", "1": "good"}, "label2id": {"bad": 0, "good": 1}}
    assert classifier_type(("bad", "good")) == {"classifier": labels}
    assert classifier_type(()) == {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}}
    assert classifier_type(("fit",)) == {"reranker": {"id2label": {"0": "fit"}, "label2id": {"fit": 0}}}


@pytest.mark.parametrize(
    ("status", "code", "expected", "kind", "retry"),
    [
        (400, "malformed", 400, "Validation", None),
        (401, "unauthorized", 401, "Validation", None),
        (404, "unknown_task", 404, "Validation", None),
        (413, "body_too_large", 413, "Validation", None),
        (422, "invalid", 422, "Validation", None),
        (424, "wrong_head", 424, "Backend", None),
        (429, "full", 429, "Overloaded", "3"),
        (500, "internal", 424, "Backend", None),
        (503, "failed", 424, "Backend", None),
        (503, "late", 429, "Overloaded", "3"),
    ],
)
def test_an_error_has_teis_status_and_type_and_says_when_to_come_again_only_after_overload(
    status, code, expected, kind, retry
):
    extra = {"www-authenticate": "Bearer"} if status in (401, 404) else None
    response = error_response(ApiError(status, code, "a sentence", "field", 2.5, extra))
    assert (response.status_code, json.loads(response.body)) == (expected, {"error": "a sentence", "error_type": kind})
    assert response.headers.get("retry-after") == retry
    assert ("www-authenticate" in response.headers) is (status == 401)


def test_a_system_may_say_that_a_lost_device_comes_back():
    response = error_response(ApiError(503, "failed", "lost", retry_after=2.0), {503: (503, "Unhealthy")})
    assert (response.status_code, response.headers["retry-after"]) == (503, "2")
    assert json.loads(response.body)["error_type"] == "Unhealthy"


def test_health_is_an_empty_200_or_a_503_after_which_to_look_again():
    well, ill = health(True), health(False)
    assert (well.status_code, well.body) == (200, b"")
    assert (ill.status_code, ill.headers["retry-after"]) == (503, "1")
    assert json.loads(ill.body) == {"error": "unhealthy", "error_type": "Unhealthy"}


PLAIN = Form(batch=False, nested=False, raw=False, truncate=True, left=False, top_k=None)


@pytest.mark.parametrize(
    ("fields", "form"),
    [
        ({"inputs": "a"}, PLAIN),
        ({}, PLAIN),
        ({"inputs": []}, PLAIN),
        ({"inputs": ["a", "b"]}, PLAIN),
        ({"inputs": ["a", ["b"]]}, PLAIN),
        ({"inputs": [["a"], "b"]}, Form(True, False, False, True, False, None)),
        ({"inputs": "a", "parameters": None}, Form(False, True, False, True, False, None)),
        ({"inputs": "a", "parameters": {"top_k": 1}}, Form(False, True, False, True, False, 1)),
        ({"inputs": "a", "parameters": {"function_to_apply": "none"}}, Form(False, True, True, True, False, None)),
        ({"inputs": "a", "parameters": {"function_to_apply": "softmax"}}, Form(False, True, False, True, False, None)),
        ({"inputs": "a", "raw_scores": True}, Form(False, False, True, True, False, None)),
        (
            {"inputs": "a", "truncate": False, "truncation_direction": "LEFT"},
            Form(False, False, False, False, True, None),
        ),
    ],
)
def test_the_options_of_a_request_are_read_with_teis_defaults(fields, form):
    assert read_form(fields) == form


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"parameters": [1]}, "parameters is [1], but must be an object"),
        (
            {"parameters": {"function_to_apply": "sigmoid"}},
            "function_to_apply is 'sigmoid', but must be softmax or none",
        ),
        ({"parameters": {"top_k": 0}}, "parameters.top_k is 0, but must be a whole number from 1 on"),
        ({"parameters": {"top_k": True}}, "parameters.top_k is True, but must be a whole number from 1 on"),
        ({"parameters": {"top_k": "1"}}, "parameters.top_k is '1', but must be a whole number from 1 on"),
        ({"raw_scores": 0}, "raw_scores is 0, but must be true or false"),
        ({"truncate": "no"}, "truncate is 'no', but must be true or false"),
        ({"truncation_direction": "up"}, "truncation_direction is 'up', but must be Left or Right"),
        ({"truncation_direction": 1}, "truncation_direction is 1, but must be Left or Right"),
    ],
)
def test_an_option_that_does_not_fit_is_named(fields, sentence):
    with pytest.raises(InputError) as raised:
        read_form({"inputs": "a", **fields})
    assert sentence in str(raised.value)


def test_a_flag_is_its_default_only_if_it_is_left_out_or_null():
    assert [flag(fields, "x", default) for default in (True, False) for fields in ({}, {"x": None})] == [
        True,
        True,
        False,
        False,
    ]
    assert [flag({"x": value}, "x", not value) for value in (True, False)] == [True, False]


def test_a_direction_is_read_without_case_and_right_by_default():
    assert [is_left(direction) for direction in (None, "Right", "right", "Left", "left")] == [False] * 3 + [True] * 2


def test_texts_pairs_and_batches_are_told_apart():
    assert sequences("a", 1) == [RawText("inputs", ("inputs[0]",), ("a",))]
    assert sequences(["a"], 1) == [RawText("inputs", ("inputs[0]",), ("a",))]
    assert sequences(["a", "b"], 1) == [RawText("inputs", ("inputs[0]", "inputs[1]"), ("a", "b"))]
    assert sequences([["a"], ["b", "c"]], 2) == [
        RawText("inputs[0]", ("inputs[0][0]",), ("a",)),
        RawText("inputs[1]", ("inputs[1][0]", "inputs[1][1]"), ("b", "c")),
    ]
    with pytest.raises(ApiError, match="inputs is a list of 2, but must be at most 1"):
        sequences([["a"], ["b"]], 1)
    for wrong in (7, None, [], ["a", "b", "c"], [[]], [["a"], "b"], [["a", "b", "c"]]):
        with pytest.raises(InputError, match=r"but must be a text, a pair \[text, text\] or a batch"):
            sequences(wrong, 8)


@pytest.mark.parametrize(
    ("batch", "nested", "expected"),
    [(False, False, ["x"]), (True, False, [["x"], ["y"]]), (False, True, [["x"]]), (True, True, [["x"], ["y"]])],
)
def test_an_answer_is_one_list_deeper_for_a_batch_or_for_a_client_of_the_inference_api(batch, nested, expected):
    assert shaped([["x"], ["y"]], Form(batch, nested, False, True, False, None)) == expected


def test_a_text_that_is_too_long_is_413_and_says_what_to_do():
    for error, field, sentence in (
        (too_long(512), "inputs", "inputs is longer than 512 tokens: shorten it, or set truncate to true"),
        (
            not_left(512),
            "truncation_direction",
            "truncation_direction is Left, but must be Right if a text is longer than 512 tokens",
        ),
    ):
        assert (error.status, error.code, error.field, str(error)) == (413, "too_many_tokens", field, sentence)
