"""The paths of the Open Inference Protocol, its answers, and how the OpenAPI page documents them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from pliant.serving.http.bodies import schema_of
from pliant.serving.http.oip.body import TYPES
from pliant.serving.http.oip.models import Parameters
from pliant.serving.http.oip.request import InferBody
from pliant.serving.http.oip.response import JSON_LENGTH, PREFIX
from pliant.serving.http.schemas import errors, route_options

EXTENSIONS = ("binary_tensor_data", "classification")
SERVER, LIVE, READY = PREFIX, f"{PREFIX}/health/live", f"{PREFIX}/health/ready"
MODEL, MODEL_VERSION = f"{PREFIX}/models/{{model}}", f"{PREFIX}/models/{{model}}/versions/{{version}}"
MODEL_READY, INFER = "/ready", "/infer"
_MODEL_PATHS = tuple(base + end for base in (MODEL, MODEL_VERSION) for end in ("", MODEL_READY, INFER))
PATHS = (SERVER, LIVE, READY, *_MODEL_PATHS)


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
_ROUTES: Mapping[str, tuple[str, Any, tuple[int, ...]]] = {
    SERVER: ("The server, as the Open Inference Protocol describes it", ServerMetadata, ()),
    LIVE: ("Whether the service works, or recovers by itself", Live, (503,)),
    READY: ("Whether the service can answer", Ready, (503,)),
    "": ("A model with its tensors", ModelMetadata, (404,)),
    MODEL_READY: ("Whether a model can answer", ModelReady, (404, 503)),
    INFER: (
        "Run a model, with tensors in JSON or as binary data",
        InferenceAnswer,
        (400, 404, 413, 415, 429, 500, 503),
    ),
}
"""Summary, answer and errors of each route; those of a model by what follows its name."""


def options_of(path: str) -> dict[str, Any]:
    """Return the arguments of `add_api_route` for one of `PATHS`."""
    kind = path if path in _ROUTES else path.removeprefix(MODEL_VERSION).removeprefix(MODEL)
    summary, answer, statuses = _ROUTES[kind]
    kinds = dict(zip(TYPES, ({"schema": _REQUEST}, {"schema": _BINARY}), strict=True))
    body = {"required": True, "content": kinds} if kind == INFER else None
    responses = errors(*statuses, model=OipError)
    options = route_options(path, summary, "open inference protocol", answer, responses, body)
    if kind == INFER:
        options["responses"][200]["content"] = {TYPES[1]: {"schema": _BINARY}}  # beside the model's, in JSON
        options["openapi_extra"]["parameters"] += [
            {"name": name, "in": "header", "required": False, "schema": schema} for name, schema in _HEADERS
        ]
    return options
