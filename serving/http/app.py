"""The parts of the app that all services share: fast routes, the OpenAPI page, POST /refresh and the shape of errors.

The service puts its endpoint into `app.state.endpoint` before it accepts requests.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from inspect import isawaitable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

from pliant.errors import InputError, PliantError
from pliant.registry.webhooks import moves_release, verified
from pliant.serving.http.access.access import check_admin, client_of
from pliant.serving.http.api_errors import ApiError, ErrorShape, api_error_of, error_response
from pliant.serving.http.bodies import Body, BodyParser, read_body, request_body, shorten
from pliant.serving.http.schemas import CommonStatus, Refresh, errors

ARRIVED = "pliant.arrived"
"""Key of an ASGI scope: when the request came, on the clock of the event loop."""

ADMIN = ("/refresh", "/tasks", "/outcomes", "/registry-events")
"""Endings of POST paths that ask for no prediction."""

EVENT_BYTES = 64 * 1024

Handler = Callable[[Request], Awaitable[Response]]


class AnyEndpoint(Protocol):
    """What any system's endpoint offers its routes."""

    @property
    def now(self) -> float: ...
    @property
    def settings(self) -> Any: ...
    @property
    def metrics(self) -> Any: ...
    @property
    def ready(self) -> bool: ...
    @property
    def alive(self) -> bool: ...


E = TypeVar("E", bound=AnyEndpoint)


def new_app(title: str) -> FastAPI:
    """Return an app without routes. Call `complete` once its own routes are added."""
    return FastAPI(title=title, version="1", docs_url=None, redoc_url=None, openapi_url="/openapi.json")


def complete(
    app: FastAPI,
    hot: Mapping[str, Handler],
    swagger: Path,
    shape_of: Callable[[str], ErrorShape] = lambda _path: error_response,
) -> FastAPI:
    """Add what all services have in common, and return the app.

    `hot`: handlers of the most frequent POST routes, by path. `swagger`: a folder with the files of Swagger UI, so that
    the page needs no internet. `shape_of` gives the error shape of a path, for errors before the app is called.
    """
    app.state.shape_of, app.state.parser = shape_of, BodyParser()
    # These routes come before FastAPI's of the same path, which only serve as documentation: its dependency injection,
    # unused here, took a sixth of a request's time.
    hot = {**hot, "/registry-events": registry_event}
    app.router.routes[:0] = [Route(path, handler, methods=["POST"]) for path, handler in hot.items()]
    app.add_api_route("/docs", docs_page("swagger"), include_in_schema=False)
    app.mount("/swagger", StaticFiles(directory=swagger), name="swagger")
    for kind in (ApiError, PliantError, HTTPException, ClientDisconnect):
        app.add_exception_handler(kind, _answer_error)
    return app


def predicting_app(title: str, body: type[Body]) -> Callable[[Path], FastAPI]:
    """Return what makes the app of a system with one route, /predict: its endpoint's `predict` takes the body, the client
    and the time of arrival, and returns JSON values.
    """

    async def predict(request: Request) -> Response:
        endpoint = endpoint_of(request)
        arrived, fields = arrival(request, endpoint), await body.of(request, endpoint.settings)
        return json_response(await endpoint.predict(fields, client_of(request), arrived))

    def create_app(swagger: Path) -> FastAPI:
        app = new_app(title)
        documented = {"requestBody": request_body(body)}
        app.add_api_route("/predict", predict, methods=["POST"], summary="Answer a request", openapi_extra=documented)
        add_refresh(app)
        add_status(app, CommonStatus)
        return complete(app, {"/predict": predict}, swagger)

    return create_app


def add_refresh(app: FastAPI, schema: type[BaseModel] = Refresh) -> Handler:
    """Add POST /refresh, documented with the `schema` of its answer, and return its handler."""
    app.add_api_route(
        "/refresh",
        _refresh,
        methods=["POST"],
        summary="Load the versions that the registry's alias points to, and serve them",
        responses={200: {"model": schema}, **errors(403, 415, 500, 503)},
    )
    return _refresh


def add_status(app: FastAPI, schema: type[BaseModel], summary: str = "Status of the service") -> None:
    """Add GET /status, documented with the `schema` of its answer."""
    app.add_api_route("/status", _status, methods=["GET"], summary=summary, responses={200: {"model": schema}})


