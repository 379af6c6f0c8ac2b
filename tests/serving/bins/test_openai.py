"""The bins service through OpenAI's embeddings API and the reranking of Jina and Cohere."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from pliant.serving.bins import bodies
from pliant.serving.http.app import OpenaiErrorAnswer, OpenaiModels, Score, TeiError
from tests.fixtures.bins.published import LONG, MOST, SHORT, TEXT
from tests.fixtures.documented import check_answer

RANKED = [TEXT, "dogs or cats", LONG, "trees\x00", "every large word"]


def test_embeddings_come_in_order_with_the_tokens_that_were_read(both):
    response = both.post("/v1/embeddings", {"input": [SHORT, LONG], "model": "meanings", "user": "me"})
    told = response.json()
    lengths = [int(one) for one in response.headers["x-pliant-length"].split(",")]
    assert (told["object"], told["model"]) == ("list", "meanings")
    assert told["usage"] == {"prompt_tokens": sum(lengths), "total_tokens": sum(lengths)} and lengths[1] == MOST
    assert [(one["object"], one["index"]) for one in told["data"]] == [("embedding", 0), ("embedding", 1)]
    same = both.post("/meanings/embed", {"inputs": [SHORT, LONG]}).json()
    assert [one["embedding"] for one in told["data"]] == same


def test_base64_holds_the_same_32_bit_floats(both):
    """The format that OpenAI's own Python client requests and reads."""
    plain, packed = (
        both.post("/v1/embeddings", {"input": TEXT, "encoding_format": kind}).json()["data"][0]["embedding"]
        for kind in ("float", "base64")
    )
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(packed), "<f4"), np.array(plain, np.float32))


def test_token_ids_are_read_as_they_are(both):
    """With the special tokens that the tokenizer would add, they give the embedding of the text."""
    (tokens,) = both.post("/meanings/tokenize", {"inputs": TEXT}).json()
    ids = [token["id"] for token in tokens]
    expected = both.post("/v1/embeddings", {"input": [TEXT, TEXT]}).json()
    for value in ([ids, ids], [TEXT, ids]):
        assert both.post("/v1/embeddings", {"input": value}).json() == expected
    (single,) = both.post("/v1/embeddings", {"input": ids}).json()["data"]
    np.testing.assert_allclose(single["embedding"], expected["data"][0]["embedding"], atol=1e-6)
    (bare,) = both.post("/v1/embeddings", {"input": [ids[1:-1]]}).json()["data"]
    assert not np.allclose(bare["embedding"], single["embedding"], atol=1e-3)


def test_models_are_the_streams(both):
    told = both.call("GET", "/v1/models").json()
    assert [(one["id"], one["object"]) for one in told["data"]] == [("colours", "model"), ("meanings", "model")]


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/ranks/v1/rerank"])
def test_documents_are_ranked_in_the_shape_of_jina_and_cohere(three, path):
    expected = three.post("/ranks/rerank", {"query": SHORT, "texts": RANKED})
    documents = [{"text": text, "title": "ignored"} if number % 2 else text for number, text in enumerate(RANKED)]
    answer = three.post(path, {"model": "ranks", "query": SHORT, "documents": documents, "top_n": 3})
    content = answer.json()
    check_answer(bodies.Reranking, content)
    best = expected.json()[:3]
    assert [item["index"] for item in content["results"]] == [rank["index"] for rank in best]
    assert [item["relevance_score"] for item in content["results"]] == pytest.approx([rank["score"] for rank in best])
    assert [item["document"]["text"] for item in content["results"]] == [RANKED[rank["index"]] for rank in best]
    tokens = sum(map(int, answer.headers["x-pliant-length"].split(",")))
    assert (content["model"], content["usage"]) == ("ranks", {"prompt_tokens": tokens, "total_tokens": tokens})


@pytest.mark.parametrize(
    ("path", "fields", "status", "param", "code"),
    [
        ("embeddings", {"input": TEXT, "model": "gpt"}, 404, "model", "model_not_found"),
        ("embeddings", {"input": TEXT, "model": "colours"}, 400, "model", "wrong_head"),
        ("embeddings", {"input": []}, 400, "input", "invalid"),
        ("embeddings", {"input": [[1, 2], [90, 5]]}, 400, "input[1]", "invalid"),
        ("embeddings", {"input": ["a"] * 9}, 400, "input", "too_many_texts"),
        ("embeddings", {"input": TEXT, "dimensions": 17}, 400, "dimensions", "invalid"),
        ("rerank", {"query": "a", "documents": []}, 400, "documents", "invalid"),
        ("rerank", {"query": "a", "documents": ["a"] * 9}, 400, "documents", "too_many_texts"),
        ("rerank", {"query": "a", "documents": ["a"], "model": "colours"}, 400, "model", "wrong_head"),
    ],
)
def test_what_does_not_fit_is_refused_in_openais_shape(three, path, fields, status, param, code):
    refused = three.post(f"/v1/{path}", fields)
    error = refused.json()["error"]
    assert (refused.status_code, error["param"], error["code"]) == (status, param, code)
    assert error["type"] == "invalid_request_error"
    assert three.post("/v1/embeddings", {"input": SHORT}).status_code == 200


def test_answers_models_and_status_have_the_documented_fields_and_no_other(three):
    for encoding in ("float", "base64"):
        answer = three.post("/v1/embeddings", {"input": ["a", "dog"], "encoding_format": encoding}).json()
        check_answer(bodies.OpenaiEmbeddings, answer)
    check_answer(OpenaiModels, three.call("GET", "/v1/models").json())
    for score in three.post("/colours/predict", {"inputs": "a dog"}).json():
        check_answer(Score, score)
    check_answer(TeiError, three.post("/colours/predict", {}).json())
    check_answer(OpenaiErrorAnswer, three.post("/v1/embeddings", {}).json())
    check_answer(bodies.Status, three.call("GET", "/status").json())
