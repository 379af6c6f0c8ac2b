"""What routes ask about the client of a request: who it is, and whether it may do what only some may."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from pliant.serving.client import ANYBODY, Client
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.json_body import check_type

CLIENT = "pliant.client"
"""Key of an ASGI scope: whom the middleware has let in."""
_OPEN_PATHS = frozenset(("/livez", "/readyz", "/healthz", "/health", "/v2/health/live", "/v2/health/ready"))
_SIGNED_PATHS = frozenset(("/registry-events", "/v1/registry-events"))
"""Paths whose requests are signed instead (serving/http/webhook.py)."""
MONITOR_PATHS = frozenset(("/metrics", "/status", "/v1/status"))


def is_open(scope: Mapping[str, Any]) -> bool:
    """Whether everybody may ask for this, under any name: whether the process is sound, or what carries a signature."""
    if scope.get("method") == "POST":
        return scope.get("path") in _SIGNED_PATHS
    return scope.get("path") in _OPEN_PATHS and scope.get("method") in ("GET", "HEAD")


def client_of(request: Request) -> Client:
    """Return the client of a request."""
    client: Client = request.scope.get(CLIENT, ANYBODY)
    return client


def check_admin(request: Request, what: str) -> Client:
    """Return the client of a request that administers. `what` it does completes the sentence "this key may not".

    Raises `ApiError`: 403 without the role, 415 unless the body is announced as JSON. A page of any website may send other
    types to a service on the visitor's machine without asking first (CORS).
    """
    client = client_of(request)
    if "admin" not in client.roles:
        raise ApiError(403, "forbidden", f"this key may not {what}: that needs the role admin")
    if request.method not in ("GET", "HEAD"):
        check_type(request, ("application/json",), "application/json, also without a body")
    return client


def check_path(scope: Mapping[str, Any], client: Client) -> None:
    """Raise `ApiError` (403) unless the client may use the path at all: `use`, or `monitor` for status and metrics."""
    role = "monitor" if scope["path"] in MONITOR_PATHS else "use"
    if role not in client.roles:
        raise ApiError(403, "forbidden", f"this key may not use this path: that needs the role {role}")
