"""The API of text-embeddings-inference (TEI) for bins.

serving/http/tei.py describes what all systems share of it. Its routes are at the root, for a service of one stream, and
below /{task} for each stream. A POST to the base address embeds, classifies or reranks, whichever the stream does, as in
TEI; a body of /similarity is understood there too. /tokenize and /decode read no model: nothing waits for a device, and
texts may be longer than the encoder reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any
from uuid import uuid4

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from pliant.serving.bins.answer import check_normalize, embeddings, respond, scores, sigmoid
from pliant.serving.bins.bodies import (
    Answer,
    ClassifyBody,
    DecodeBody,
    EmbedAllBody,
    EmbedBody,
    Endpoint,
    RerankBody,
    RerankDocumentsBody,
    SimilarityBody,
    SimilarityParameters,
    TextRequest,
    TokenizeBody,
    TokensRequest,
    inputs_of,
    is_reranker,
    pairs,
    read_deadline,
    text_of,
    texts_of,
)
from pliant.serving.http import tei
from pliant.serving.http.access.access import client_of
from pliant.serving.http.api_errors import ApiError, json_response
from pliant.serving.http.app import arrival
from pliant.serving.http.bodies import check_count, checked, read_fields

error_response = partial(tei.error_response, kinds={**tei.KINDS, 503: (503, "Unhealthy")})
"""Returns an error in TEI's shape. A lost device is restarted, so its clients should retry: 503."""
CLASSIFICATION, EMBEDDING = "classification", "embedding"
NOT_SPARSE = "Model is not an embedding model with SPLADE pooling"
"""TEI's error message for a model that gives no sparse embeddings."""
AT_ONCE = 32  # texts whose scores are made before other requests have a turn: about a millisecond


async def embed(request: Request, endpoint: Endpoint) -> Response:
    """Answer /embed with an embedding per text."""
    arrived = arrival(request, endpoint)
    fields = await read_fields(request, endpoint.settings)
    task = endpoint.select(request.path_params.get("task"), "task", EMBEDDING)
    return await _embed(request, endpoint, task, fields, arrived)


async def predict(request: Request, endpoint: Endpoint) -> Response:
    """Answer /predict with the scores of classes per text."""
    arrived = arrival(request, endpoint)
    fields = await read_fields(request, endpoint.settings)
    task = endpoint.select(request.path_params.get("task"), "task", CLASSIFICATION)
    return await _predict(request, endpoint, task, fields, arrived)


async def similarity(request: Request, endpoint: Endpoint) -> Response:
    """Answer /similarity with the cosine between the embedding of a sentence and those of others."""
    arrived = arrival(request, endpoint)
    fields = await read_fields(request, endpoint.settings)
    task = endpoint.select(request.path_params.get("task"), "task", EMBEDDING)
    return await _similarity(request, endpoint, task, fields, arrived)


async def answer(request: Request, endpoint: Endpoint) -> Response:
    """Embed, classify, rerank or compare, whichever the stream does and the body asks for."""
    arrived = arrival(request, endpoint)
    fields = await read_fields(request, endpoint.settings)
    task = endpoint.select(request.path_params.get("task"), "task", None)
    encoder = endpoint.describe(task)
    handle = _embed if encoder.head == EMBEDDING else _predict
    if encoder.head == EMBEDDING and isinstance(fields.get("inputs"), dict):
        handle = _similarity
    elif is_reranker(encoder) and "query" in fields:
        handle = rerank_task
    return await handle(request, endpoint, task, fields, arrived)


async def embed_all(request: Request, endpoint: Endpoint) -> Response:
    """Answer /embed_all with the last hidden state of each token of each text, special tokens included."""
    arrived = arrival(request, endpoint)
    fields = await read_fields(request, endpoint.settings)
    task = endpoint.select(request.path_params.get("task"), "task", EMBEDDING)
    body = await checked(request, EmbedAllBody.read, fields)
    answer = await endpoint.run(embedding_request(request, endpoint, task, body, unpooled=True), arrived)
    return await run_in_threadpool(respond, answer.outputs, answer.headers)


async def embed_sparse(request: Request, endpoint: Endpoint) -> Response:
    """Refuse as TEI does for a model without the pooling of SPLADE."""
    await read_fields(request, endpoint.settings)
    endpoint.select(request.path_params.get("task"), "task", None)
    raise ApiError(424, "wrong_head", NOT_SPARSE, "task")


async def tokenize(request: Request, endpoint: Endpoint) -> Response:
    """Answer /tokenize with a list of tokens per text."""
    fields = await read_fields(request, endpoint.settings)
    task = endpoint.select(request.path_params.get("task"), "task", None)
    body = await checked(request, TokenizeBody.read, fields)
    texts = texts_of(body, endpoint.settings.max_texts)
    tokens = await endpoint.tokenize(TokensRequest(task, texts, body.add_special_tokens, body.prompt_name))
    return await run_in_threadpool(respond, tokens, {})


async def decode(request: Request, endpoint: Endpoint) -> Response:
    """Answer /decode with a text per list of token ids."""
    fields = await read_fields(request, endpoint.settings)
    task = endpoint.select(request.path_params.get("task"), "task", None)
    body = await checked(request, DecodeBody.read, fields)
    lists: list[Any] = [body.ids] if body.ids and isinstance(body.ids[0], int) else body.ids
    check_count("ids", lists, endpoint.settings.max_texts)
    return respond(await endpoint.decode(task, lists, body.skip_special_tokens), {})


