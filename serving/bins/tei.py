"""The bins in the shape of text-embeddings-inference: /embed, /predict, /info and /health, for its clients.

What TEI's shapes are says serving/http/tei.py. At the root, for the only stream, and below /{task} for each of them; a base
address without a path (POST) does what the stream's head does, as TEI's does.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pliant.errors import InputError
from serving.bins.answer import check_normalize, embeddings, respond, scores
from serving.bins.question import Answer, Endpoint, Question, read_deadline
from serving.http import tei
from serving.http.api_errors import json_response
from serving.http.json_body import shorten
from serving.http.questions import read_fields
from serving.http.texts import Texts, check_count, clean

error_response = partial(tei.error_response, kinds={**tei.KINDS, 503: (503, "Unhealthy")})
"""A lost device comes back: its clients shall try again."""
CLASSIFICATION, EMBEDDING = "classification", "embedding"


async def embed(request: Request, endpoint: Endpoint) -> Response:
    arrived = endpoint.now
    fields = await read_fields(request, endpoint.settings)
    task = endpoint.which(request.path_params.get("task"), "task", EMBEDDING)
    return await _embed(request, endpoint, task, fields, arrived)


async def predict(request: Request, endpoint: Endpoint) -> Response:
    arrived = endpoint.now
    fields = await read_fields(request, endpoint.settings)
    task = endpoint.which(request.path_params.get("task"), "task", CLASSIFICATION)
    return await _predict(request, endpoint, task, fields, arrived)


async def answer(request: Request, endpoint: Endpoint) -> Response:
    """Whatever the stream's head does."""
    arrived = endpoint.now
    fields = await read_fields(request, endpoint.settings)
    task = endpoint.which(request.path_params.get("task"), "task", None)
    handle = _embed if endpoint.describe(task).head == EMBEDDING else _predict
    return await handle(request, endpoint, task, fields, arrived)


async def info(request: Request, endpoint: Endpoint) -> Response:
    task, limits = endpoint.which(request.path_params.get("task"), "task", None), endpoint.settings
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
    question = Question(
        task,
        plain_texts("inputs", fields.get("inputs"), endpoint.settings.max_texts),
        read_deadline(request, fields, endpoint.settings.max_deadline),
        tei.flag(fields, "truncate", True),
        tei.is_left(fields.get("truncation_direction")),
    )
    found = await endpoint.run(question, arrived)
    return respond(embeddings(found, normalize), found.headers)


async def _predict(
    request: Request, endpoint: Endpoint, task: str, fields: Mapping[str, Any], arrived: float
) -> Response:
    form = tei.read_form(fields)
    texts = _sequences(fields.get("inputs"), endpoint.settings.max_texts)
    limit = read_deadline(request, fields, endpoint.settings.max_deadline)
    found = await endpoint.run(Question(task, texts, limit, form.truncate, form.left), arrived)
    return respond(tei.shaped(_scores(found, form), form), found.headers)


def plain_texts(name: str, value: object, most: int) -> Texts:
    """A text or a list of texts, as both APIs take them for embeddings. Raises as `check_count` and `clean`."""
    if isinstance(value, str):
        return ((clean(name, value)[0], None),)
    if not isinstance(value, list):
        raise InputError(name, shorten(value), "a text or a list of texts")
    check_count(name, value, most)
    if any(isinstance(one, int | list) for one in value):
        hint = "(langchain: check_embedding_ctx_length=False)"
        raise InputError(name, "given as numbers of tokens", f"texts: every tokenizer has numbers of its own {hint}")
    return tuple((clean(f"{name}[{index}]", one)[0], None) for index, one in enumerate(value))


def no_dimensions(value: object) -> InputError:
    return InputError("dimensions", shorten(value), "left out: embeddings come in the encoder's own width")


def _sequences(inputs: object, most: int) -> Texts:
    texts = []
    for one in tei.sequences(inputs, most):
        parts = [clean(name, part)[0] for name, part in zip(one.names, one.parts, strict=True)]
        texts.append((parts[0], parts[1] if len(parts) > 1 else None))
    return tuple(texts)


def _scores(found: Answer, form: tei.Form) -> list[list[dict[str, Any]]]:
    classes = found.encoder.classes
    return [scores(logits_K, classes, form.raw, form.most) for logits_K in found.outputs]
