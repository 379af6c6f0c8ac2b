"""Lets requests in, before any route: BentoML's own routes, such as /metrics, included."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import State
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pliant.serving.client import Client
from pliant.serving.http.access.access import Access
from pliant.serving.http.access.limits import TenantLimits
from pliant.serving.http.access.metrics import TenantMetrics
from pliant.serving.http.access.roles import CLIENT, is_open
from pliant.serving.http.api_errors import ApiError, ErrorShape
from pliant.serving.request_context import set_evidence_tenant, set_request_tenant


@dataclass(frozen=True, slots=True)
class Gate:
    """What the middleware of one service needs. `count` counts errors by code; `shape_of` gives a path's error shape.

    `trusted`: tenants whose evidence is not capped, besides those of `Client.capped`.
    """

    access: Access
    metrics: TenantMetrics
    shape_of: Callable[[str], ErrorShape]
    count: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    limits: TenantLimits = field(default_factory=TenantLimits)
    trusted: frozenset[str] = frozenset()


class AccessMiddleware:
    """Answers requests that may not pass, and notes in the scope of the others whose they are.

    `state.gate` must be there before the first request: without it every request fails.
    """

    def __init__(self, app: ASGIApp, state: State) -> None:
        self._app, self._state = app, state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or is_open(scope):
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError("only HTTP is let in")
        gate: Gate = self._state.gate
        try:
            scope[CLIENT] = client = gate.access.judge(scope)
            set_request_tenant(client.tenant)
            set_evidence_tenant(client.tenant if client.capped and client.tenant not in gate.trusted else "")
            _enter(gate, client)
        except ApiError as error:
            gate.count(error.code)
            await gate.shape_of(scope["path"])(error)(scope, receive, send)
            return
        try:
            await self._app(scope, receive, _counting(gate, client, send))
        finally:
            gate.limits.leave(client.tenant)
            gate.metrics.waiting(client.tenant, gate.limits.waiting[client.tenant])


def _enter(gate: Gate, client: Client) -> None:
    gate.metrics.arrived(client.tenant)
    try:
        gate.limits.enter(client.tenant, gate.access.tenant(client.tenant), gate.clock())
    except ApiError as error:
        gate.metrics.refused(client.tenant, error.code)
        raise
    gate.metrics.waiting(client.tenant, gate.limits.waiting[client.tenant])


def _counting(gate: Gate, client: Client, send: Send) -> Callable[[Message], Any]:
    async def count_and_send(message: Message) -> None:
        if message["type"] == "http.response.start":
            gate.metrics.answered(client.tenant, message["status"])
        await send(message)

    return count_and_send
