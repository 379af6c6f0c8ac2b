"""Answers that several systems share, as the OpenAPI pages document them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


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


def refresh_errors() -> dict[int | str, dict[str, Any]]:
    """Return the errors of POST /refresh, as `responses` of its route."""
    sentences = {
        403: "The key lacks the role admin.",
        415: "The content type is not application/json, which it must be also without a body.",
        500: "A fault of the service.",
        503: "The registry or a worker is unavailable. See Retry-After.",
    }
    return {status: {"model": ErrorAnswer, "description": sentence} for status, sentence in sentences.items()}
