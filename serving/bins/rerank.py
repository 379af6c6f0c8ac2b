"""Reranking: texts ordered by how well they fit a query, for a stream that gives one score for a pair of texts.

/rerank follows text-embeddings-inference, /v1/rerank and /v2/rerank what Jina and Cohere have in common; their errors have
OpenAI's shape, like those of the other routes below /v1. A score is the sigmoid of the model's output, from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from pliant.serving.bins.answer import respond, sigmoid
from pliant.serving.bins.bodies import RerankBody, RerankDocumentsBody, pairs, text_of
from pliant.serving.bins.request import Answer, Endpoint, TextRequest, read_deadline
from pliant.serving.http.access.access import client_of
from pliant.serving.http.json_body import checked
from pliant.serving.http.routing import arrival, read_fields

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
