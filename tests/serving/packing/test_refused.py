"""Invalid requests to the packing service: each error names the field, in OpenAI's shape."""

from __future__ import annotations

import pytest

from tests.fixtures.packing.in_process import CONTEXT, error_of, publish, serving
from tests.fixtures.tokens.http import FolderRegistry


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    registry = FolderRegistry(tmp_path_factory.mktemp("registry"))
    publish(registry)
    with serving(registry) as service:
        yield service


REFUSED_FIELDS = [
    ({"max_tokens": 10_000}, "max_tokens", 400, "context_length_exceeded"),
    ({"prompt": "tea " * CONTEXT}, "prompt", 400, "context_length_exceeded"),
    ({"prompt": "t" * 100_000}, "prompt", 400, "context_length_exceeded"),
    ({"prompt": [5] * CONTEXT}, "prompt", 400, "context_length_exceeded"),
    ({"prompt": ""}, "prompt", 400, "invalid_value"),
    ({"prompt": [10_000]}, "prompt", 400, "invalid_value"),
    ({"prompt": [-1]}, "prompt", 400, "invalid_value"),
    ({"prompt": ["tea"] * 300}, "prompt", 400, "too_many_texts"),
    ({"model": "gpt"}, "model", 404, "model_not_found"),
    ({"n": 0}, "n", 400, "invalid_value"),
    ({"logit_bias": {"300": 1}}, "logit_bias", 400, "invalid_value"),
    ({"stop_token_ids": [300]}, "stop_token_ids", 400, "invalid_value"),
    ({"suffix": "end"}, "suffix", 400, "unsupported_parameter"),
]


@pytest.mark.parametrize(("fields", "param", "status", "code"), REFUSED_FIELDS)
def test_a_field_outside_its_limit_is_refused_by_name(service, fields, param, status, code):
    response = service.complete(**fields)
    error = error_of(response)
    assert (response.status_code, error["param"], error["code"]) == (status, param, code)
    assert error["type"] == "invalid_request_error" and error["message"]


def test_a_conversation_that_the_models_template_refuses_is_refused_by_name(service):
    messages = [{"role": "system", "content": "x"}]
    response = service.post("/chat/completions", {"model": "tales", "messages": messages})
    assert (response.status_code, error_of(response)["param"]) == (400, "messages")


BODIES = [
    (b"{", 400, "malformed"),
    (b"[]", 400, "malformed"),
    (b"\xff\xfe", 400, "malformed"),
    (b'{"prompt": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", 400, "malformed"),
    (b'{"prompt": "a", "prompt": "b"}', 400, "invalid_value"),
    (b'{"prompt": "\\ud800"}', 400, "invalid_value"),
    (b'{"prompt": "' + b"a" * 300_000 + b'"}', 413, "body_too_large"),
]


@pytest.mark.parametrize(("body", "status", "code"), BODIES)
def test_a_body_that_is_no_request_is_an_error_in_openais_shape(service, body, status, code):
    response = service.post("/completions", body)
    assert (response.status_code, error_of(response)["code"]) == (status, code)


def test_other_addresses_methods_and_types_are_refused_in_the_same_shape(service):
    assert service.get("/nothing").status_code == 404
    assert error_of(service.get("/completions"))["code"] == "http"
    assert error_of(service.get("/models/gpt"))["code"] == "model_not_found"
    assert error_of(service.post("/completions", b"a=b", content_type="text/plain"))["code"] == "unsupported_media_type"
