"""Answers that several systems share, as the OpenAPI pages document them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field
from starlette.responses import Response


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
