"""OpenAI's API for bins: /v1/embeddings and /v1/models.

It follows OpenAI's documentation: `input` is a text, token ids or a list of these, `encoding_format` is float or base64
(little-endian 32-bit floats, the default of its Python client), `dimensions` cuts embeddings, errors are
{error: {message, type, param, code}}. Embeddings have length 1, as OpenAI's do. Texts that are too long are truncated at
their end, as text-embeddings-inference does on this route. Token ids are of the encoder's own tokenizer.
"""

from __future__ import annotations

import base64
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pliant.errors import InputError
from serving.bins.answer import embeddings, respond
from serving.bins.inputs import embedding_inputs, positive
from serving.bins.messages import Output
from serving.bins.request import Endpoint, TextRequest, read_deadline
from serving.http import openai
from serving.http.access.roles import client_of
from serving.http.json_body import shorten
from serving.http.large_body import checked
from serving.http.routing import arrival, read_fields

EMBEDDING = "embedding"


async def embeddings_route(request: Request, endpoint: Endpoint) -> Response:
    arrived = arrival(request, endpoint)
    fields = await read_fields(request, endpoint.settings)
    task = endpoint.select(request.path_params.get("task") or fields.get("model"), "model", EMBEDDING)
    dimensions = positive(fields, "dimensions")
    write = _base64 if _is_base64(fields.get("encoding_format")) else _array
    inputs = await checked(request, embedding_inputs, "input", fields.get("input"), endpoint.settings.max_texts)
    limit = read_deadline(request, fields, endpoint.settings.max_deadline)
    answer = await endpoint.run(TextRequest(task, inputs, limit, client=client_of(request)), arrived)
    data = [
        {"object": "embedding", "index": index, "embedding": write(output_H)}
        for index, output_H in enumerate(embeddings(answer, dimensions=dimensions))
    ]
    usage = {"prompt_tokens": sum(answer.lengths), "total_tokens": sum(answer.lengths)}
    return respond({"object": "list", "data": data, "model": task, "usage": usage}, answer.headers)


async def models(_: Request, endpoint: Endpoint) -> Response:
    """List all streams, whatever their head."""
    return openai.models(dict.fromkeys(endpoint.tasks(), 0))


def _is_base64(value: object) -> bool:
    if value not in (None, "float", "base64"):
        raise InputError("encoding_format", shorten(value), "float or base64")
    return value == "base64"


def _base64(output_H: Output) -> Any:
    return base64.b64encode(output_H.astype("<f4").tobytes()).decode()


def _array(output_H: Output) -> Any:
    return output_H
