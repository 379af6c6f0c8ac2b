"""Judges a request by its head: is the service called by a name of its own, and does the key open it?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pliant.serving.client import ANYBODY, Client
from pliant.serving.http.access.hosts import KnownHosts, is_loopback
from pliant.serving.http.access.key_file import KeySource
from pliant.serving.http.access.keys import Tenant
from pliant.serving.http.access.roles import check_path, is_open
from pliant.serving.http.api_errors import ApiError

_USUAL = Tenant()


class Access:
    """Who may call one service. Without a `source` of keys everybody on this machine may, and others if it `is_open`."""

    def __init__(self, hosts: KnownHosts, source: KeySource | None = None, is_open: bool = False) -> None:
        self._hosts, self._source, self._is_open = hosts, source, is_open

    def judge(self, scope: Mapping[str, Any]) -> Client:
        """Return the client of an HTTP request, by its ASGI scope.

        Raises `ApiError`: 421 for an unknown Host, 401 without a valid key, 403 for a key that may not use the path, and
        for another machine where there are no keys.
        """
        if is_open(scope):
            return ANYBODY
        host = authorization = None
        for name, value in scope["headers"]:
            if name == b"host":
                host = b"" if host is not None else value  # two of them: none is known
            elif name == b"authorization":
                authorization = b"" if authorization is not None else value
        self._check_host(host)
        if self._source is None:
            return self._without_keys(scope)
        client = self._source().client(_bearer(authorization))
        if client is None:
            raise _unauthorized(authorization is not None)
        check_path(scope, client)
        return client

    def sender(self, scope: Mapping[str, Any]) -> Client | None:
        """Return as `judge` does, but None for a request that it would turn away."""
        try:
            return self.judge(scope)
        except ApiError:
            return None

    def tenant(self, name: str) -> Tenant:
        """Return the limits of a tenant."""
        return self._source().tenant(name) if self._source else _USUAL

    def _check_host(self, host: bytes | None) -> None:
        if host is None or not self._hosts.knows(host.decode("latin-1")):
            message = "the Host header names another service; allow further names with --allowed-host NAME"
            raise ApiError(421, "unknown_host", message, "host")

    def _without_keys(self, scope: Mapping[str, Any]) -> Client:
        address = scope.get("client")
        if not self._is_open and not (address and is_loopback(address[0])):
            message = (
                "this service has no keys, so only its own machine may call it; make keys, or start it with --open"
            )
            raise ApiError(403, "no_keys", message)
        return ANYBODY


def _bearer(authorization: bytes | None) -> str:
    """Return the key in an Authorization header; empty if there is none."""
    scheme, _, key = (authorization or b"").partition(b" ")
    return key.strip().decode("latin-1") if scheme.lower() == b"bearer" else ""


def _unauthorized(with_key: bool) -> ApiError:
    if with_key:
        message = "the key in the header Authorization is unknown or revoked, or the header is not `Bearer KEY`"
        challenge = 'Bearer error="invalid_token"'
    else:
        message, challenge = "a key is missing: send it in the header Authorization, as `Bearer KEY`", "Bearer"
    return ApiError(401, "unauthorized", message, "authorization", headers={"www-authenticate": challenge})
