"""The HTTP routes of the cascade service and their documentation. They call the endpoint in `app.state.endpoint`.

The routes below /tei follow text-embeddings-inference, errors included (serving/cascade/tei.py), those below /v2 the Open
Inference Protocol (serving/cascade/oip.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from pliant.serving.cascade import oip
from pliant.serving.cascade.bodies import EXAMPLES, PredictBody
from pliant.serving.cascade.request import Endpoint, TextRequest, read_request
from pliant.serving.cascade.schemas import Alarm, Prediction, Status, TakenOutcome, TaskList
from pliant.serving.cascade.tei import add_tei
from pliant.serving.http import tei
from pliant.serving.http.api_errors import ErrorShape, error_response, json_response
from pliant.serving.http.app import add_refresh, add_status, complete, endpoint_of, new_app
from pliant.serving.http.bodies import request_body
from pliant.serving.http.oip import routes
from pliant.serving.http.oip.response import shape_of
from pliant.serving.http.routing import arrival
from pliant.serving.http.schemas import errors
from pliant.serving.loop.outcome_routes import add_outcomes


def create_app(swagger: Path) -> FastAPI:
    """Return the app. `swagger` is a folder with the files of Swagger UI, so that the page needs no internet."""
    app = new_app("Pliant cascade")
    _add_routes(app)
    add_tei(app, endpoint_of)
    return complete(app, {"/predict": _predict}, swagger, _shape_of)


def create_root(app: FastAPI) -> FastAPI:
    """Return the app to be mounted at the root, which serves beside `app`."""
    return routes.create_root(app, oip.SERVED)


def _shape_of(path: str) -> ErrorShape:
    return shape_of(path, tei.error_response if "/tei" in path else error_response)


def _add_routes(app: FastAPI) -> None:
    app.add_api_route(
        "/predict",
        _predict,
        methods=["POST"],
        summary="Classify one or many texts before a deadline",
        responses={200: {"model": Prediction}, **errors(400, 404, 413, 415, 422, 429, 500, 503)},
        openapi_extra={"requestBody": request_body(PredictBody, examples=EXAMPLES)},
    )
    add_outcomes(app, TakenOutcome, Alarm, "positive")
    app.add_api_route("/tasks", _tasks, methods=["GET"], summary="List the tasks", responses={200: {"model": TaskList}})
    add_refresh(app)
    add_status(app, Status, "Status of the service, and accuracy by reported labels")


async def _predict(request: Request) -> Response:
    endpoint: Endpoint = endpoint_of(request)
    arrived = arrival(request, endpoint)
    body = await read_request(request, endpoint)
    return json_response(_with_cleaned(await endpoint.predict(body, arrived), body))


def _with_cleaned(prediction: dict[str, Any], body: TextRequest) -> dict[str, Any]:
    """Return the prediction with the number of characters that were cleaned in each text."""
    answers = [{**answer, "cleaned": count} for answer, count in zip(prediction["answers"], body.cleaned, strict=True)]
    return {**prediction, "answers": answers}


async def _tasks(request: Request) -> Response:
    return json_response({"tasks": list(endpoint_of(request).tasks())})
