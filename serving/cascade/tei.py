"""The API of Hugging Face's text-embeddings-inference (TEI) for cascade: /predict, /info and /health.

serving/http/tei.py describes its requests and answers. The answer is a list of {score, label}, best first. Two things
differ from TEI: raw scores are the logarithms of the calibrated probabilities (a cascade has no logits; their softmax gives
the probabilities again), and texts are truncated at their end only.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from pliant.serving.cascade.request import Described, Endpoint, TextRequest, check_pairs, select_task
from pliant.serving.http import tei
from pliant.serving.http.access.access import client_of
from pliant.serving.http.api_errors import ApiError, json_response
from pliant.serving.http.bodies import request_body
from pliant.serving.http.json_body import checked
from pliant.serving.http.routing import arrival, guarded, read_fields
from pliant.serving.http.schemas import Score, TeiError, errors, route_options

MIN_PROBABILITY = 1e-12  # smaller probabilities count as this one in raw scores
STATUS: Mapping[str, int] = {"full": 429, "invalid": 422}
"""The code of a text's error -> the status of the response."""

ROUTES: Mapping[str, tuple[str, Any, tuple[int, ...]]] = {
    "/predict": (
        "Classify one or many texts, as text-embeddings-inference does",
        list[Score] | list[list[Score]],
        (400, 404, 413, 415, 422, 424, 429),
    ),
    "/info": ("The model, as text-embeddings-inference describes it", Any, (404, 422)),
    "/health": ("Whether the service can answer", None, (404, 503)),
}
"""Summary, answer and errors of each route."""


def add_tei(app: FastAPI, endpoint_of: Callable[[Request], Endpoint]) -> None:
    """Add the routes below /tei and, for a service of several tasks, below /tei/{task}."""
    handlers: Mapping[str, Callable[[Request, Endpoint], Awaitable[Response]]] = {
        "/predict": _predict,
        "/info": _info,
        "/health": _health,
    }
    for base in ("/tei", "/tei/{task}"):
        for path, handle in handlers.items():
            summary, answer, statuses = ROUTES[path]
            body, responses = request_body(tei.PredictBody), errors(*statuses, model=TeiError)
            options = route_options(
                base, summary, "text-embeddings-inference", answer, responses, body if path == "/predict" else None
            )
            handler = guarded(handle, endpoint_of, tei.error_response)
            app.add_api_route(base + path, handler, name=base + path, **options)
            if path != "/info":  # the base address predicts, and says whether the service can answer
                hidden = {**options, "include_in_schema": False}
                app.add_api_route(base, handler, name=f"{path} at {base}", **hidden)


async def _predict(request: Request, endpoint: Endpoint) -> Response:
    arrived = arrival(request, endpoint)
    fields = await read_fields(request, endpoint.settings)
    task = select_task(request.path_params.get("task"), endpoint)
    described, body = endpoint.describe(task), await checked(request, tei.PredictBody.read, fields)
    texts = body.texts(endpoint.settings.max_texts)
    check_pairs("inputs", texts, task, described.pair, not body.batch)
    limit = endpoint.settings.max_deadline
    answers = (await endpoint.predict(TextRequest(task, texts, deadline=limit, client=client_of(request)), arrived))[
        "answers"
    ]
    check_errors(answers)
    check_cut(answers, body.truncate, body.left, described)
    return json_response(body.shaped([scores(answer, body) for answer in answers], "parameters" in fields))


async def _info(request: Request, endpoint: Endpoint) -> Response:
    task, limits = select_task(request.path_params.get("task"), endpoint), endpoint.settings
    described = endpoint.describe(task)
    kind = tei.classifier_type(described.classes)
    return json_response(tei.info(task, kind, described.max_length, limits.max_waiting, limits.max_texts))


async def _health(request: Request, endpoint: Endpoint) -> Response:
    if "task" in request.path_params:
        select_task(request.path_params["task"], endpoint)
    return tei.health(endpoint.status()["ready"])


def scores(answer: Mapping[str, Any], body: tei.PredictBody) -> list[dict[str, Any]]:
    """Return the scores of all classes (or the best `top_k`), best first, or a regression's value."""
    if not answer["probabilities"]:
        return [{"score": answer["label"], "label": "LABEL_0"}]
    best = sorted(answer["probabilities"].items(), key=lambda item: -item[1])[: body.top_k]
    return [{"score": raw_score(share) if body.raw else share, "label": label} for label, share in best]


def raw_score(probability: float) -> float:
    """Return the logarithm of a probability, at least that of `MIN_PROBABILITY`."""
    return math.log(max(probability, MIN_PROBABILITY))


def check_errors(answers: list[Mapping[str, Any]]) -> None:
    """Raise the first error among the answers: in TEI, a batch succeeds or fails as a whole."""
    for answer in answers:
        if "error" in answer:
            code, message = answer["error"]["code"], answer["error"]["message"]
            raise ApiError(STATUS.get(code, 503), code, message, answer["error"]["field"])


def check_cut(answers: list[Mapping[str, Any]], truncate: bool, left: bool, described: Described) -> None:
    """Raise `ApiError` if a text was truncated that must not be, which the models' tokenizers decide."""
    if not any(answer["truncated"] for answer in answers):
        return
    if not truncate:
        raise tei.too_long(described.max_length)
    if left:
        raise tei.not_left(described.max_length)
