"""The errors and the list of models in the shape of OpenAI's API, for all systems that offer it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.app import json_response

STATUS = dict.fromkeys(("invalid", "too_many_texts", "text_too_long", "wrong_head"), 400)
"""Our code -> OpenAI's status, where it differs from ours."""
_LIMITS = {"unauthorized": "invalid_api_key", "rate_limited": "rate_limit_exceeded"}
CODES = {"unknown_task": "model_not_found", "full": "rate_limit_exceeded", **_LIMITS}
"""Our code -> OpenAI's."""


def error_response(api_error: ApiError, codes: Mapping[str, str] = CODES) -> Response:
    """Return an error in OpenAI's shape; `codes` as in `error_content`."""
    status = STATUS.get(api_error.code, api_error.status)
    return json_response({"error": error_content(api_error, codes)}, status, api_error.headers)


def error_content(api_error: ApiError, codes: Mapping[str, str] = CODES) -> dict[str, Any]:
    """Return the fields of an error. `codes` gives OpenAI's code for ours; any other code stays."""
    status = STATUS.get(api_error.code, api_error.status)
    kind = "rate_limit_error" if status == 429 else "invalid_request_error" if status < 500 else "server_error"
    code = codes.get(api_error.code, api_error.code)
    return {"message": str(api_error), "type": kind, "param": api_error.field, "code": code}


def model(name: str, created: int) -> dict[str, Any]:
    """Return an entry of the list of models; `created` in seconds since 1970."""
    return {"id": name, "object": "model", "created": created, "owned_by": "pliant"}


def models(created: Mapping[str, int]) -> Response:
    """Return the answer of /models; `created` gives when each model was loaded."""
    return json_response({"object": "list", "data": [model(*item) for item in created.items()]})
