"""The routes of the Open Inference Protocol, below /v2, for any system, and their answers as the page documents them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from pliant.serving.http.api_errors import ApiError, json_response
from pliant.serving.http.app import E, Handler, arrival, docs_page, endpoint_of, guarded
from pliant.serving.http.bodies import as_object, checked, parse, schema_of, shorten
from pliant.serving.http.oip.models import Model, Parameters, Served
from pliant.serving.http.oip.request import TYPES, InferBody, check_type, note_weight, read_parts, read_request
from pliant.serving.http.oip.response import JSON_LENGTH, PREFIX, error_response, infer_response
from pliant.serving.http.schemas import errors, route_options
from pliant.version import VERSION

EXTENSIONS = ("binary_tensor_data", "classification")
SERVER, LIVE, READY = PREFIX, f"{PREFIX}/health/live", f"{PREFIX}/health/ready"
MODEL, MODEL_VERSION = f"{PREFIX}/models/{{model}}", f"{PREFIX}/models/{{model}}/versions/{{version}}"
MODEL_READY, INFER = "/ready", "/infer"

_REQUEST = schema_of(InferBody)
_REQUEST["properties"]["parameters"] = schema_of(Parameters)
_BINARY = {
    "type": "string",
    "format": "binary",
    "description": f"JSON of {JSON_LENGTH} bytes, and binary data after it",
}
_HEADERS = (
    (JSON_LENGTH, {"type": "integer", "minimum": 0}),
    ("Content-Encoding", {"type": "string", "enum": ["gzip", "deflate", "identity"]}),
)
Handle = Callable[[Served[Any], Request, Any], Awaitable[Response]]


class OipError(BaseModel):
    error: str = Field(description="a sentence that names the field, the value and the limit")


class ServerMetadata(BaseModel):
    name: str
    version: str = Field(description="of Pliant")
    extensions: list[str]


class Live(BaseModel):
    live: bool


class Ready(BaseModel):
    ready: bool


class ModelReady(BaseModel):
    name: str
    ready: bool


class TensorParameters(BaseModel):
    classes: list[str] = Field(description="of the last dimension")


class TensorMetadata(BaseModel):
    name: str
    datatype: str
    shape: list[int] = Field(description="-1: of any size")
    parameters: TensorParameters | None = None


class ModelMetadata(BaseModel):
    name: str
    versions: list[str] = Field(description="the version that is served; none if the model has no version of its own")
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class OutputParameters(BaseModel):
    binary_data_size: int = Field(description="bytes of the tensor after the JSON")


class OutputTensor(BaseModel):
    name: str
    datatype: str
    shape: list[int]
    data: list[float | bool | str] | None = Field(None, description="in row-major order, unless they come as bytes")
    parameters: OutputParameters | None = None


class InferenceAnswer(BaseModel):
    model_name: str
    model_version: str | None = Field(None, description="left out if parts of the answer come from several versions")
    id: str | None = Field(None, description="of the request")
    parameters: dict[str, float] = Field(description="queue_seconds and run_seconds: the longest of any element")
    outputs: list[OutputTensor]


def add_oip(app: FastAPI, served: Served[E]) -> dict[str, Handler]:
    """Add the routes of a system, and return the handlers of those that infer, by path. Call `close_oip` at the end."""
    handlers = dict[str, Handler]()
    for path, (handle, summary, answer, statuses) in _ROUTES.items():
        handlers[path] = guarded(partial(handle, served), endpoint_of, error_response)
        infers = path.endswith(INFER)
        kinds = dict(zip(TYPES, ({"schema": _REQUEST}, {"schema": _BINARY}), strict=True))
        body = {"required": True, "content": kinds} if infers else None
        responses = errors(*statuses, model=OipError)
        options = route_options(path, summary, "open inference protocol", answer, responses, body)
        if infers:
            options["responses"][200]["content"] = {TYPES[1]: {"schema": _BINARY}}  # beside the model's, in JSON
            options["openapi_extra"]["parameters"] += [
                {"name": name, "in": "header", "required": False, "schema": schema} for name, schema in _HEADERS
            ]
        app.add_api_route(path, handlers[path], name=path, **options)
    return {path: handler for path, handler in handlers.items() if path.endswith(INFER)}


def close_oip(app: FastAPI) -> None:
    """Answer what is below /v2 and has no route, once the app has all its routes, in the protocol's shape."""
    app.router.routes.append(
        UnknownRoute([route for route in app.router.routes if getattr(route, "path", "") in PATHS])
    )


