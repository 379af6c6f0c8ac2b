"""The parts of the app that all services share: fast routes, the OpenAPI page with the answers that several systems have,
POST /refresh, the shape of errors, and what every answer goes through.

The service puts its endpoint into `app.state.endpoint` before it accepts requests.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from inspect import isawaitable
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from pydantic import BaseModel, Field
from starlette.datastructures import State
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pliant.errors import InputError, PliantError
from pliant.registry.webhooks import moves_release, verified
from pliant.serving.http.access.access import check_admin, client_of
from pliant.serving.http.api_errors import ApiError, ErrorShape, api_error_of, error_response
from pliant.serving.http.bodies import Body, BodyParser, read_body, request_body, shorten
from pliant.serving.request_context import REQUEST_ID, REQUEST_KEY

ARRIVED = "pliant.arrived"
"""Key of an ASGI scope: when the request came, on the clock of the event loop."""

ADMIN = ("/refresh", "/tasks", "/outcomes", "/registry-events")
"""Endings of POST paths that ask for no prediction."""
QUESTIONS = "/v1/questions/"
"""Beginning of POST paths that end with a task and ask for no prediction (serving/cascade/questions.py)."""

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


class Artifact(BaseModel):
    version: int
    digest: str


class Refresh(BaseModel):
    """The result of the last poll of the registry."""

    outcome: str = Field(description="unchanged, changed, held (the new versions do not fit together yet) or failed")
    message: str
    changed: dict[str, int] = Field(description="registered model -> version, of the versions that are now served")


class CommonStatus(BaseModel):
    """The part of the status that all systems have."""

    ready: bool
    alias: str
    generation: int = Field(description="number of the present generation, from 1")
    device: str = Field(description="what the settings name, or auto stands for; several are separated by commas")
    leaving: int = Field(description="former generations that still answer requests")
    trial: dict[str, Any] | None = Field(description="the release that is being tried, its share and figures so far")
    watch: dict[str, Any] | None = Field(description="streams that are watched, alarms, and estimated accuracies")
    standby: int | None = Field(description="the former generation that is still loaded, for a rollback at once")
    refresh: Refresh
    release: int | None = Field(description="number of the release that is served; null in a registry without releases")
    refresh_seconds: float = Field(description="seconds between two polls of the registry; 0: none")
    waiting: int = Field(description="requests (or outputs of requests) that the device has not started")
    pending: int = Field(description="requests (or outputs of requests) that have not ended")


class DeviceFallback(BaseModel):
    kind: str = Field(description="what failed: capture (of a CUDA graph), package, memory or precision")
    reason: str


class ServingDevice(BaseModel):
    name: str
    up: bool = Field(description="false while its process is restarted; the other devices serve meanwhile")
    fallbacks: list[DeviceFallback] = Field(description="slower ways that its process has taken since it was started")


class Error(BaseModel):
    code: str
    field: str | None = Field(description="the field of the request that is wrong, if any")
    message: str = Field(description="a sentence that names the field, the value and the limit")


class ErrorAnswer(BaseModel):
    error: Error


class Score(BaseModel):
    score: float
    label: str


class TeiError(BaseModel):
    error: str
    error_type: str


class OpenaiError(BaseModel):
    message: str
    type: str
    param: str | None
    code: str


class OpenaiErrorAnswer(BaseModel):
    error: OpenaiError


class OpenaiModel(BaseModel):
    id: str
    object: str = "model"
    created: int
    owned_by: str


class OpenaiModels(BaseModel):
    object: str = "list"
    data: list[OpenaiModel]


ERRORS: Mapping[int, str] = {
    400: "The body is not JSON, or, where an interface has no 422, a field is outside its limit.",
    403: "The key lacks the role admin.",
    404: "What the request names is not served, or not known.",
    408: "The client did not read the stream.",
    409: "The task was made for another backbone, or another label was reported for this id.",
    413: "The body, a text, a list or a tensor exceeds its limit.",
    415: "The content type or the content encoding is none that the route takes.",
    422: "A field is missing, unknown, given twice or outside its limit, or an image cannot be read.",
    424: "The model does not do this, or it failed.",
    429: "Overload. See Retry-After.",
    500: "A fault of the service.",
    503: "The deadline cannot be met, or a device, a worker or the registry is unavailable. See Retry-After.",
}
Responses = dict[int | str, dict[str, Any]]


def errors(*statuses: int, model: type[BaseModel] = ErrorAnswer) -> Responses:
    """Return the errors that a route may answer, as its `responses`."""
    return {status: {"model": model, "description": ERRORS[status]} for status in statuses}


def path_parameters(path: str) -> list[dict[str, Any]]:
    """Return the `parameters` of a route for the names in its path."""
    names = re.findall(r"\{(\w+)", path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def route_options(
    path: str, summary: str | None, tag: str, answer: Any, responses: Responses, body: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the arguments of `add_api_route` for a route, which is a POST if it has a body. No `answer`: it is empty."""
    options: dict[str, Any] = {
        "methods": ["GET" if body is None else "POST"],
        "summary": summary,
        "tags": [tag],
        "responses": {200: {} if answer is None else {"model": answer}, **responses},
        "openapi_extra": {"parameters": path_parameters(path), **({} if body is None else {"requestBody": body})},
    }
    return options if answer is not None else {**options, "response_class": Response}


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
    app.add_api_route("/status", status, methods=["GET"], summary=summary, responses={200: {"model": schema}})


