"""POST /registry-events: MLflow says that a release was moved, so the service looks at the registry at once.

Whoever knows the secret can only make it look; what it then serves is what the registry says.
"""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import Response

from pliant.registry.webhooks import moves_release, verified
from pliant.serving.http.api_errors import ApiError, json_response
from pliant.serving.http.json_body import read_body

MAX_BYTES = 64 * 1024


async def registry_event(request: Request) -> Response:
    """Take a message. Raises `ApiError`: 404 where no secret is set, 403 without a signature by it."""
    endpoint = request.app.state.endpoint
    settings = endpoint.settings
    if not settings.webhook_secret:
        raise ApiError(404, "no_webhooks", "this service takes no webhooks: PLIANT_WEBHOOK_SECRET is not set")
    body = b"".join(await read_body(request, MAX_BYTES))
    if not verified(body, request.headers, settings.webhook_secret, time.time()):
        raise ApiError(403, "forbidden", "the message is not signed with this service's secret, or it is old")
    moved = moves_release(body, settings.system)
    if moved:
        endpoint.look_soon()
    return json_response({"looks": moved})
