"""The API of text-embeddings-inference (TEI) for bins: /embed, /predict, /info and /health.

serving/http/tei.py describes its requests and answers. The routes are at the root, for a service of one stream, and below
/{task} for each stream. A POST to the base address embeds or classifies, whichever the stream does, as in TEI.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pliant.errors import InputError
from serving.bins.answer import check_normalize, embeddings, respond, scores
from serving.bins.request import Endpoint, TextRequest, read_deadline
from serving.http import tei
from serving.http.access.roles import client_of
from serving.http.api_errors import json_response
from serving.http.json_body import shorten
from serving.http.large_body import checked
from serving.http.routing import arrival, read_fields
from serving.http.texts import Texts, check_count, clean

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


async def answer(request: Request, endpoint: Endpoint) -> Response:
    """Embed or classify, whichever the stream does."""
    arrived = arrival(request, endpoint)
    fields = await read_fields(request, endpoint.settings)
    task = endpoint.select(request.path_params.get("task"), "task", None)
    handle = _embed if endpoint.describe(task).head == EMBEDDING else _predict
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


async def _embed(
    request: Request, endpoint: Endpoint, task: str, fields: Mapping[str, Any], arrived: float
) -> Response:
    if fields.get("dimensions") is not None:
        raise no_dimensions(fields["dimensions"])
    normalize = tei.flag(fields, "normalize", True)
    check_normalize(endpoint.describe(task), normalize)
    body = TextRequest(
        task,
        await checked(request, plain_texts, "inputs", fields.get("inputs"), endpoint.settings.max_texts),
        read_deadline(request, fields, endpoint.settings.max_deadline),
        tei.flag(fields, "truncate", True),
        tei.is_left(fields.get("truncation_direction")),
        client_of(request),
    )
    result = await endpoint.run(body, arrived)
    return respond(embeddings(result, normalize), result.headers)


async def _predict(
    request: Request, endpoint: Endpoint, task: str, fields: Mapping[str, Any], arrived: float
) -> Response:
    form = tei.read_form(fields)
    texts = await checked(request, _sequences, fields.get("inputs"), endpoint.settings.max_texts)
    limit = read_deadline(request, fields, endpoint.settings.max_deadline)
    body = TextRequest(task, texts, limit, form.truncate, form.left, client_of(request))
    result = await endpoint.run(body, arrived)
    lists = []
    for logits_K in result.outputs:
        lists.append(scores(logits_K, result.encoder.classes, form.raw, form.top_k))
        if len(lists) % AT_ONCE == 0:  # others have a turn
            await asyncio.sleep(0)
    return respond(tei.shaped(lists, form), result.headers)


def plain_texts(name: str, value: object, max_texts: int) -> Texts:
    """Return a text or a list of texts, as both APIs accept them for embeddings.

    Raises `InputError`, and as `check_count` and `clean`.
    """
    if isinstance(value, str):
        return ((clean(name, value)[0], None),)
    if not isinstance(value, list):
        raise InputError(name, shorten(value), "a text or a list of texts")
    check_count(name, value, max_texts)
    if any(isinstance(item, int | list) for item in value):
        hint = "(langchain: check_embedding_ctx_length=False)"
        raise InputError(name, "given as numbers of tokens", f"texts: every tokenizer has numbers of its own {hint}")
    return tuple((clean(f"{name}[{index}]", item)[0], None) for index, item in enumerate(value))


def no_dimensions(value: object) -> InputError:
    """Return the error for the field `dimensions`, which is not supported."""
    return InputError("dimensions", shorten(value), "left out: embeddings come in the encoder's own width")


def _sequences(inputs: object, max_texts: int) -> Texts:
    texts = []
    for raw in tei.sequences(inputs, max_texts):
        parts = [clean(name, part)[0] for name, part in zip(raw.part_names, raw.parts, strict=True)]
        texts.append((parts[0], parts[1] if len(parts) > 1 else None))
    return tuple(texts)