def asks_for_prediction(path: str) -> bool:
    """Whether a POST to this path is a request for the scheduler, which an overloaded service may turn away."""
    return not path.endswith(ADMIN) and not path.startswith(QUESTIONS)


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


async def status(request: Request) -> Response:
    """Answer with the status of the service."""
    content = endpoint_of(request).status()
    return json_response(await content if isawaitable(content) else content)


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


ID_HEADER = b"x-request-id"
KEY_HEADER = b"x-pliant-key"
MAX_CHARACTERS = 128
PRINTABLE = frozenset(range(0x20, 0x7F))

PLAIN = b"text/plain"


class RequestIdMiddleware:
    """Answers with the request's x-request-id.

    A request without one gets a new one, and so does a request with several, or with one of more than `MAX_CHARACTERS`
    characters or others than printable ones of ASCII.

    Requests with the same x-pliant-key stay with one release while another one is tried; without it each goes by chance.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        id = request_id(scope["headers"])
        keys = (value.decode("latin-1") for name, value in scope["headers"] if name == KEY_HEADER)
        REQUEST_KEY.set(next(keys, ""))
        REQUEST_ID.set(id.decode())

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                others = [header for header in message.get("headers", ()) if header[0].lower() != ID_HEADER]
                message = {**message, "headers": [*others, (ID_HEADER, id)]}
            await send(message)

        await self._app(scope, receive, send_with_id)


def request_id(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the id that a request's headers hold, if it can be an answer's; else a new one of 32 characters."""
    ids = [value for name, value in headers if name == ID_HEADER]
    if len(ids) == 1 and 0 < len(ids[0]) <= MAX_CHARACTERS and PRINTABLE.issuperset(ids[0]):
        return ids[0]
    return uuid4().hex.encode()


class UnknownPathMiddleware:
    """Replaces a 404 in plain text, which no route of a service gives, by an error in the shape of the path.

    BentoML mounts the app by a pattern that no path with a line break fits, so the app's own routes cannot answer all.

    `state` has the service's `shape_of`, by path, and its endpoint, which counts the error.
    """

    def __init__(self, app: ASGIApp, state: State) -> None:
        self._app, self._state = app, state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_unknown = False

        async def send_unless_unknown(message: Message) -> None:
            nonlocal is_unknown
            if message["type"] == "http.response.start" and message["status"] == 404:
                is_unknown = any(
                    name == b"content-type" and kind.startswith(PLAIN) for name, kind in message["headers"]
                )
            if not is_unknown:
                await send(message)

        await self._app(scope, receive, send_unless_unknown)
        if is_unknown:
            error = ApiError(404, "http", f"{scope['method']} {shorten(scope['path'])}: there is no such path")
            self._state.endpoint.metrics.errored(error.code)
            await self._state.shape_of(scope["path"])(error)(scope, receive, send)
