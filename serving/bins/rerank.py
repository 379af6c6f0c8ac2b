"""Reranking: texts ordered by how well they fit a query, for a stream that gives one score for a pair of texts.

/rerank follows text-embeddings-inference, /v1/rerank and /v2/rerank what Jina and Cohere have in common; their errors have
OpenAI's shape, like those of the other routes below /v1. A score is the sigmoid of the model's output, from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from pliant.errors import InputError
from serving.bins.answer import respond, sigmoid
from serving.bins.inputs import positive, texts
from serving.bins.request import Answer, Endpoint, TextRequest, read_deadline
from serving.http import tei
from serving.http.access.roles import client_of
from serving.http.json_body import shorten
from serving.http.large_body import checked
from serving.http.routing import arrival, read_fields
from serving.http.texts import check_count, clean

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
    raw, with_text = tei.flag(fields, "raw_scores", False), tei.flag(fields, "return_text", False)
    query, _ = clean("query", fields.get("query"))
    ranked = await checked(request, texts, "texts", fields.get("texts"), endpoint.settings.max_texts)
    truncate, left = tei.flag(fields, "truncate", True), tei.is_left(fields.get("truncation_direction"))
    limit = read_deadline(request, fields, endpoint.settings.max_deadline)
    body = TextRequest(task, _pairs(query, ranked), limit, truncate, left, client_of(request))
    answer = await endpoint.run(body, arrived)
    ranks = [
        {"index": index, **({"text": fields["texts"][index]} if with_text else {}), "score": score}
        for index, score in _order(answer, raw)
    ]
    return respond(ranks, answer.headers)


async def rerank_documents(request: Request, endpoint: Endpoint) -> Response:
    """Answer /v1/rerank with the best documents, and the number of tokens that were read."""
    arrived = arrival(request, endpoint)
    fields = await read_fields(request, endpoint.settings)
    task = endpoint.select(request.path_params.get("task") or fields.get("model"), "model", RERANKER)
    top_n, with_text = positive(fields, "top_n"), tei.flag(fields, "return_documents", True)
    query, _ = clean("query", fields.get("query"))
    documents = await checked(request, _documents, fields.get("documents"), endpoint.settings.max_texts)
    limit = read_deadline(request, fields, endpoint.settings.max_deadline)
    answer = await endpoint.run(TextRequest(task, _pairs(query, documents), limit, client=client_of(request)), arrived)
    results = [
        {
            "index": index,
            "relevance_score": score,
            **({"document": {"text": _text(fields["documents"][index])}} if with_text else {}),
        }
        for index, score in _order(answer, raw=False)[:top_n]
    ]
    count = sum(answer.lengths)
    usage = {"prompt_tokens": count, "total_tokens": count}
    content = {"id": f"rerank-{uuid4().hex}", "object": "list", "model": task, "results": results, "usage": usage}
    return respond(content, answer.headers)


def _pairs(query: str, documents: Sequence[str]) -> list[tuple[str, str | None]]:
    return [(query, document) for document in documents]


def _order(answer: Answer, raw: bool) -> list[tuple[int, np.float32]]:
    """Return number and score of each pair, the best first; equal ones stay in order."""
    logits = np.array([output_K[0] for output_K in answer.outputs], np.float32)
    scores = logits if raw else sigmoid(logits)
    return [(index, scores[index]) for index in np.argsort(-logits, kind="stable").tolist()]


def _documents(value: object, max_texts: int) -> tuple[str, ...]:
    """Return the text of each document. Raises `InputError`, and as `check_count` and `clean`."""
    if not isinstance(value, list):
        raise InputError("documents", shorten(value), "a list of texts or objects with text")
    check_count("documents", value, max_texts)
    names = [f"documents[{index}]{'.text' if isinstance(item, dict) else ''}" for index, item in enumerate(value)]
    return tuple(clean(name, _text(item))[0] for name, item in zip(names, value, strict=True))


def _text(document: Any) -> Any:
    return document.get("text") if isinstance(document, dict) else document
