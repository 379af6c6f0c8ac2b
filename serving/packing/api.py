"""The HTTP routes of the packing service and their documentation. They call the endpoint in `app.state.endpoint`.

They follow OpenAI's API (serving/packing/openai.py), errors included.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.app import add_refresh, add_status, complete, endpoint_of, new_app
from pliant.serving.packing import openai
from pliant.serving.packing.schemas import Status, options_of

POST_ROUTES = {"/completions": openai.completions, "/chat/completions": openai.chat_completions}
GET_ROUTES = {"/models": openai.models, "/models/{model:path}": openai.model}
ROOT_ROUTES = {"/tokenize": openai.tokenize, "/detokenize": openai.detokenize, "/health": openai.health}
"""Routes outside /v1, where clients of vLLM look for them."""


class NotFoundRoute(BaseRoute):
    """Answers 404 on all other paths. It matches partially, so that routes of BentoML come first."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return (Match.PARTIAL if scope["type"] == "http" else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await _answer_http_error(Request(scope, receive), HTTPException(404))
        await response(scope, receive, send)


def create_app(swagger: Path) -> FastAPI:
    """Return the app, to be mounted at /v1. `swagger` is a folder with the files of Swagger UI."""
    app = new_app("Pliant packing")
    add_status(app, Status)
    add_refresh(app)
    handlers = {path: openai.guarded(handle, endpoint_of) for path, handle in {**POST_ROUTES, **GET_ROUTES}.items()}
    for path, handler in handlers.items():
        app.add_api_route(path, handler, name=path, **options_of(path))
    complete(app, {path: handlers[path] for path in POST_ROUTES}, swagger, lambda _path: openai.error_response)
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.router.routes.append(NotFoundRoute())
    return app


def create_root(app: FastAPI) -> FastAPI:
    """Return the app to be mounted at the root, which serves beside `app`."""
    root = FastAPI(title=app.title, version=app.version, docs_url=None, redoc_url=None)
    root.state = app.state
    for path, handle in ROOT_ROUTES.items():
        root.add_api_route(path, openai.guarded(handle, endpoint_of), name=path, **options_of(path))
    root.add_exception_handler(HTTPException, _answer_http_error)
    root.router.routes.append(NotFoundRoute())
    return root


async def _answer_http_error(request: Request, error: Exception) -> Response:
    """Answer an unknown path or method in OpenAI's shape."""
    assert isinstance(error, HTTPException)
    endpoint_of(request).metrics.errored("http")
    message = f"{request.method} {request.url.path}: {error.detail}"
    return openai.error_response(ApiError(error.status_code, "http", message, headers=error.headers))
