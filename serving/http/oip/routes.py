"""The routes of the Open Inference Protocol, below /v2, for any system: requests are read and answers written here.

The body of a request is decompressed and divided into JSON and binary data. Models parse and document the JSON object, and
document the answers.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, partial
from typing import Annotated, Any, Literal

import numpy as np
import orjson
from fastapi import FastAPI
from pydantic import AfterValidator, BaseModel, Field, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from pliant.errors import InputError
from pliant.serving.http.api_errors import ApiError, ErrorShape
from pliant.serving.http.app import (
    E,
    Handler,
    arrival,
    endpoint_of,
    errors,
    guarded,
    json_response,
    route_options,
)
from pliant.serving.http.bodies import (
    HEAVY,
    INLINE_BYTES,
    SHOWN,
    Body,
    Utf8,
    as_object,
    checked,
    content_type,
    ignored_header,
    parse,
    read_body,
    refused,
    schema_of,
    shorten,
    too_large,
)
from pliant.serving.http.oip.models import (
    BYTES,
    InferAnswer,
    InferRequest,
    Model,
    Parameters,
    RequestedOutput,
    Served,
    Tensor,
    TensorSpec,
    from_binary,
    from_json,
    texts,
    to_binary,
    to_json,
)
from pliant.serving.workers.helper_process import small_pieces
from pliant.version import VERSION

PREFIX = "/v2"
EXTENSIONS = ("binary_tensor_data", "classification")
SERVER, LIVE, READY = PREFIX, f"{PREFIX}/health/live", f"{PREFIX}/health/ready"
MODEL, MODEL_VERSION = f"{PREFIX}/models/{{model}}", f"{PREFIX}/models/{{model}}/versions/{{version}}"
MODEL_READY, INFER = "/ready", "/infer"

MAX_TENSORS = 16  # that a request may list
MAX_RANK = 8
MAX_SIZE = 2**62  # of one dimension
JSON_LENGTH = "Inference-Header-Content-Length"
TYPES = ("application/json", "application/octet-stream")
WINDOWS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
"""Content encodings -> the window bits of zlib, which say the format too."""
PIECE_BYTES = 256 * 1024  # that are decompressed before the event loop serves others: about a millisecond
STATUS: Mapping[int, int] = {422: 400, 424: 400}
"""Our status -> the protocol's, where it differs."""
Datatype = Literal[
    "BYTES", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64"
]


def _no_shared_memory(_region: object) -> None:
    raise refused("left out, as there is no shared memory", "given")


SharedMemory = SkipJsonSchema[Annotated[Any, AfterValidator(_no_shared_memory)]]
_DATA = {"type": "array", "items": {}, "description": "flat in row-major order, or nested as the shape says"}


class InputParameters(Body):
    binary_data_size: int | None = Field(None, ge=0)
    shared_memory_region: SharedMemory = None


class InputTensor(Body):
    name: str = Field(description="as the model's metadata list it")
    datatype: Datatype
    shape: Annotated[list[Annotated[int, Field(ge=0, le=MAX_SIZE)]], Field(max_length=MAX_RANK)]
    data: Annotated[Any, WithJsonSchema(_DATA)] = None
    parameters: InputParameters | None = None


class WantedParameters(Body):
    binary_data: bool | None = None
    classification: int | None = Field(None, ge=1, description="of scores: the best classes")
    shared_memory_region: SharedMemory = None


class WantedTensor(Body):
    name: str = Field(description="as the model's metadata list it")
    parameters: WantedParameters | None = None


class InferBody(Body):
    id: Utf8 | None = None
    inputs: Annotated[list[InputTensor], Field(min_length=1, max_length=MAX_TENSORS)]
    outputs: Annotated[list[WantedTensor], Field(max_length=MAX_TENSORS)] | None = None
    parameters: dict[str, Any] | None = None


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
                {"name": name, "in": "header", "required": False, "schema": schema} for name, schema in _HEADERS.items()
            ]
        app.add_api_route(path, handlers[path], name=path, **options)
    return {path: handler for path, handler in handlers.items() if path.endswith(INFER)}


