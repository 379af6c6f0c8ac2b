"""The cascade service over HTTP: routes, their documentation, and one shape of error for all of them.

Knows HTTP; what is done it leaves to the endpoint, which the service puts into `app.state.endpoint` when it is up. The
routes below /tei speak as text-embeddings-inference does, errors included (serving/cascade/tei.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from serving.cascade.outcomes import read_outcome, take_all
from serving.cascade.question import Endpoint, Question, read_question
from serving.cascade.schemas import Prediction, Status, TakenOutcome, TaskList, errors, outcome_body, question_body
from serving.cascade.tei import add_tei
from serving.http.api_errors import json_response
from serving.http.app import add_refresh, complete, new_app
from serving.http.json_body import check_type, parse_value, read_body


def create_app(swagger: Path) -> FastAPI:
    """The app; `swagger` is a folder with Swagger UI's files, so that its page needs no internet."""
    app = new_app("Pliant cascade")
    _add_routes(app)
    add_tei(app, _endpoint)
    return complete(app, {"/predict": _predict}, swagger)


def _add_routes(app: FastAPI) -> None:
    app.add_api_route(
        "/predict",
        _predict,
        methods=["POST"],
        summary="Classify one or many texts before a deadline",
        responses={200: {"model": Prediction}, **errors(400, 404, 413, 415, 422, 429, 500, 503)},
        openapi_extra=question_body(),
    )
    app.add_api_route(
        "/outcomes",
        _outcomes,
        methods=["POST"],
        summary="Say what would have been the right label of an answer",
        responses={200: {"model": TakenOutcome}, **errors(400, 404, 409, 413, 415, 422)},
        openapi_extra=outcome_body(),
    )
    app.add_api_route(
        "/tasks", _tasks, methods=["GET"], summary="The tasks served", responses={200: {"model": TaskList}}
    )
    add_refresh(app, errors(500, 503))
    app.add_api_route(
        "/status", _status, methods=["GET"], summary="What is served, and how well", responses={200: {"model": Status}}
    )


async def _predict(request: Request) -> Response:
    endpoint = _endpoint(request)
    arrived = endpoint.now
    question = await read_question(request, endpoint)
    return json_response(_declared(await endpoint.predict(question, arrived), question))


def _declared(prediction: dict[str, Any], question: Question) -> dict[str, Any]:
    """With what was done to the texts before any model saw them."""
    answers = [
        {**answer, "cleaned": count} for answer, count in zip(prediction["answers"], question.cleaned, strict=True)
    ]
    return {**prediction, "answers": answers}


async def _outcomes(request: Request) -> Response:
    endpoint = _endpoint(request)
    check_type(request, ("application/json",), "application/json")
    value = parse_value(await read_body(request, endpoint.settings.max_body_bytes))
    if not isinstance(value, list):
        return json_response(endpoint.outcome(*read_outcome(value)))
    status, content = take_all(value, endpoint.outcome)
    return json_response(content, status)


async def _tasks(request: Request) -> Response:
    return json_response({"tasks": list(_endpoint(request).tasks())})


async def _status(request: Request) -> Response:
    return json_response(_endpoint(request).status())


def _endpoint(request: Request) -> Endpoint:
    endpoint: Endpoint = request.app.state.endpoint
    return endpoint
