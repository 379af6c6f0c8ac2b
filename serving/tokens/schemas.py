"""The shapes of the tokens endpoint's questions and answers, for its OpenAPI page alone; nothing is parsed with them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from serving.http.schemas import Artifact, ErrorAnswer, Refresh


class Prediction(BaseModel):
    """An output, and how it came about."""

    task: str
    label: str = Field(description="the most probable class")
    probabilities: dict[str, float] = Field(description="class -> probability")
    gamma: int = Field(description="tokens per layer: merged away (negative), plain (0), prompts added (positive)")
    batch_size: int = Field(description="requests that ran together")
    queue_seconds: float = Field(description="from arrival to launch")
    run_seconds: float = Field(description="on the device, for the whole batch")
    on_time: bool = Field(description="whether the deadline held")
    variant: str | None = Field(description="the model that answered, where the policy switches between several")
    versions: dict[str, int] = Field(
        description="registry versions of backbone and task that gave the answer, and of the profile that it was planned by"
    )


class TaskDescription(BaseModel):
    name: str
    classes: list[str]
    version: int | None = Field(description="none where tasks come with variants")
    digest: str | None
    accuracy: dict[str, float] = Field(
        description="gamma or variant -> share of the profiling split answered correctly"
    )


class TaskList(BaseModel):
    tasks: list[TaskDescription]


class Variant(BaseModel):
    name: str
    version: int
    digest: str
    loading: float = Field(description="seconds to load it, as measured when it was made")


class Status(BaseModel):
    ready: bool
    policy: str
    gammas: list[int] = Field(description="that the policy may use; numbers of variants where it switches between them")
    alias: str
    backbone: Artifact | None = None
    profile: Artifact | None = Field(None, description="by which launches are planned now")
    variants: list[Variant] | None = None
    refresh: Refresh
    refresh_seconds: float = Field(description="between two looks; 0 for none")
    tasks: list[TaskDescription]
    waiting: int = Field(description="requests that no worker has in hand")
    pending: int = Field(description="requests without an answer")


_ERRORS = {
    400: "The body cannot be parsed.",
    404: "Unknown task, or a task that the registry lacks.",
    409: "The task was made for another backbone, or tasks cannot be registered under this policy.",
    413: "The body is over the size limit.",
    415: "The body is neither multipart/form-data nor application/json.",
    422: "A field is missing, unknown or outside its limit; an image cannot be read or has too many pixels.",
    429: "As many requests wait as may. See Retry-After.",
    500: "A fault of the service.",
    503: "No way to answer before the deadline, or worker or registry are unavailable. See Retry-After.",
}

_TASK = {"type": "string", "description": "as listed by GET tasks"}
_DEADLINE = {"type": "number", "exclusiveMinimum": 0, "description": "seconds from arrival"}
_UTILITY = {"type": "number", "minimum": 0, "default": 1.0, "description": "worth of a right answer in time"}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route."""
    return {status: {"model": ErrorAnswer, "description": _ERRORS[status]} for status in statuses}


def question_body() -> dict[str, Any]:
    """The `openapi_extra` of predict."""
    form = _question({"type": "string", "format": "binary", "description": "the image file"})
    plain = _question({"type": "string", "format": "byte", "description": "the image file in base64"})
    return _body({"multipart/form-data": {"schema": form}, "application/json": {"schema": plain}})


def registration_body() -> dict[str, Any]:
    """The `openapi_extra` of registering a task."""
    properties = {
        "name": {"type": "string", "description": "of the task in the registry"},
        "alias": {"type": "string", "description": "of the version to serve; by default the service's own alias"},
        "version": {"type": "integer", "minimum": 1, "description": "instead of an alias"},
    }
    schema = {"type": "object", "required": ["name"], "additionalProperties": False, "properties": properties}
    return _body({"application/json": {"schema": schema}})


def _question(image: dict[str, Any]) -> dict[str, Any]:
    properties = {"image": image, "task": _TASK, "deadline": _DEADLINE, "utility": _UTILITY}
    required = ["image", "task", "deadline"]
    return {"type": "object", "required": required, "additionalProperties": False, "properties": properties}


def _body(content: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": content}}
