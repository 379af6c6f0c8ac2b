"""Unmodified clients of text-embeddings-inference, OpenAI and Cohere against a running bins service.

The service has one stream of each kind: an embedding, a classifier and a reranker. What a client gets is held against plain
HTTP.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from steps import Step, fetch, run

QUERY = "what does a small model read"
TEXTS = ["a small model reads every word", "dogs and cats", "trees"]


@dataclass(frozen=True)
class Streams:
    """The address of a service and its streams, one of each kind."""

    url: str
    embedding: str
    classifier: str
    reranker: str


def streams_of(url: str) -> Streams:
    """Return the streams of a service, by what /info says of each."""
    kinds = {}
    for model in fetch(f"{url}/v1/models")["data"]:
        (kind,) = fetch(f"{url}/{model['id']}/info")["model_type"]
        kinds[kind] = model["id"]
    return Streams(url, kinds["embedding"], kinds["classifier"], kinds["reranker"])


def embeddings(streams: Streams, texts: Sequence[str], **fields: Any) -> list[list[float]]:
    return list(fetch(f"{streams.url}/{streams.embedding}/embed", {"inputs": list(texts), **fields}))


def same(numbers: Any, expected: Any) -> None:
    """Raise `AssertionError` unless nested lists of numbers are the same, but for the last digits of 32-bit floats."""
    if isinstance(expected, list):
        assert len(numbers) == len(expected), f"{len(numbers)} instead of {len(expected)}"
        for number, other in zip(numbers, expected, strict=True):
            same(number, other)
    else:
        assert math.isclose(float(numbers), expected, abs_tol=1e-4), f"{numbers} instead of {expected}"


def use_huggingface_hub(streams: Streams) -> None:
    from huggingface_hub import InferenceClient

    expected = embeddings(streams, TEXTS)
    client = InferenceClient(base_url=f"{streams.url}/{streams.embedding}")
    same(client.feature_extraction(TEXTS).tolist(), expected)
    same(
        client.feature_extraction(TEXTS[0], normalize=True, truncate=True, truncation_direction="right")[0], expected[0]
    )
    similar = client.sentence_similarity(TEXTS[0], other_sentences=TEXTS)
    same(similar, [sum(a * b for a, b in zip(expected[0], other, strict=True)) for other in expected])
    scores = fetch(f"{streams.url}/{streams.classifier}/predict", {"inputs": TEXTS[0]})
    client = InferenceClient(base_url=f"{streams.url}/{streams.classifier}")
    same([item.score for item in client.text_classification(TEXTS[0])], [item["score"] for item in scores])
    client = InferenceClient(f"{streams.url}/{streams.classifier}", provider="hf-inference")
    assert client.health_check() and client.get_endpoint_info()["model_id"] == streams.classifier


def use_openai(streams: Streams) -> None:
    from openai import BadRequestError, NotFoundError, OpenAI

    client = OpenAI(base_url=f"{streams.url}/v1", api_key="none", max_retries=0)
    expected = embeddings(streams, TEXTS)
    answer = client.embeddings.create(model=streams.embedding, input=TEXTS)
    same([item.embedding for item in answer.data], expected)
    tokens = fetch(f"{streams.url}/{streams.embedding}/tokenize", {"inputs": TEXTS})
    ids = [[token["id"] for token in text] for text in tokens]
    same([item.embedding for item in client.embeddings.create(model=streams.embedding, input=ids).data], expected)
    assert answer.usage.total_tokens == sum(map(len, ids))
    cut = client.embeddings.create(model=streams.embedding, input=TEXTS, dimensions=2, encoding_format="float")
    same([item.embedding for item in cut.data], embeddings(streams, TEXTS, dimensions=2))
    raw = client.embeddings.with_raw_response.create(
        model=streams.embedding, input=TEXTS, extra_headers={"x-request-id": "mine"}
    )
    assert raw.headers["x-request-id"] == "mine"
    assert client.models.list().data
    for kind, fields in ((NotFoundError, {"model": "none", "input": "a"}), (BadRequestError, {"input": []})):
        try:
            client.embeddings.create(**{"model": streams.embedding, **fields})
        except kind as error:
            assert error.type == "invalid_request_error", error.type
        else:
            raise AssertionError(f"{fields} is answered")


def use_langchain_openai(streams: Streams) -> str:
    index = find_spec("llama_index.core")
    assert index is not None and index.origin is not None
    os.environ["TIKTOKEN_CACHE_DIR"] = str(Path(index.origin).parent / "_static" / "tiktoken_cache")
    from langchain_openai import OpenAIEmbeddings
    from openai import BadRequestError

    settings: dict[str, Any] = {"model": streams.embedding, "base_url": f"{streams.url}/v1", "api_key": "none"}
    plain = OpenAIEmbeddings(**settings, check_embedding_ctx_length=False)
    same(plain.embed_documents(TEXTS), embeddings(streams, TEXTS))
    same(plain.embed_query(QUERY), embeddings(streams, [QUERY])[0])
    cut = OpenAIEmbeddings(**settings, check_embedding_ctx_length=False, dimensions=2)
    same(cut.embed_query(QUERY), embeddings(streams, [QUERY], dimensions=2)[0])
    try:  # by default it sends the token ids of OpenAI's own tokenizer
        count = len(OpenAIEmbeddings(**settings).embed_documents(TEXTS))
        assert count == len(TEXTS), count
        return "ids are answered, as the vocabulary is large enough: the embeddings mean nothing"
    except BadRequestError as error:
        assert "no token ids of this encoder's own tokenizer" in str(error), error
        return "ids are refused with 400, as the vocabulary is smaller"


def use_langchain_huggingface(streams: Streams) -> None:
    """Its `model` takes no address, so the client inside is given one."""
    from huggingface_hub import InferenceClient
    from langchain_huggingface.embeddings.huggingface_endpoint import HuggingFaceEndpointEmbeddings

    client = HuggingFaceEndpointEmbeddings(model=streams.embedding, huggingfacehub_api_token="none")
    client.client = InferenceClient(base_url=f"{streams.url}/{streams.embedding}")
    same(client.embed_documents(TEXTS), embeddings(streams, TEXTS))
    same(client.embed_query(QUERY), embeddings(streams, [QUERY])[0])


def use_llama_index_embeddings(streams: Streams) -> None:
    from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference

    client = TextEmbeddingsInference(model_name="none", base_url=f"{streams.url}/{streams.embedding}")
    same(client.get_text_embedding_batch(TEXTS), embeddings(streams, TEXTS))
    same(client.get_query_embedding(QUERY), embeddings(streams, [QUERY])[0])


def use_llama_index_rerank(streams: Streams) -> None:
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
    from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

    ranks = fetch(f"{streams.url}/{streams.reranker}/rerank", {"query": QUERY, "texts": TEXTS})
    client = TextEmbeddingInference(base_url=f"{streams.url}/{streams.reranker}", top_n=2)
    nodes = [NodeWithScore(node=TextNode(text=text), score=0.0) for text in TEXTS]
    best = client.postprocess_nodes(nodes, QueryBundle(QUERY))
    assert [node.text for node in best] == [TEXTS[rank["index"]] for rank in ranks[:2]], best
    same([node.score for node in best], [rank["score"] for rank in ranks[:2]])


def use_cohere(streams: Streams) -> None:
    import cohere

    ranks = fetch(f"{streams.url}/{streams.reranker}/rerank", {"query": QUERY, "texts": TEXTS})
    for kind in (cohere.Client, cohere.ClientV2):
        client = kind(api_key="none", base_url=streams.url)
        answer = client.rerank(model=streams.reranker, query=QUERY, documents=TEXTS, top_n=2)
        assert [item.index for item in answer.results] == [rank["index"] for rank in ranks[:2]]
        same([item.relevance_score for item in answer.results], [rank["score"] for rank in ranks[:2]])


CLIENTS: Mapping[str, tuple[str, Callable[[Streams], object]]] = {
    "huggingface_hub": (
        "feature_extraction, sentence_similarity, text_classification, health_check, get_endpoint_info",
        use_huggingface_hub,
    ),
    "openai": (
        "embeddings of texts and of token ids, dimensions, base64 and float, x-request-id, models, errors",
        use_openai,
    ),
    "langchain-openai": (
        "embed_documents, embed_query, dimensions; ids of cl100k_base, its default",
        use_langchain_openai,
    ),
    "langchain-huggingface": (
        "embed_documents, embed_query; `model` refuses addresses, so its InferenceClient was set",
        use_langchain_huggingface,
    ),
    "llama-index-embeddings-text-embeddings-inference": (
        "get_text_embedding_batch, get_query_embedding",
        use_llama_index_embeddings,
    ),
    "llama-index-postprocessor-tei-rerank": ("postprocess_nodes, which calls /rerank", use_llama_index_rerank),
    "cohere": ("rerank by Client (/v1/rerank) and ClientV2 (/v2/rerank)", use_cohere),
}
"""The name of a client -> what is done with it, and the function that does it."""


def steps_of(given: argparse.Namespace) -> dict[str, Step]:
    did, use = CLIENTS[given.client]
    return {did: partial(use, streams_of(given.url))}


if __name__ == "__main__":
    run(steps_of)
