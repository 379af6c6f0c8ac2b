"""The paths of the Open Inference Protocol, its answers, and how the OpenAPI page documents them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from serving.http.bodies import schema_of
from serving.http.oip.body import TYPES
from serving.http.oip.models import Parameters
from serving.http.oip.request import InferBody
from serving.http.oip.response import JSON_LENGTH, PREFIX

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
_ERRORS = {
    400: "The body is not what the protocol says, or a tensor or parameter does not fit the model.",
    404: "The model, or its version, is not served.",
    413: "The body, also once it is decompressed, a tensor or a text exceeds its limit.",
    415: "Another content type or content encoding.",
    429: "Overload. See Retry-After.",
    500: "A fault of the service.",
    503: "The deadline cannot be met, or a device failed. See Retry-After.",
}
_SUMMARIES: Mapping[str, tuple[str, Any, tuple[int, ...]]] = {
    SERVER: ("The server, as the Open Inference Protocol describes it", ServerMetadata, ()),
    LIVE: ("Whether the service works, or recovers by itself", Live, (503,)),
    READY: ("Whether the service can answer", Ready, (503,)),
    "": ("A model with its tensors", ModelMetadata, (404,)),
    MODEL_READY: ("Whether a model can answer", ModelReady, (404, 503)),
    INFER: ("Run a model, with tensors in JSON or as binary data", InferenceAnswer, tuple(_ERRORS)),
}


def route_options(path: str) -> dict[str, Any]:
    """Return the arguments of `add_api_route` for one of `PATHS`."""
    kind = path if path in _SUMMARIES else path.removeprefix(MODEL_VERSION).removeprefix(MODEL)
    summary, answer, statuses = _SUMMARIES[kind]
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in ("model", "version")
        if f"{{{name}}}" in path
    ]
    options: dict[str, Any] = {
        "methods": ["POST" if kind == INFER else "GET"],
        "summary": summary,
        "tags": ["open inference protocol"],
        "responses": {200: {"model": answer} if answer else {}} | _responses(statuses),
        "openapi_extra": {"parameters": parameters},
    }
    if kind == INFER:
        parameters += [{"name": name, "in": "header", "required": False, "schema": schema} for name, schema in _HEADERS]
        schemas = dict(zip(TYPES, (_REQUEST, _BINARY), strict=True))
        options["responses"][200]["content"] = {TYPES[1]: {"schema": _BINARY}}  # beside the model's, in JSON
        content = {media_type: {"schema": schema} for media_type, schema in schemas.items()}
        options["openapi_extra"]["requestBody"] = {"required": True, "content": content}
    return options


def _responses(statuses: tuple[int, ...]) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": OipError, "description": _ERRORS[status]} for status in statuses}