def close_oip(app: FastAPI) -> None:
    """Answer what is below /v2 and has no route, once the app has all its routes, in the protocol's shape."""
    routes = app.router.routes
    routes.append(UnknownRoute([route for route in routes if getattr(route, "path", "") in PATHS]))


def create_root(app: FastAPI, served: Served[E]) -> FastAPI:
    """Return the app to be mounted at the root, beside `app` at /v1, with the routes below /v2."""
    root = FastAPI(title=app.title, version=app.version, docs_url=None, redoc_url=None, openapi_url=None)
    root.state = app.state
    hot = add_oip(root, served)
    root.router.routes[:0] = [Route(path, handler, methods=["POST"]) for path, handler in hot.items()]
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
    # Many bytes of tensors take long to check, too.
    request.scope[HEAVY] = request.scope.get(HEAVY, False) or len(binary) > INLINE_BYTES
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
    return json_response(content) if healthy else error_response(ApiError(503, "not_ready", message))


def error_response(api_error: ApiError) -> Response:
    """Return an error in the protocol's shape."""
    status = STATUS.get(api_error.status, api_error.status)
    return json_response({"error": str(api_error)}, status, api_error.headers)


def shape_of(path: str, other: ErrorShape) -> ErrorShape:
    """Return the error shape of a path: the protocol's for those of its own, else the `other`."""
    return error_response if path == PREFIX or path.startswith(PREFIX + "/") else other


def check_type(request: Request) -> None:
    """Raise `ApiError` (415) unless the content type is one of `TYPES`.

    Triton's client sends none. A page of another website can send a body without a type, too, and without asking first
    (CORS); its browser then names the page in the header Origin.
    """
    kind = content_type(request)
    if kind not in TYPES and (kind or "origin" in request.headers):
        message = f"content-type is {kind[:SHOWN] or 'missing'}, but must be {' or '.join(TYPES)}"
        raise ApiError(415, "unsupported_media_type", message, "content-type")


