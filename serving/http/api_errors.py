"""Errors of the API: which status, code and message a client gets for which exception."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from starlette.responses import Response

from pliant.errors import ArtifactError, BackboneError, InputError, PliantError, RegistryError, WorkerError
from pliant.serving.driver import Rejected

LONGEST_RETRY = 60  # seconds


class ApiError(Exception):
    """An error with an HTTP status. `code` is for programs; `message` is for people and names field, value and limit.

    `retry_after`: seconds after which the same request has better prospects, if the status is 429 or 503.
    `headers`: further headers of the response.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        field: str | None = None,
        retry_after: float = 1.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.field = status, code, field
        self.retry_after, self._headers = retry_after, dict(headers or {})

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        fields = self.status, self.code, str(self), self.field, self.retry_after, self._headers
        return ApiError, fields

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of the response; 429 and 503 have Retry-After, in whole seconds from 1 on."""
        if self.status not in (429, 503):
            return self._headers
        seconds = min(max(1, math.ceil(self.retry_after)), LONGEST_RETRY)
        return {"retry-after": str(seconds), **self._headers}


ErrorShape = Callable[[ApiError], Response]
"""How an interface tells a client of an error."""


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
            return ApiError(429, "full", "the queue is full; try again later", retry_after=rejected.retry_after)
        case "late":
            message = f"deadline is {deadline:g} seconds, but waiting and computing would take longer"
            return ApiError(503, "late", message, "deadline", rejected.retry_after)
    return ApiError(503, rejected.reason, "the worker failed, and the deadline leaves no time for another attempt")


def error_content(api_error: ApiError) -> dict[str, Any]:
    """Return an error as JSON: a response's body, or one entry of a list of answers."""
    return {"error": {"code": api_error.code, "field": api_error.field, "message": str(api_error)}}


def error_response(api_error: ApiError) -> Response:
    """Return an error as a response."""
    content = json.dumps(error_content(api_error))
    return Response(content, api_error.status, api_error.headers, media_type="application/json")
