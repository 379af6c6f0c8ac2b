"""Why a request gets no output, as HTTP says it: one shape of error for all endpoints.

Knows status codes and the exception tree; knows nothing of bodies or images.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response

from pliant.errors import ArtifactError, BackboneError, InputError, PliantError, RegistryError, WorkerError
from serving.answers import Rejected

RETRY_AFTER = "1"  # seconds; a queue empties or expires within about one


class ApiError(Exception):
    """`code` is for programmes, `message` for people: it names field, value and limit."""

    def __init__(self, status: int, code: str, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.field = status, code, field


def refusal_of(error: Exception) -> ApiError:
    """The refusal that fits an exception."""
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
    return ApiError(500, "internal", "an unexpected error; the service's log has it")


def refusal_of_drop(dropped: Rejected, deadline: float) -> ApiError:
    """Overload: too many requests in line, or none of the ways to serve this one would be in time."""
    match dropped.reason:
        case "full":
            return ApiError(429, "full", "as many requests wait as may; try again later")
        case "late":
            message = f"deadline is {deadline:g} seconds, within which the queue leaves no way to answer"
            return ApiError(503, "late", message, "deadline")
    return ApiError(503, dropped.reason, "its worker failed and the deadline leaves no time for another try")


def error_content(refusal: ApiError) -> dict[str, Any]:
    """The body of an error, and the entry of one among several answers."""
    return {"error": {"code": refusal.code, "field": refusal.field, "message": str(refusal)}}


def error_response(refusal: ApiError) -> Response:
    headers = {"retry-after": RETRY_AFTER} if refusal.status in (429, 503) else None
    return json_response(error_content(refusal), refusal.status, headers)


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(json.dumps(content), status, headers, media_type="application/json")