def asks_for_prediction(path: str) -> bool:
    """Whether a POST to this path is a request for the scheduler, which an overloaded service may turn away."""
    return not path.endswith(ADMIN)


def endpoint_of(request: Request) -> Any:
    """Return the service's endpoint."""
    return request.app.state.endpoint


def guarded(
    handle: Callable[[Request, E], Awaitable[Response]],
    endpoint_of: Callable[[Request], E],
    error_response: Callable[[ApiError], Response],
) -> Callable[[Request], Awaitable[Response]]:
    """Return a route that calls `handle`, counts its errors and answers them with `error_response`."""

    async def answer(request: Request) -> Response:
        endpoint = endpoint_of(request)
        try:
            return await handle(request, endpoint)
        except (ApiError, PliantError, ClientDisconnect) as error:
            api_error = api_error_of(error)
            endpoint.metrics.errored(api_error.code)
            return error_response(api_error)

    return answer


def arrival(request: Request, endpoint: AnyEndpoint) -> float:
    """Return when the request came to the socket, on the endpoint's clock; now, if nobody has noted it."""
    arrived = request.scope.get(ARRIVED)
    return endpoint.now if arrived is None else endpoint.now - (asyncio.get_running_loop().time() - arrived)


def select(name: object, field: str, served: Sequence[str]) -> str:
    """Return the task that a request names in `field`, or the only one that is served if it names none.

    Raises `InputError` if a name is needed or is no text, `ApiError` (404) for a task that is not served.
    """
    if name is None:
        if len(served) > 1:
            raise InputError(field, "missing", f"given, as several are served: {', '.join(served)}")
        (name,) = served
    if not isinstance(name, str):
        raise InputError(field, shorten(name), "a text")
    if name not in served:
        raise unknown_task(name, field, served)
    return name


def unknown_task(name: str, field: str, served: Iterable[str]) -> ApiError:
    """Return the error for a task that is not served."""
    known = ", ".join(sorted(served))
    return ApiError(404, "unknown_task", f"{field} is {shorten(name)}, but must be one of {known}", field)


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON response."""
    return Response(json.dumps(content), status, headers, media_type="application/json")


async def _refresh(request: Request) -> Response:
    check_admin(request, "poll the registry")
    return json_response(await endpoint_of(request).refresh())


async def _status(request: Request) -> Response:
    status = endpoint_of(request).status()
    return json_response(await status if isawaitable(status) else status)


def docs_page(files: str) -> Handler:
    """Return a route with the OpenAPI page. Its addresses are relative, so it works wherever the app is mounted."""

    async def page(request: Request) -> Response:
        return get_swagger_ui_html(
            openapi_url="openapi.json",
            title=request.app.title,
            swagger_js_url=f"{files}/swagger-ui-bundle.js",
            swagger_css_url=f"{files}/swagger-ui.css",
            swagger_favicon_url=f"{files}/favicon-light-32x32.png",
        )

    return page


async def _answer_error(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        api_error = ApiError(error.status_code, "http", str(error.detail), headers=error.headers)
    else:
        api_error = api_error_of(error)
    endpoint_of(request).metrics.errored(api_error.code)
    return error_response(api_error)


async def registry_event(request: Request) -> Response:
    """Take a message of MLflow, that a release was moved, and look at the registry at once.

    Whoever knows the secret can only make the service look; what it then serves is what the registry says. Raises
    `ApiError`: 404 where no secret is set, 403 without a signature by it.
    """
    endpoint = request.app.state.endpoint
    settings = endpoint.settings
    if not settings.webhook_secret:
        raise ApiError(404, "no_webhooks", "this service takes no webhooks: PLIANT_WEBHOOK_SECRET is not set")
    body = b"".join(await read_body(request, EVENT_BYTES))
    if not verified(body, request.headers, settings.webhook_secret, time.time()):
        raise ApiError(403, "forbidden", "the message is not signed with this service's secret, or it is old")
    moved = moves_release(body, settings.system)
    if moved:
        endpoint.look_soon()
    return json_response({"looks": moved})
