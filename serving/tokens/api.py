"""The HTTP routes of the tokens service and their documentation. They call the endpoint in `app.state.endpoint`."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from pliant.serving.http.access.access import check_admin
from pliant.serving.http.api_errors import error_response, json_response
from pliant.serving.http.app import add_refresh, add_status, complete, endpoint_of, new_app
from pliant.serving.http.bodies import request_body as json_body
from pliant.serving.http.json_body import as_object, parse, read_body
from pliant.serving.http.oip import routes
from pliant.serving.http.oip.response import shape_of
from pliant.serving.http.routing import arrival
from pliant.serving.http.schemas import errors
from pliant.serving.loop.outcome_routes import add_outcomes
from pliant.serving.tokens import oip
from pliant.serving.tokens.endpoint import TokensEndpoint
from pliant.serving.tokens.request import RegistrationBody, read_request
from pliant.serving.tokens.schemas import (
    Alarm,
    Prediction,
    Status,
    TakenOutcome,
    TaskDescription,
    TaskList,
    TokensRefresh,
    request_body,
)


def create_app(swagger: Path) -> FastAPI:
    """Return the app. `swagger` is a folder with the files of Swagger UI, so that the page needs no internet."""
    app = new_app("Pliant tokens")
    _add_routes(app)
    return complete(app, {"/predict": _predict}, swagger, lambda path: shape_of(path, error_response))


def create_root(app: FastAPI) -> FastAPI:
    """Return the app to be mounted at the root, which serves beside `app`: the Open Inference Protocol, below /v2."""
    return routes.create_root(app, oip.SERVED)


def _add_routes(app: FastAPI) -> None:
    app.add_api_route(
        "/predict",
        _predict,
        methods=["POST"],
        summary="Classify an image before a deadline",
        responses={200: {"model": Prediction}, **errors(400, 404, 413, 415, 422, 429, 500, 503)},
        openapi_extra=request_body(),
    )
    app.add_api_route("/tasks", _tasks, methods=["GET"], summary="List the tasks", responses={200: {"model": TaskList}})
    app.add_api_route(
        "/tasks",
        _register,
        methods=["POST"],
        summary="Serve another task of the registry",
        responses={200: {"model": TaskDescription}, **errors(400, 403, 404, 409, 413, 415, 422, 500, 503)},
        openapi_extra={"requestBody": json_body(RegistrationBody)},
    )
    add_outcomes(app, TakenOutcome, Alarm, "7")
    add_refresh(app, TokensRefresh)
    add_status(app, Status, "Status of the service, and accuracy by reported labels")


async def _predict(request: Request) -> Response:
    endpoint: TokensEndpoint = endpoint_of(request)
    arrived, settings = arrival(request, endpoint), endpoint.settings
    body = await read_request(request, settings.max_body_bytes, settings.max_deadline)
    return json_response(await endpoint.predict(body, arrived))


async def _tasks(request: Request) -> Response:
    return json_response({"tasks": endpoint_of(request).tasks()})


async def _register(request: Request) -> Response:
    endpoint: TokensEndpoint = endpoint_of(request)
    client = check_admin(request, "register or pin tasks")
    fields = as_object(await parse(request, await read_body(request, endpoint.settings.max_body_bytes)))
    body = RegistrationBody.read(fields)
    return json_response(await endpoint.register(body.name, body.wanted, client))
