"""The bins service through OpenAI's embeddings API."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from pliant.errors import WorkerError
from pliant.serving.http.api_errors import ApiError
from tests.fixtures.bins.in_process import serving
from tests.fixtures.bins.published import LONG, MOST, SHORT, TEXT, publish_tiny
from tests.fixtures.tokens.http import FolderRegistry


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    registry = FolderRegistry(tmp_path_factory.mktemp("registry"))
    publish_tiny(registry)
    with serving(registry) as service:
        yield service


def test_embeddings_come_in_order_with_the_tokens_that_were_read(service):
    response = service.post("/v1/embeddings", {"input": [SHORT, LONG], "model": "meanings", "user": "me"})
    told = response.json()
    lengths = [int(one) for one in response.headers["x-pliant-length"].split(",")]
    assert (told["object"], told["model"]) == ("list", "meanings")
    assert told["usage"] == {"prompt_tokens": sum(lengths), "total_tokens": sum(lengths)} and lengths[1] == MOST
    assert [(one["object"], one["index"]) for one in told["data"]] == [("embedding", 0), ("embedding", 1)]
    same = service.post("/meanings/embed", {"inputs": [SHORT, LONG]}).json()
    assert [one["embedding"] for one in told["data"]] == same


def test_base64_holds_the_same_32_bit_floats(service):
    """The format that OpenAI's own Python client requests and reads."""
    plain, packed = (
        service.post("/v1/embeddings", {"input": TEXT, "encoding_format": kind}).json()["data"][0]["embedding"]
        for kind in ("float", "base64")
    )
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(packed), "<f4"), np.array(plain, np.float32))


def test_token_ids_are_read_as_they_are(service):
    """With the special tokens that the tokenizer would add, they give the embedding of the text."""
    (tokens,) = service.post("/meanings/tokenize", {"inputs": TEXT}).json()
    ids = [token["id"] for token in tokens]
    expected = service.post("/v1/embeddings", {"input": [TEXT, TEXT]}).json()
    for value in ([ids, ids], [TEXT, ids]):
        assert service.post("/v1/embeddings", {"input": value}).json() == expected
    (single,) = service.post("/v1/embeddings", {"input": ids}).json()["data"]
    np.testing.assert_allclose(single["embedding"], expected["data"][0]["embedding"], atol=1e-6)
    (bare,) = service.post("/v1/embeddings", {"input": [ids[1:-1]]}).json()["data"]
    assert not np.allclose(bare["embedding"], single["embedding"], atol=1e-3)


def test_models_are_the_streams(service):
    told = service.call("GET", "/v1/models").json()
    assert [(one["id"], one["object"]) for one in told["data"]] == [("colours", "model"), ("meanings", "model")]


@pytest.mark.parametrize(
    ("fields", "status", "param", "code"),
    [
        ({"input": TEXT, "model": "gpt"}, 404, "model", "model_not_found"),
        ({"input": TEXT, "model": "colours"}, 400, "model", "wrong_head"),
        ({"model": "meanings"}, 400, "input", "invalid"),
        ({"input": []}, 400, "input", "invalid"),
        ({"input": [[1, 2], [90, 5]]}, 400, "input[1]", "invalid"),
        ({"input": ["a"] * 9}, 400, "input", "too_many_texts"),
        ({"input": "a" * 70_000}, 400, "input", "text_too_long"),
        ({"input": TEXT, "dimensions": 17}, 400, "dimensions", "invalid"),
        ({"input": TEXT, "deadline": 61}, 400, "deadline", "invalid"),
    ],
)
def test_what_does_not_fit_is_refused_in_openais_shape(service, fields, status, param, code):
    response = service.post("/v1/embeddings", fields)
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (status, param, code)
    assert error["type"] == "invalid_request_error"
    assert service.post("/v1/embeddings", {"input": SHORT}).status_code == 200


@pytest.mark.parametrize(
    ("error", "expected", "of_tei"),
    [
        (ApiError(429, "full", "busy"), (429, "rate_limit_error", "rate_limit_exceeded"), (429, "Overloaded")),
        (ApiError(503, "late", "busy"), (503, "server_error", "late"), (429, "Overloaded")),
        (ApiError(503, "failed", "lost"), (503, "server_error", "failed"), (503, "Unhealthy")),
        (WorkerError("gone"), (503, "server_error", "worker_unavailable"), (503, "Unhealthy")),
    ],
)
def test_overload_and_lost_devices_have_each_apis_status_and_say_when_to_try_again(
    service, monkeypatch, error, expected, of_tei
):
    async def refuse(request, arrived):
        raise error

    monkeypatch.setattr(service.endpoint, "run", refuse)
    response = service.post("/v1/embeddings", {"input": TEXT})
    told = response.json()["error"]
    assert (response.status_code, told["type"], told["code"]) == expected and "retry-after" in response.headers
    response = service.post("/meanings/embed", {"inputs": TEXT})
    assert (response.status_code, response.json()["error_type"]) == of_tei and "retry-after" in response.headers
