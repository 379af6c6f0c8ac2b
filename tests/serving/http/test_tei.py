"""What a client of TEI reads of a model before it sends texts, and how its requests and errors are read and written."""

from __future__ import annotations

import json

import pytest

from pliant.errors import InputError
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.tei import PredictBody, classifier_type, error_response, info, not_left, too_long


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


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        *(({"inputs": value}, "inputs") for value in (7, None, "", [], ["a", "b", "c"])),
        ({"inputs": ["a", ["b"]]}, "inputs[1]"),
        *(({"inputs": [value]}, "inputs[0]") for value in ([], ["a", "b", "c"], 7)),
        ({"inputs": [["a"], "b"]}, "inputs[1]"),
        ({"inputs": [["a", 1]]}, "inputs[0][1]"),
        ({"parameters": [1]}, "parameters"),
        ({"parameters": {"function_to_apply": "sigmoid"}}, "parameters.function_to_apply"),
        *(({"parameters": {"top_k": value}}, "parameters.top_k") for value in (0, True, "1")),
        ({"raw_scores": 0}, "raw_scores"),
        ({"truncate": "no"}, "truncate"),
        *(({"truncation_direction": value}, "truncation_direction") for value in ("up", 1)),
    ],
)
def test_what_does_not_fit_is_named(fields, name):
    with pytest.raises(InputError) as raised:
        PredictBody.read({"inputs": "a", **fields})
    assert raised.value.field == name


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
