"""Errors and lists of models have OpenAI's shape, whose clients know them by status, type and code."""

from __future__ import annotations

import json

import pytest

from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.openai import error_response, models


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


def test_models_are_listed_with_when_they_were_loaded():
    entry = {"id": "tales", "object": "model", "created": 5, "owned_by": "pliant"}
    assert json.loads(models({"tales": 5}).body) == {"object": "list", "data": [entry]}
    assert json.loads(models({}).body) == {"object": "list", "data": []}