async def read_parts(request: Request, max_bytes: int) -> tuple[Sequence[bytes], memoryview]:
    """Return the JSON of a body, in pieces, and the bytes after it.

    Raises `ApiError`: 413 for more than `max_bytes`, also once it is decompressed, 415 for an unknown compression, 400 for a
    broken one; `InputError` unless the JSON is as long as the header `JSON_LENGTH` says.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower() or "identity"
    if encoding not in ("identity", *WINDOWS):
        message = f"content-encoding is {encoding[:SHOWN]}, but must be {', '.join(WINDOWS)} or identity"
        headers = {"accept-encoding": ", ".join(WINDOWS)}
        raise ApiError(415, "unsupported_encoding", message, "content-encoding", headers=headers)
    pieces: Sequence[bytes] = await read_body(request, max_bytes)
    if encoding in WINDOWS:
        pieces = await decompress(pieces, WINDOWS[encoding], max_bytes)
    announced = request.headers.get(JSON_LENGTH)
    if announced is None:
        return pieces, memoryview(b"")
    size = sum(map(len, pieces))
    is_number = announced.isascii() and announced.isdecimal() and len(announced) <= len(str(size))
    if not is_number or int(announced) > size:
        limit = f"a whole number of bytes up to {size}, as the body has"
        raise InputError(JSON_LENGTH.lower(), shorten(announced), limit)
    body = b"".join(pieces) if size <= INLINE_BYTES else await asyncio.to_thread(b"".join, pieces)
    return [body[: int(announced)]], memoryview(body)[int(announced) :]


async def decompress(pieces: Sequence[bytes], window: int, max_bytes: int) -> list[bytes]:
    """Return the content of a compressed body, in pieces; others are served in between.

    Raises `ApiError`: 413 as soon as there are more than `max_bytes`, 400 if it is broken or more than one stream.
    """
    stream, content, size = zlib.decompressobj(window), [], 0
    for piece in small_pieces(pieces, PIECE_BYTES):
        rest: bytes | memoryview = piece
        while True:
            if stream.eof:
                raise _broken("there are bytes after its end")
            try:
                content.append(stream.decompress(rest, PIECE_BYTES))
            except zlib.error as error:
                raise _broken(str(error)) from None
            size += len(content[-1])
            if size > max_bytes:
                raise too_large("longer once it is decompressed", max_bytes)
            await asyncio.sleep(0)
            rest = stream.unconsumed_tail or stream.unused_data
            if not rest and (stream.eof or len(content[-1]) < PIECE_BYTES):
                break
    if not stream.eof:
        raise _broken("its end is missing")
    return content


def _broken(why: str) -> ApiError:
    return ApiError(400, "malformed", f"body cannot be decompressed: {why[:SHOWN]}", "body")


def read_request(model: Model, fields: Mapping[str, Any], binary: memoryview) -> InferRequest:
    """Return the request for a model. `binary`: the bytes after the JSON.

    Raises `InputError` for what does not fit the model or does not add up, `ApiError` (413) for too many elements.
    """
    body = InferBody.read(fields)
    given = body.parameters
    parameters = model.parameters.read(given, "parameters") if given else _no_parameters(model.parameters)
    ignored = [name for name in fields if name not in InferBody.__pydantic_fields__]
    ignored += [name for name in given or () if name not in model.parameters.__pydantic_fields__]
    outputs = dict[str, RequestedOutput]()
    for index, entry in enumerate(body.outputs or ()):
        place, own = f"outputs[{index}]", entry.parameters or WantedParameters.read({})
        name = _spec(place, entry.name, model.outputs, outputs).name
        if own.classification is not None and name != model.scores:
            limit = f"given for {model.scores} alone" if model.scores else "left out, as this model gives no classes"
            raise InputError(f"{place}.parameters.classification", f"given for {name}", limit)
        is_binary = parameters.binary_data_output if own.binary_data is None else own.binary_data
        outputs[name] = RequestedOutput(name, is_binary, own.classification)
    every = (RequestedOutput(spec.name, parameters.binary_data_output) for spec in model.outputs)
    inputs, wanted = _inputs(model, body.inputs, binary), tuple(outputs.values() or every)
    return InferRequest(model, body.id, inputs, wanted, parameters, tuple(ignored))


@cache
def _no_parameters(kind: type[Parameters]) -> Parameters:
    return kind.read({})


def _spec(place: str, name: str, specs: Sequence[TensorSpec], given: Mapping[str, object]) -> TensorSpec:
    """Return the model's tensor of this name. Raises `InputError` if there is none, or it is `given` already."""
    spec = next((spec for spec in specs if spec.name == name), None)
    if spec is None:
        raise InputError(f"{place}.name", shorten(name), f"one of {', '.join(spec.name for spec in specs)}")
    if name in given:
        raise InputError(f"{place}.name", f"{name} once more", "given once")
    return spec


def _inputs(model: Model, entries: Sequence[InputTensor], binary: memoryview) -> Mapping[str, Tensor]:
    at, tensors = 0, dict[str, Tensor]()
    for index, entry in enumerate(entries):
        place, shape, datatype = f"inputs[{index}]", tuple(entry.shape), entry.datatype
        spec = _spec(place, entry.name, model.inputs, tensors)
        size = None if entry.parameters is None else entry.parameters.binary_data_size
        if size is not None:
            name, left = f"{place}.parameters.binary_data_size", len(binary) - at
            if entry.data is not None:
                raise InputError(name, "given together with data", "given without it")
            if size > left:
                limit = f"a whole number from 0 to {left}, the bytes that are left in the body"
                raise InputError(name, shorten(size), limit)
        if not any(form.fits(datatype, shape) for form in spec.forms):
            form = f"{shorten(datatype)} {shorten(entry.shape)}"
            raise InputError(f"datatype and shape of {spec.name}", form, " or ".join(map(str, spec.forms)))
        if datatype == BYTES and shape:
            check_elements(spec.name, shape[0], model.max_count)
        if size is not None:
            tensors[spec.name] = from_binary(spec.name, datatype, shape, binary[at : at + size])
            at += size
        elif entry.data is None:
            limit = "given, or binary_data_size among the tensor's parameters"
            raise InputError(f"{place}.data", "missing", limit)
        else:
            tensors[spec.name] = from_json(spec.name, datatype, shape, entry.data)
    if at < len(binary):
        raise InputError("body", f"{len(binary) - at} bytes longer", "as long as its JSON and each binary_data_size")
    for spec in model.inputs:
        if spec.name not in tensors and not spec.optional:
            raise InputError("inputs", f"without {spec.name}", "given with all tensors that the model's metadata list")
    return tensors


