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

from pliant.serving.bins.answer import embeddings, respond
from pliant.serving.bins.bodies import Endpoint, OpenaiEmbeddingsBody, TextRequest, inputs_of, read_deadline
from pliant.serving.bins.messages import Output
from pliant.serving.http import openai
from pliant.serving.http.access.access import client_of
from pliant.serving.http.app import arrival

EMBEDDING = "embedding"


async def embeddings_route(request: Request, endpoint: Endpoint) -> Response:
    arrived = arrival(request, endpoint)
    body = await OpenaiEmbeddingsBody.of(request, endpoint.settings)
    task = endpoint.select(request.path_params.get("task") or body.model, "model", EMBEDDING)
    write = _base64 if body.encoding_format == "base64" else _array
    inputs = inputs_of("input", body.input, endpoint.settings.max_texts)
    limit = read_deadline(request, body.deadline, endpoint.settings.max_deadline)
    answer = await endpoint.run(TextRequest(task, inputs, limit, client=client_of(request)), arrived)
    data = [
        {"object": "embedding", "index": index, "embedding": write(output_H)}
        for index, output_H in enumerate(embeddings(answer, dimensions=body.dimensions))
    ]
    usage = {"prompt_tokens": sum(answer.lengths), "total_tokens": sum(answer.lengths)}
    return respond({"object": "list", "data": data, "model": task, "usage": usage}, answer.headers)


async def models(_: Request, endpoint: Endpoint) -> Response:
    """List all streams, whatever their head."""
    return openai.models(dict.fromkeys(endpoint.tasks(), 0))


def _base64(output_H: Output) -> Any:
    return base64.b64encode(output_H.astype("<f4").tobytes()).decode()


def _array(output_H: Output) -> Any:
    return output_H
