"""What every service's app has besides its own routes: the quick way to its hot routes, its page, one shape of error.

Knows HTTP and FastAPI; knows no system. The service puts the endpoint into `app.state.endpoint` when it is up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

from pliant.errors import PliantError
from serving.http.api_errors import ApiError, error_response, json_response, refusal_of
from serving.http.schemas import Refresh

Handler = Callable[[Request], Awaitable[Response]]


def new_app(title: str) -> FastAPI:
    """An app without routes; `complete` it when it has its own."""
    return FastAPI(title=title, version="1", docs_url=None, redoc_url=None, openapi_url="/openapi.json")


def complete(app: FastAPI, hot: Mapping[str, Handler], swagger: Path) -> FastAPI:
    """`swagger` is a folder with Swagger UI's files, so that its page needs no internet.

    `hot`: what is posted with every request, by path.
    """
    # Requests go straight to the function; FastAPI's route of the same path, behind it, only documents. Its machinery
    # of dependencies, unused here, was a sixth of the time of a request.
    app.router.routes[:0] = [Route(path, handler, methods=["POST"]) for path, handler in hot.items()]
    app.add_api_route("/docs", _docs, include_in_schema=False)
    app.mount("/swagger", StaticFiles(directory=swagger), name="swagger")
    for kind in (ApiError, PliantError, HTTPException, ClientDisconnect):
        app.add_exception_handler(kind, _answer_error)
    return app


def add_refresh(app: FastAPI, errors: Mapping[int | str, dict[str, Any]] | None = None) -> Handler:
    """The same for all systems, but for the `errors` that are documented."""
    app.add_api_route(
        "/refresh",
        _refresh,
        methods=["POST"],
        summary="Take up what the registry's alias points to",
        responses={200: {"model": Refresh}, **(errors or {})},
    )
    return _refresh


async def _refresh(request: Request) -> Response:
    return json_response(await request.app.state.endpoint.refresh())


async def _docs(request: Request) -> Response:
    """Addresses are relative, so the page works wherever the app is mounted."""
    return get_swagger_ui_html(
        openapi_url="openapi.json",
        title=request.app.title,
        swagger_js_url="swagger/swagger-ui-bundle.js",
        swagger_css_url="swagger/swagger-ui.css",
        swagger_favicon_url="swagger/favicon-light-32x32.png",
    )


async def _answer_error(request: Request, error: Exception) -> Response:
    refusal = _of_http(error) if isinstance(error, HTTPException) else refusal_of(error)
    request.app.state.endpoint.metrics.refused(refusal.code)
    return error_response(refusal)


def _of_http(error: HTTPException) -> ApiError:
    return ApiError(error.status_code, "http", str(error.detail))
