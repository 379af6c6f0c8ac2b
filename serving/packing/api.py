"""The packing service over HTTP: which address does what, and their documentation.

Knows HTTP; what is done it leaves to the endpoint, which the service puts into `app.state.endpoint` when it is up. It
speaks as OpenAI does (serving/packing/openai.py), errors included.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from serving.http.api_errors import ApiError, json_response
from serving.http.app import add_refresh, complete, new_app
from serving.packing import openai
from serving.packing.question import Endpoint
from serving.packing.schemas import Status, documents

POSTED = {"/completions": openai.completions, "/chat/completions": openai.chat_completions}
ASKED = {"/models": openai.models, "/models/{model:path}": openai.model}


class Elsewhere(BaseRoute):
    """Every other address, if no route with another method claims it: BentoML asks an app's routes before it mounts them."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return (Match.PARTIAL if scope["type"] == "http" else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await _refused_by_http(Request(scope, receive), HTTPException(404))
        await response(scope, receive, send)


def create_app(swagger: Path) -> FastAPI:
    """The app, to be mounted at /v1; `swagger` is a folder with Swagger UI's files, so that its page needs no internet."""
    app = new_app("Pliant packing")
    app.add_api_route("/status", _status, methods=["GET"], summary="What is served", responses={200: {"model": Status}})
    add_refresh(app)
    handlers = {path: openai.guarded(handle, _endpoint) for path, handle in {**POSTED, **ASKED}.items()}
    for path, handler in handlers.items():
        app.add_api_route(path, handler, name=path, **documents(path))
    complete(app, {path: handlers[path] for path in POSTED}, swagger)
    app.add_exception_handler(HTTPException, _refused_by_http)
    app.router.routes.append(Elsewhere())
    return app


async def _status(request: Request) -> Response:
    return json_response(await _endpoint(request).status())


async def _refused_by_http(request: Request, error: Exception) -> Response:
    """Addresses and methods that there are not, in OpenAI's shape as well."""
    assert isinstance(error, HTTPException)
    _endpoint(request).metrics.refused("http")
    told = f"{request.method} {request.url.path}: {error.detail}"
    return openai.error_response(ApiError(error.status_code, "http", told))


def _endpoint(request: Request) -> Endpoint:
    endpoint: Endpoint = request.app.state.endpoint
    return endpoint
