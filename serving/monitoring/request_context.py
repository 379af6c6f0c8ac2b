"""Whose request is being handled, for what is logged meanwhile: its id (x-request-id) and its tenant.

Context variables, so that the tasks that a request starts know them, too, and nothing has to be handed through.
"""

from __future__ import annotations

from contextvars import ContextVar

_ID: ContextVar[str] = ContextVar("id of the request", default="")
_TENANT: ContextVar[str] = ContextVar("tenant of the request", default="")


def set_request_id(id: str) -> None:
    """Note the id of the request, until the end of its task."""
    _ID.set(id)


def set_request_tenant(tenant: str) -> None:
    """Note the tenant of the request, until the end of its task."""
    _TENANT.set(tenant)


def request_fields() -> dict[str, str]:
    """Return `request_id` and `tenant` as far as they are known; empty outside of a request."""
    return {name: value for name, value in (("request_id", _ID.get()), ("tenant", _TENANT.get())) if value}
