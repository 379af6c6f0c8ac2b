"""Errors of the API: which status, code and message a client gets for which exception."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response

from pliant.errors import ArtifactError, BackboneError, InputError, PliantError, RegistryError, WorkerError
from serving.answers import Rejected

RETRY_AFTER = "1"  # seconds, about the time in which a queue empties or its requests expire


class ApiError(Exception):
    """An error with an HTTP status. `code` is for programs; `message` is for people and names field, value and limit."""

    def __init__(self, status: int, code: str, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.field = status, code, field


def api_error_of(error: Exception) -> ApiError:
    """Return the API error that tells a client of an exception."""
    match error:
        case ApiError():
            return error
        case InputError():
            return ApiError(422, "invalid", str(error), error.field)
        case BackboneError():
            return ApiError(409, "other_backbone", str(error), "name")
        case ArtifactError():
            return ApiError(503, "artifact_unusable", str(error))
        case RegistryError():
            return ApiError(503, "registry_unavailable", str(error))
        case WorkerError():
            return ApiError(503, "worker_unavailable", str(error))
        case PliantError():
            return ApiError(500, "internal", str(error))
    return ApiError(500, "internal", "an unexpected error; see the service's log")


def api_error_of_drop(rejected: Rejected, deadline: float) -> ApiError:
    """Return the API error for a request that the scheduler rejected. `deadline` is in seconds from arrival."""
    match rejected.reason:
        case "full":
            return ApiError(429, "full", "the queue is full; try again later")
        case "late":
            message = f"deadline is {deadline:g} seconds, but the queue is too long to answer within it"
            return ApiError(503, "late", message, "deadline")
    return ApiError(503, rejected.reason, "the worker failed, and the deadline leaves no time for another attempt")


def error_content(api_error: ApiError) -> dict[str, Any]:
    """Return an error as JSON: a response's body, or one entry of a list of answers."""
    return {"error": {"code": api_error.code, "field": api_error.field, "message": str(api_error)}}


def error_response(api_error: ApiError) -> Response:
    """Return an error as a response; 429 and 503 have the header Retry-After."""
    headers = {"retry-after": RETRY_AFTER} if api_error.status in (429, 503) else None
    return json_response(error_content(api_error), api_error.status, headers)


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON response."""
    return Response(json.dumps(content), status, headers, media_type="application/json")
