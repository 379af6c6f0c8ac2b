"""The cascade in the shape of Hugging Face's text-embeddings-inference: /predict, /info and /health, for its clients.

What TEI's shapes are says serving/http/tei.py. The answer is a list of {score, label}, best first.

What is different, as a cascade has no logits of its own: raw scores are the logarithms of the calibrated probabilities,
whose softmax gives these again. Texts are only ever cut at their end.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from serving.cascade.question import Described, Endpoint, Question, read_texts, which_task
from serving.cascade.schemas import task_parameter, tei_body, tei_responses
from serving.http import tei
from serving.http.api_errors import ApiError, json_response
from serving.http.questions import guarded, read_fields
from serving.http.tei import Form

LEAST = 1e-12  # the smallest probability whose logarithm is given
STATUS: Mapping[str, int] = {"full": 429, "invalid": 422}
"""The code of one text's error -> our status."""

SUMMARIES: Mapping[str, str] = {
    "/predict": "Classify one or many texts, as text-embeddings-inference does",
    "/info": "The model, as its clients want to know it",
    "/health": "Whether it can answer",
}


def add_tei(app: FastAPI, endpoint_of: Callable[[Request], Endpoint]) -> None:
    """/tei and, for a service of several tasks, /tei/{task}: base addresses to give to a client."""
    routes: tuple[tuple[str, str, Callable[[Request, Endpoint], Awaitable[Response]]], ...] = (
        ("POST", "/predict", _predict),
        ("GET", "/info", _info),
        ("GET", "/health", _health),
        ("POST", "", _predict),
        ("GET", "", _health),
    )
    for base in ("/tei", "/tei/{task}"):
        for method, path, handle in routes:
            documents = tei_body() if method == "POST" else {}
            app.add_api_route(
                base + path,
                guarded(handle, endpoint_of, tei.error_response),
                methods=[method],
                include_in_schema=path != "",
                responses=tei_responses(path),
                tags=["text-embeddings-inference"],
                name=f"{method} {base}{path}",
                summary=SUMMARIES.get(path),
                openapi_extra=documents | ({"parameters": task_parameter()} if "{" in base else {}),
            )


async def _predict(request: Request, endpoint: Endpoint) -> Response:
    arrived = endpoint.now
    fields = await read_fields(request, endpoint.settings)
    task = which_task(request.path_params.get("task"), endpoint)
    described, form = endpoint.describe(task), tei.read_form(fields)
    given = tei.sequences(fields.get("inputs"), endpoint.settings.max_texts)
    texts, _ = read_texts(given, task, described.pair)
    question = Question(task, texts, deadline=endpoint.settings.max_deadline)
    answers = (await endpoint.predict(question, arrived))["answers"]
    _check_errors(answers)
    _check_cut(answers, form, described)
    lists = [scores(answer, form) for answer in answers]
    return json_response(tei.shaped(lists, form))


async def _info(request: Request, endpoint: Endpoint) -> Response:
    task, limits = which_task(request.path_params.get("task"), endpoint), endpoint.settings
    described = endpoint.describe(task)
    kind = tei.classifier_type(described.classes)
    return json_response(tei.info(task, kind, described.max_length, limits.max_waiting, limits.max_texts))


async def _health(_: Request, endpoint: Endpoint) -> Response:
    return tei.health(endpoint.status()["ready"])


def scores(answer: Mapping[str, Any], form: Form) -> list[dict[str, Any]]:
    """Of all classes (or the best `form.most`), best first; of a regression the value."""
    if not answer["probabilities"]:
        return [{"score": answer["label"], "label": "LABEL_0"}]
    best = sorted(answer["probabilities"].items(), key=lambda item: -item[1])[: form.most]
    return [{"score": math.log(max(share, LEAST)) if form.raw else share, "label": label} for label, share in best]


def _check_errors(answers: list[Mapping[str, Any]]) -> None:
    """TEI's batches succeed or fail as a whole."""
    for answer in answers:
        if "error" in answer:
            code, message = answer["error"]["code"], answer["error"]["message"]
            raise ApiError(STATUS.get(code, 503), code, message, answer["error"]["field"])


def _check_cut(answers: list[Mapping[str, Any]], form: Form, described: Described) -> None:
    """Known only now, as the models' tokenizers tell."""
    if not any(answer["truncated"] for answer in answers):
        return
    if not form.truncate:
        raise tei.too_long(described.max_length)
    if form.left:
        raise tei.not_left(described.max_length)