def check_elements(name: str, count: int, most: int) -> None:
    """Raise `ApiError` (413) for a tensor of more than `most` elements."""
    if count > most:
        raise ApiError(413, "too_many_elements", f"{name} has {count} elements, but must have at most {most}", name)


def infer_response(request: InferRequest, answer: InferAnswer) -> Response:
    """Return the answer with the outputs that the request names, as JSON and, where it says so, as binary data after it.

    Raises `ApiError` (503) if an output is missing.
    """
    tensors = {tensor.name: tensor for tensor in answer.outputs}
    entries, binary = [], []
    for output in request.outputs:
        if output.name not in tensors:
            raise replaced(request.model)
        tensor = tensors[output.name]
        if output.top_classes is not None:
            tensor = best_classes(tensor, request.model.classes, output.top_classes)
        entry: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
        if output.binary:
            binary.append(to_binary(tensor))
            entry["parameters"] = {"binary_data_size": len(binary[-1])}
        else:
            entry["data"] = to_json(tensor)
        entries.append(entry)
    content = orjson.dumps(
        {
            "model_name": request.model.name,
            **({} if answer.version is None else {"model_version": answer.version}),
            **({} if request.id is None else {"id": request.id}),
            "parameters": dict(answer.parameters),
            "outputs": entries,
        },
        option=orjson.OPT_SERIALIZE_NUMPY,
    )
    headers = ignored_header(request.ignored)
    if not any(output.binary for output in request.outputs):
        return Response(content, 200, headers, media_type=TYPES[0])
    headers[JSON_LENGTH] = str(len(content))
    return Response(b"".join((content, *binary)), 200, headers, media_type=TYPES[1])


def replaced(model: Model) -> ApiError:
    """Return the error for a model that another took the place of, with other outputs, while it answered."""
    return ApiError(503, "replaced", f"the model {model.name} was replaced while it answered; try again")


def best_classes(scores: Tensor, classes: Sequence[str], top: int) -> Tensor:
    """Return the best classes of each row as texts SCORE:INDEX:CLASS, best first."""
    rows = np.asarray(scores.elements).reshape(scores.shape)
    top = min(top, rows.shape[-1])
    best = [
        f"{row[index]:f}:{index}" + (f":{classes[index]}" if classes else "")
        for row in rows
        for index in np.argsort(-row, kind="stable")[:top].tolist()
    ]
    return texts(scores.name, best, (len(rows), top))


_REQUEST = schema_of(InferBody)
_REQUEST["properties"]["parameters"] = schema_of(Parameters)
_BINARY = {
    "type": "string",
    "format": "binary",
    "description": f"JSON of {JSON_LENGTH} bytes, and binary data after it",
}
_HEADERS: Mapping[str, Mapping[str, Any]] = {
    JSON_LENGTH: {"type": "integer", "minimum": 0},
    "Content-Encoding": {"type": "string", "enum": ["gzip", "deflate", "identity"]},
}
_Route = tuple[Callable[[Served[Any], Request, Any], Awaitable[Response]], str, Any, tuple[int, ...]]
_RUN = "Run a model, with tensors in JSON or as binary data"
_OF_A_MODEL: Mapping[str, _Route] = {
    "": (_model, "A model with its tensors", ModelMetadata, (404,)),
    MODEL_READY: (_model_ready, "Whether a model can answer", ModelReady, (404, 503)),
    INFER: (_infer, _RUN, InferenceAnswer, (400, 404, 413, 415, 429, 500, 503)),
}
_ROUTES: Mapping[str, _Route] = {
    SERVER: (_server, "The server, as the Open Inference Protocol describes it", ServerMetadata, ()),
    LIVE: (_live, "Whether the service works, or recovers by itself", Live, (503,)),
    READY: (_ready, "Whether the service can answer", Ready, (503,)),
    **{base + end: route for base in (MODEL, MODEL_VERSION) for end, route in _OF_A_MODEL.items()},
}
"""Handler, summary, answer and errors of each route; those of a model by what follows its name."""
PATHS = tuple(_ROUTES)