def create_root(app: FastAPI, served: Served[E]) -> FastAPI:
    """Return the app to be mounted at the root, beside `app` at /v1, with the routes below /v2 and a page about them."""
    root = FastAPI(title=app.title, version=app.version, docs_url=None, redoc_url=None)
    root.state = app.state
    hot = add_oip(root, served)
    root.router.routes[:0] = [Route(path, handler, methods=["POST"]) for path, handler in hot.items()]
    root.add_api_route("/docs", docs_page("v1/swagger"), include_in_schema=False)
    close_oip(root)
    return root


class UnknownRoute(BaseRoute):
    """Answers all paths below /v2 that no route before it does: 405 where one of `known` has the path, else 404."""

    def __init__(self, known: list[BaseRoute]) -> None:
        self._known = known

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        is_below = scope["type"] == "http" and (path == PREFIX or path.startswith(PREFIX + "/"))
        return (Match.FULL if is_below else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        allowed = set[str]()
        for route in self._known:
            if route.matches(scope)[0] is Match.PARTIAL:
                allowed |= getattr(route, "methods", set())
        request = Request(scope, receive)
        what = f"{request.method} {shorten(request.url.path)}"
        if allowed:
            methods = ", ".join(sorted(allowed))
            error = ApiError(405, "http", f"{what}: the method must be {methods}", headers={"allow": methods})
        else:
            error = ApiError(404, "http", f"{what}: there is no such path")
        endpoint_of(request).metrics.errored(error.code)
        await error_response(error)(scope, receive, send)


async def _live(_served: Served[E], _request: Request, endpoint: E) -> Response:
    return _health(endpoint.alive, {"live": True}, "the service cannot recover by itself")


async def _ready(_served: Served[E], _request: Request, endpoint: E) -> Response:
    return _health(endpoint.ready, {"ready": True}, "the service is not ready")


async def _server(served: Served[E], _request: Request, _endpoint: E) -> Response:
    return json_response({"name": served.server, "version": VERSION, "extensions": list(EXTENSIONS)})


async def _model(served: Served[E], request: Request, endpoint: E) -> Response:
    return json_response(_described(served, request, endpoint).to_dict())


async def _model_ready(served: Served[E], request: Request, endpoint: E) -> Response:
    model = _described(served, request, endpoint)
    return _health(endpoint.ready, {"name": model.name, "ready": True}, f"the model {model.name} is not ready")


async def _infer(served: Served[E], request: Request, endpoint: E) -> Response:
    arrived = arrival(request, endpoint)
    check_type(request)
    pieces, binary = await read_parts(request, endpoint.settings.max_body_bytes)
    fields = as_object(await parse(request, pieces))
    note_weight(request, binary)
    model = _described(served, request, endpoint)
    body = await checked(request, read_request, model, fields, binary)
    answer = await served.infer(request, endpoint, body, arrived)
    if "version" in request.path_params and answer.version != model.version:
        raise _unknown_version(model, request.path_params["version"])
    return infer_response(body, answer)


def _described(served: Served[E], request: Request, endpoint: E) -> Model:
    """Return the model in the path. Raises `ApiError` (404) if it is not served, or not in the version of the path."""
    model = served.describe(endpoint, request.path_params["model"])
    if request.path_params.get("version", model.version) != model.version:
        raise _unknown_version(model, request.path_params["version"])
    return model


def _unknown_version(model: Model, wanted: str) -> ApiError:
    known = f"its version {model.version} is" if model.version else "it has no version of its own"
    message = f"version {shorten(wanted)} of the model {model.name} is not served: {known}"
    return ApiError(404, "unknown_version", message, "version")


def _health(healthy: bool, content: Mapping[str, Any], message: str) -> Response:
    """Return the answer about health: some clients read its status (Triton's), others its content (KServe's)."""
    if healthy:
        return json_response(content)
    return error_response(ApiError(503, "not_ready", message))


_OF_A_MODEL: Mapping[str, tuple[Handle, str, Any, tuple[int, ...]]] = {
    "": (_model, "A model with its tensors", ModelMetadata, (404,)),
    MODEL_READY: (_model_ready, "Whether a model can answer", ModelReady, (404, 503)),
    INFER: (
        _infer,
        "Run a model, with tensors in JSON or as binary data",
        InferenceAnswer,
        (400, 404, 413, 415, 429, 500, 503),
    ),
}
_ROUTES: Mapping[str, tuple[Handle, str, Any, tuple[int, ...]]] = {
    SERVER: (_server, "The server, as the Open Inference Protocol describes it", ServerMetadata, ()),
    LIVE: (_live, "Whether the service works, or recovers by itself", Live, (503,)),
    READY: (_ready, "Whether the service can answer", Ready, (503,)),
    **{base + end: route for base in (MODEL, MODEL_VERSION) for end, route in _OF_A_MODEL.items()},
}
"""Handler, summary, answer and errors of each route; those of a model by what follows its name."""
PATHS = tuple(_ROUTES)
