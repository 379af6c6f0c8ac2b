"""TEI's /embed_all, an embedding for each token, and /embed_sparse, which no encoder of bins has."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from serving.bins.answer import respond
from serving.bins.request import Endpoint
from serving.bins.tei import EMBEDDING, embedding_request
from serving.http.api_errors import ApiError
from serving.http.routing import arrival, read_fields

NOT_SPARSE = "Model is not an embedding model with SPLADE pooling"
"""TEI's error message for a model that gives no sparse embeddings."""


async def embed_all(request: Request, endpoint: Endpoint) -> Response:
    """Answer /embed_all with the last hidden state of each token of each text, special tokens included."""
    arrived = arrival(request, endpoint)
    fields = await read_fields(request, endpoint.settings)
    task = endpoint.select(request.path_params.get("task"), "task", EMBEDDING)
    body = await embedding_request(request, endpoint, task, fields, unpooled=True)
    answer = await endpoint.run(body, arrived)
    return await run_in_threadpool(respond, answer.outputs, answer.headers)


async def embed_sparse(request: Request, endpoint: Endpoint) -> Response:
    """Refuse as TEI does for a model without the pooling of SPLADE."""
    await read_fields(request, endpoint.settings)
    endpoint.select(request.path_params.get("task"), "task", None)
    raise ApiError(424, "wrong_head", NOT_SPARSE, "task")