async def info(request: Request, endpoint: Endpoint) -> Response:
    """Answer /info with a description of the model."""
    task, limits = endpoint.select(request.path_params.get("task"), "task", None), endpoint.settings
    encoder = endpoint.describe(task)
    kind: Mapping[str, Any] = {EMBEDDING: {"pooling": encoder.pooling}}
    if encoder.head == CLASSIFICATION:
        kind = tei.classifier_type(encoder.classes)
    return json_response(tei.info(task, kind, encoder.max_length, limits.max_waiting, limits.max_texts))


async def health(_: Request, endpoint: Endpoint) -> Response:
    return tei.health(endpoint.ready)


def embedding_request(
    request: Request, endpoint: Endpoint, task: str, body: EmbedAllBody, unpooled: bool = False
) -> TextRequest:
    """Return the request that a body of /embed or /embed_all makes. Raises `InputError` and `ApiError`."""
    inputs = inputs_of("inputs", body.inputs, endpoint.settings.max_texts)
    limit = read_deadline(request, body.deadline, endpoint.settings.max_deadline)
    return TextRequest(task, inputs, limit, body.truncate, body.left, client_of(request), body.prompt_name, unpooled)


async def _embed(
    request: Request, endpoint: Endpoint, task: str, fields: Mapping[str, Any], arrived: float
) -> Response:
    body = await checked(request, EmbedBody.read, fields)
    check_normalize(endpoint.describe(task), body.normalize)
    result = await endpoint.run(embedding_request(request, endpoint, task, body), arrived)
    return respond(embeddings(result, body.normalize, body.dimensions), result.headers)


async def _similarity(
    request: Request, endpoint: Endpoint, task: str, fields: Mapping[str, Any], arrived: float
) -> Response:
    body = await checked(request, SimilarityBody.read, fields)
    sentences, options = body.inputs.sentences, body.parameters or SimilarityParameters()
    check_count("inputs.sentences", sentences, endpoint.settings.max_texts)
    limit = read_deadline(request, body.deadline, endpoint.settings.max_deadline)
    texts = [(sentence, None) for sentence in (body.inputs.source_sentence, *sentences)]
    result = await endpoint.run(
        TextRequest(task, texts, limit, options.truncate, options.left, client_of(request), options.prompt_name),
        arrived,
    )
    source_H, *others = embeddings(result)
    return respond(np.array([np.dot(source_H, other_H) for other_H in others], np.float32), result.headers)


async def _predict(
    request: Request, endpoint: Endpoint, task: str, fields: Mapping[str, Any], arrived: float
) -> Response:
    body = await checked(request, ClassifyBody.read, fields)
    inputs = body.texts(endpoint.settings.max_texts)
    limit = read_deadline(request, body.deadline, endpoint.settings.max_deadline)
    result = await endpoint.run(TextRequest(task, inputs, limit, body.truncate, body.left, client_of(request)), arrived)
    lists = []
    for logits_K in result.outputs:
        lists.append(scores(logits_K, result.encoder.classes, body.raw, body.top_k))
        if len(lists) % AT_ONCE == 0:  # others have a turn
            await asyncio.sleep(0)
    return respond(body.shaped(lists, "parameters" in fields), result.headers)


RERANKER = "reranker"


async def rerank(request: Request, endpoint: Endpoint) -> Response:
    """Answer /rerank with an index and a score for each text, best first."""
    arrived = arrival(request, endpoint)
    fields = await read_fields(request, endpoint.settings)
    task = endpoint.select(request.path_params.get("task"), "task", RERANKER)
    return await rerank_task(request, endpoint, task, fields, arrived)


async def rerank_task(
    request: Request, endpoint: Endpoint, task: str, fields: Mapping[str, Any], arrived: float
) -> Response:
    """Answer the fields of /rerank for one stream."""
    body = await checked(request, RerankBody.read, fields)
    texts = pairs(body.query, "texts", body.texts, endpoint.settings.max_texts)
    limit = read_deadline(request, body.deadline, endpoint.settings.max_deadline)
    answer = await endpoint.run(TextRequest(task, texts, limit, body.truncate, body.left, client_of(request)), arrived)
    ranks = [
        {"index": index, **({"text": body.texts[index]} if body.return_text else {}), "score": score}
        for index, score in _order(answer, body.raw_scores)
    ]
    return respond(ranks, answer.headers)


async def rerank_documents(request: Request, endpoint: Endpoint) -> Response:
    """Answer /v1/rerank with the best documents, and the number of tokens that were read."""
    arrived = arrival(request, endpoint)
    body = await RerankDocumentsBody.of(request, endpoint.settings)
    task = endpoint.select(request.path_params.get("task") or body.model, "model", RERANKER)
    texts = pairs(body.query, "documents", body.documents, endpoint.settings.max_texts)
    limit = read_deadline(request, body.deadline, endpoint.settings.max_deadline)
    answer = await endpoint.run(TextRequest(task, texts, limit, client=client_of(request)), arrived)
    results = [
        {
            "index": index,
            "relevance_score": score,
            **({"document": {"text": text_of(body.documents[index])}} if body.return_documents else {}),
        }
        for index, score in _order(answer, raw=False)[: body.top_n]
    ]
    count = sum(answer.lengths)
    usage = {"prompt_tokens": count, "total_tokens": count}
    content = {"id": f"rerank-{uuid4().hex}", "object": "list", "model": task, "results": results, "usage": usage}
    return respond(content, answer.headers)


def _order(answer: Answer, raw: bool) -> list[tuple[int, np.float32]]:
    """Return number and score of each pair, the best first; equal ones stay in order."""
    logits = np.array([output_K[0] for output_K in answer.outputs], np.float32)
    scores = logits if raw else sigmoid(logits)
    return [(index, scores[index]) for index in np.argsort(-logits, kind="stable").tolist()]
