"""TEI's routes about tokens: /embed_all, an embedding for each, /embed_sparse, which no encoder has, /tokenize and /decode.

The last two read no model: nothing waits for a device, and texts may be longer than the encoder reads.
"""

from __future__ import annotations

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from serving.bins.answer import respond
from serving.bins.bodies import DecodeBody, EmbedAllBody, TokenizeBody, texts_of
from serving.bins.request import Endpoint, TokensRequest
from serving.bins.tei import EMBEDDING, embedding_request
from serving.http.api_errors import ApiError
from serving.http.large_body import checked
from serving.http.routing import arrival, read_fields
from serving.http.texts import check_count

NOT_SPARSE = "Model is not an embedding model with SPLADE pooling"
"""TEI's error message for a model that gives no sparse embeddings."""


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
