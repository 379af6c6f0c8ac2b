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
    ({"max_tokens": 0}, "max_tokens", 400, "invalid_value"),
    ({"max_tokens": 10_000}, "max_tokens", 400, "context_length_exceeded"),
    ({"max_tokens": 2.5}, "max_tokens", 400, "invalid_value"),
    ({"max_tokens": True}, "max_tokens", 400, "invalid_value"),
    ({"prompt": "tea " * CONTEXT}, "prompt", 400, "context_length_exceeded"),
    ({"prompt": "t" * 100_000}, "prompt", 400, "context_length_exceeded"),
    ({"prompt": ""}, "prompt", 400, "invalid_value"),
    ({"prompt": []}, "prompt", 400, "invalid_value"),
    ({"prompt": 7}, "prompt", 400, "invalid_value"),
    ({"prompt": [5, "tea"]}, "prompt", 400, "invalid_value"),
    ({"prompt": ["tea", 5]}, "prompt[1]", 400, "invalid_value"),
    ({"prompt": [10_000]}, "prompt", 400, "invalid_value"),
    ({"prompt": [-1]}, "prompt", 400, "invalid_value"),
    ({"prompt": [5] * CONTEXT}, "prompt", 400, "context_length_exceeded"),
    ({"prompt": ["tea"] * 300}, "prompt", 400, "too_many_texts"),
    ({"prompt": ["tea"] * 100, "n": 3}, "prompt times n", 400, "too_many_texts"),
    ({"model": "gpt"}, "model", 404, "model_not_found"),
    ({"model": 5}, "model", 400, "invalid_value"),
    ({"n": 0}, "n", 400, "invalid_value"),
    ({"temperature": 2.5}, "temperature", 400, "invalid_value"),
    ({"temperature": "hot"}, "temperature", 400, "invalid_value"),
    ({"top_p": 0}, "top_p", 400, "invalid_value"),
    ({"top_k": -2}, "top_k", 400, "invalid_value"),
    ({"seed": 1.5}, "seed", 400, "invalid_value"),
    ({"stop": ["x"] * 10_000}, "stop", 400, "invalid_value"),
    ({"stop": ["x" * 1000]}, "stop", 400, "invalid_value"),
    ({"stop": ["", "x"]}, "stop", 400, "invalid_value"),
    ({"stop": 5}, "stop", 400, "invalid_value"),
    ({"stream": "yes"}, "stream", 400, "invalid_value"),
    ({"stream_options": {"include_usage": True}}, "stream_options", 400, "invalid_value"),
    ({"stream": True, "stream_options": {"other": 1}}, "stream_options", 400, "invalid_value"),
    ({"logprobs": 21}, "logprobs", 400, "invalid_value"),
    ({"logprobs": True}, "logprobs", 400, "invalid_value"),
    ({"top_logprobs": 2}, "top_logprobs", 400, "unsupported_parameter"),
    ({"logit_bias": {"300": 1}}, "logit_bias", 400, "invalid_value"),
    ({"logit_bias": {"tea": 1}}, "logit_bias", 400, "invalid_value"),
    ({"logit_bias": {"5": 101}}, "logit_bias[5]", 400, "invalid_value"),
    ({"logit_bias": {str(token): 1 for token in range(1025)}}, "logit_bias", 400, "invalid_value"),
    ({"stop_token_ids": [300]}, "stop_token_ids", 400, "invalid_value"),
    ({"stop_token_ids": [-1]}, "stop_token_ids[0]", 400, "invalid_value"),
    ({"stop_token_ids": [5] * 1025}, "stop_token_ids", 400, "invalid_value"),
    ({"min_tokens": 4, "max_tokens": 3}, "min_tokens", 400, "invalid_value"),
    ({"ignore_eos": 1}, "ignore_eos", 400, "invalid_value"),
    ({"best_of": 1, "n": 2}, "best_of", 400, "invalid_value"),
    ({"best_of": 2, "stream": True}, "best_of", 400, "invalid_value"),
    ({"best_of": 200, "n": 2}, "best_of", 400, "invalid_value"),
    ({"best_of": 3, "prompt": ["tea"] * 100}, "prompt times best_of", 400, "too_many_texts"),
    ({"repetition_penalty": 0}, "repetition_penalty", 400, "invalid_value"),
    ({"frequency_penalty": 2.1}, "frequency_penalty", 400, "invalid_value"),
    ({"min_p": -0.1}, "min_p", 400, "invalid_value"),
    ({"use_beam_search": True}, "use_beam_search", 400, "unsupported_parameter"),
    ({"priority": 1001}, "priority", 400, "invalid_value"),
    ({"suffix": "end"}, "suffix", 400, "unsupported_parameter"),
    ({"presence_penalty": -3}, "presence_penalty", 400, "invalid_value"),
    ({"tools": [{"type": "function"}]}, "tools", 400, "unsupported_parameter"),
    ({"deadline": 0}, "deadline", 400, "invalid_value"),
    ({"deadline": 86_400}, "deadline", 400, "invalid_value"),
    ({"utility": -1}, "utility", 400, "invalid_value"),
    ({"offline": 1}, "offline", 400, "invalid_value"),
]


@pytest.mark.parametrize(("fields", "param", "status", "code"), REFUSED_FIELDS)
def test_a_field_outside_its_limit_is_refused_by_name(service, fields, param, status, code):
    response = service.complete(**fields)
    error = error_of(response)
    assert (response.status_code, error["param"], error["code"]) == (status, param, code)
    assert error["type"] == "invalid_request_error" and error["message"]


REFUSED_MESSAGES = [
    (None, "messages"),
    ([], "messages"),
    ("Tell me", "messages"),
    (["Tell me"], "messages[0]"),
    ([{"role": "user"}], "messages[0].content"),
    ([{"role": "robot", "content": "x"}], "messages[0].role"),
    ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "messages[0].content[0]"),
    ([{"role": "assistant", "content": "x", "tool_calls": [{}]}], "messages[0].tool_calls[0]"),
    ([{"role": "system", "content": "x"}], "messages"),
]


@pytest.mark.parametrize(("messages", "param"), REFUSED_MESSAGES)
def test_a_conversation_that_the_model_cannot_read_is_refused_by_name(service, messages, param):
    response = service.post("/chat/completions", {"model": "tales", "messages": messages})
    assert (response.status_code, error_of(response)["param"]) == (400, param)


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
