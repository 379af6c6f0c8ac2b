"""The bins in the shape of OpenAI's API: /v1/embeddings and /v1/models, for its clients.

After OpenAI's documentation of embeddings and errors: `input` is a text or a list of texts, `encoding_format` float or
base64 (little-endian 32-bit floats; its own Python client asks for that), errors are {error: {message, type, param, code}}.
Embeddings have length 1, as OpenAI's do; texts that are too long are cut at their end, as text-embeddings-inference does
at this address.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pliant.errors import InputError
from serving.bins.answer import embeddings, respond
from serving.bins.messages import Output
from serving.bins.question import Endpoint, Question, read_deadline
from serving.bins.tei import EMBEDDING, no_dimensions, plain_texts
from serving.http.api_errors import RETRY_AFTER, ApiError, json_response
from serving.http.json_body import shorten
from serving.http.questions import read_fields

STATUS: Mapping[str, int] = {"invalid": 400, "too_many_texts": 400, "text_too_long": 400, "wrong_head": 400}
"""Of our code, where it is not our own status."""
CODES: Mapping[str, str] = {"unknown_task": "model_not_found", "full": "rate_limit_exceeded"}
"""Our code -> OpenAI's."""


async def embeddings_of(request: Request, endpoint: Endpoint) -> Response:
    arrived = endpoint.now
    fields = await read_fields(request, endpoint.settings)
    task = endpoint.which(request.path_params.get("task") or fields.get("model"), "model", EMBEDDING)
    if fields.get("dimensions") is not None:
        raise no_dimensions(fields["dimensions"])
    write = _base64 if _is_base64(fields.get("encoding_format")) else _array
    texts = plain_texts("input", fields.get("input"), endpoint.settings.max_texts)
    limit = read_deadline(request, fields, endpoint.settings.max_deadline)
    found = await endpoint.run(Question(task, texts, limit), arrived)
    data = [
        {"object": "embedding", "index": index, "embedding": write(output_H)}
        for index, output_H in enumerate(embeddings(found))
    ]
    usage = {"prompt_tokens": sum(found.lengths), "total_tokens": sum(found.lengths)}
    return respond({"object": "list", "data": data, "model": task, "usage": usage}, found.headers)


async def models(_: Request, endpoint: Endpoint) -> Response:
    """Streams of either head, as a client may ask what is served."""
    told = [{"id": name, "object": "model", "created": 0, "owned_by": "pliant"} for name in endpoint.tasks()]
    return json_response({"object": "list", "data": told})


def error_response(refusal: ApiError) -> Response:
    status = STATUS.get(refusal.code, refusal.status)
    content = {
        "message": str(refusal),
        "type": _type(status),
        "param": refusal.field,
        "code": CODES.get(refusal.code, refusal.code),
    }
    headers = {"retry-after": RETRY_AFTER} if status in (429, 503) else None
    return json_response({"error": content}, status, headers)


def _type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"


def _is_base64(told: object) -> bool:
    if told not in (None, "float", "base64"):
        raise InputError("encoding_format", shorten(told), "float or base64")
    return told == "base64"


def _base64(output_H: Output) -> Any:
    return base64.b64encode(output_H.astype("<f4").tobytes()).decode()


def _array(output_H: Output) -> Any:
    return output_H
