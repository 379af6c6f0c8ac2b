"""Errors and lists of models have OpenAI's shape, whose clients know them by status, type and code."""

from __future__ import annotations

import json
import pickle

import pytest

from pliant.errors import (
    ArtifactError,
    BackboneError,
    DigestError,
    InputError,
    PliantError,
    RegistryError,
    UnreachableError,
    WorkerError,
)
from pliant.serving.http.api_errors import LONGEST_RETRY, ApiError, api_error_of
from pliant.serving.http.openai import error_response
from pliant.serving.http.tei import PredictBody, classifier_type
from pliant.serving.http.tei import error_response as tei_response


@pytest.mark.parametrize(
    ("status", "code", "expected", "kind", "openais"),
    [
        (422, "invalid", 400, "invalid_request_error", "invalid"),
        (413, "too_many_texts", 400, "invalid_request_error", "too_many_texts"),
        (413, "text_too_long", 400, "invalid_request_error", "text_too_long"),
        (424, "wrong_head", 400, "invalid_request_error", "wrong_head"),
        (413, "body_too_large", 413, "invalid_request_error", "body_too_large"),
        (404, "unknown_task", 404, "invalid_request_error", "model_not_found"),
        (401, "unauthorized", 401, "invalid_request_error", "invalid_api_key"),
        (429, "full", 429, "rate_limit_error", "rate_limit_exceeded"),
        (429, "rate_limited", 429, "rate_limit_error", "rate_limit_exceeded"),
        (500, "internal", 500, "server_error", "internal"),
        (503, "late", 503, "server_error", "late"),
    ],
)
def test_an_error_has_openais_status_type_and_code(status, code, expected, kind, openais):
    response = error_response(ApiError(status, code, "a sentence", "field", retry_after=2.5))
    content = {"message": "a sentence", "type": kind, "param": "field", "code": openais}
    assert (response.status_code, json.loads(response.body)) == (expected, {"error": content})
    assert response.headers.get("retry-after") == ("3" if expected in (429, 503) else None)


@pytest.mark.parametrize(
    ("error", "status", "code", "field"),
    [
        (ApiError(418, "teapot", "no coffee", "drink"), 418, "teapot", "drink"),
        (InputError("gamma", 7, "at most 4"), 422, "invalid", "gamma"),
        (BackboneError("another"), 409, "other_backbone", "name"),
        (ArtifactError("broken"), 503, "artifact_unusable", None),
        (DigestError("file", "a", "b"), 503, "artifact_unusable", None),
        (RegistryError("gone"), 503, "registry_unavailable", None),
        (UnreachableError("gone"), 503, "registry_unavailable", None),
        (WorkerError("dead"), 503, "worker_unavailable", None),
        (PliantError("ours"), 500, "internal", None),
    ],
)
def test_an_exception_has_its_status_and_code_and_keeps_its_sentence(error, status, code, field):
    shown = api_error_of(error)
    assert (shown.status, shown.code, shown.field, str(shown)) == (status, code, field, str(error))


def test_what_nobody_expected_shows_nothing_of_itself():
    shown = api_error_of(ValueError("a secret"))
    assert (shown.status, shown.code) == (500, "internal") and "secret" not in str(shown)


@pytest.mark.parametrize(
    ("status", "seconds", "header"),
    [
        (429, 0.0, "1"),
        (429, 1.0, "1"),
        (503, 1.01, "2"),
        (503, 59.5, "60"),
        (503, 1e9, str(LONGEST_RETRY)),
        (422, 5.0, None),
        (500, 5.0, None),
    ],
)
def test_retry_after_is_in_whole_seconds_and_only_where_coming_back_helps(status, seconds, header):
    headers = ApiError(status, "code", "message", retry_after=seconds, headers={"allow": "GET"}).headers
    assert headers == {"allow": "GET", **({"retry-after": header} if header else {})}


def test_an_error_survives_the_way_between_processes():
    error = ApiError(429, "full", "later", "deadline", 3.0, {"allow": "GET"})
    moved = pickle.loads(pickle.dumps(error))
    assert (moved.status, moved.code, str(moved), moved.field) == (429, "full", "later", "deadline")
    assert moved.headers == error.headers


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
    response = tei_response(ApiError(status, code, "a sentence", "field", 2.5, extra))
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
