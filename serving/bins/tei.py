"""The API of text-embeddings-inference (TEI) for bins: /embed, /predict, /similarity, /info and /health.

serving/http/tei.py describes its requests and answers; rerank.py, unpooled.py and tokenizing.py have its other routes. They
are at the root, for a service of one stream, and below /{task} for each stream. A POST to the base address embeds,
classifies or reranks, whichever the stream does, as in TEI; a body of /similarity is understood there too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from pliant.errors import InputError
from serving.bins.answer import check_normalize, embeddings, respond, scores
from serving.bins.inputs import embedding_inputs, positive, prompt_name, texts
from serving.bins.request import Endpoint, Input, TextRequest, is_reranker, read_deadline
from serving.bins.rerank import rerank_task
from serving.http import tei
from serving.http.access.roles import client_of
from serving.http.api_errors import json_response
from serving.http.json_body import shorten
from serving.http.large_body import checked
from serving.http.routing import arrival, read_fields
from serving.http.texts import Texts, clean

error_response = partial(tei.error_response, kinds={**tei.KINDS, 503: (503, "Unhealthy")})
"""Returns an error in TEI's shape. A lost device is restarted, so its clients should retry: 503."""
CLASSIFICATION, EMBEDDING = "classification", "embedding"
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


async def embedding_request(
    request: Request, endpoint: Endpoint, task: str, fields: Mapping[str, Any], unpooled: bool = False
) -> TextRequest:
    """Return the request that the fields of /embed and of the routes beside it make. Raises `InputError` and `ApiError`."""
    inputs = await checked(request, embedding_inputs, "inputs", fields.get("inputs"), endpoint.settings.max_texts)
    limit = read_deadline(request, fields, endpoint.settings.max_deadline)
    return _request(request, task, inputs, limit, fields, unpooled)


def _request(
    request: Request,
    task: str,
    inputs: Sequence[Input],
    limit: float | None,
    options: Mapping[str, Any],
    unpooled: bool = False,
) -> TextRequest:
    return TextRequest(
        task,
        inputs,
        limit,
        tei.flag(options, "truncate", True),
        tei.is_left(options.get("truncation_direction")),
        client_of(request),
        prompt_name(options),
        unpooled,
    )


async def _embed(
    request: Request, endpoint: Endpoint, task: str, fields: Mapping[str, Any], arrived: float
) -> Response:
    dimensions, normalize = positive(fields, "dimensions"), tei.flag(fields, "normalize", True)
    check_normalize(endpoint.describe(task), normalize)
    result = await endpoint.run(await embedding_request(request, endpoint, task, fields), arrived)
    return respond(embeddings(result, normalize, dimensions), result.headers)


async def _similarity(
    request: Request, endpoint: Endpoint, task: str, fields: Mapping[str, Any], arrived: float
) -> Response:
    parameters = fields.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise InputError("parameters", shorten(parameters), "an object")
    sentences = await checked(request, _sentences, fields.get("inputs"), endpoint.settings.max_texts)
    limit = read_deadline(request, fields, endpoint.settings.max_deadline)
    body = _request(request, task, [(sentence, None) for sentence in sentences], limit, parameters)
    result = await endpoint.run(body, arrived)
    source_H, *others = embeddings(result)
    return respond(np.array([np.dot(source_H, other_H) for other_H in others], np.float32), result.headers)


async def _predict(
    request: Request, endpoint: Endpoint, task: str, fields: Mapping[str, Any], arrived: float
) -> Response:
    form = tei.read_form(fields)
    inputs = await checked(request, _sequences, fields.get("inputs"), endpoint.settings.max_texts)
    limit = read_deadline(request, fields, endpoint.settings.max_deadline)
    body = TextRequest(task, inputs, limit, form.truncate, form.left, client_of(request))
    result = await endpoint.run(body, arrived)
    lists = []
    for logits_K in result.outputs:
        lists.append(scores(logits_K, result.encoder.classes, form.raw, form.top_k))
        if len(lists) % AT_ONCE == 0:  # others have a turn
            await asyncio.sleep(0)
    return respond(tei.shaped(lists, form), result.headers)


def _sentences(inputs: object, max_texts: int) -> tuple[str, ...]:
    """Return the source sentence, and behind it those that it is compared with."""
    if not isinstance(inputs, dict):
        raise InputError("inputs", shorten(inputs), "an object with source_sentence and sentences")
    source, _ = clean("inputs.source_sentence", inputs.get("source_sentence"))
    return source, *texts("inputs.sentences", inputs.get("sentences"), max_texts)


def _sequences(inputs: object, max_texts: int) -> Texts:
    sequences = []
    for raw in tei.sequences(inputs, max_texts):
        parts = [clean(name, part)[0] for name, part in zip(raw.part_names, raw.parts, strict=True)]
        sequences.append((parts[0], parts[1] if len(parts) > 1 else None))
    return tuple(sequences)
