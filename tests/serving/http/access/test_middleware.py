"""Every request that passes is counted for its tenant until it ends, whatever it ends with."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from pliant.serving.client import ANYBODY
from pliant.serving.http.access.access import Access
from pliant.serving.http.access.hosts import KnownHosts
from pliant.serving.http.access.keys import Keys, Tenant, new_key
from pliant.serving.http.access.metrics import TenantMetrics
from pliant.serving.http.access.middleware import AccessMiddleware, Gate
from pliant.serving.http.access.roles import CLIENT
from pliant.serving.http.api_errors import error_response


class Passed:
    """A gate for one key of the tenant acme, and an app behind it that `seen` tells of; `trouble` is what it raises."""

    def __init__(self, limits: Tenant) -> None:
        self.secret, key = new_key("acme", ("use",), "", Keys())
        self.counted, self.errors, self.seen, self.sent = CollectorRegistry(), [], [], []
        self.trouble: Exception | None = None
        known = Keys().with_key(key, limits)
        access = Access(KnownHosts("127.0.0.1"), lambda: known)
        gate = Gate(access, TenantMetrics(self.counted), lambda _path: error_response, self.errors.append, lambda: 1.0)
        self._middleware = AccessMiddleware(self._app, SimpleNamespace(gate=gate))

    async def _app(self, scope, receive, send) -> None:
        self.seen.append((scope["path"], scope.get(CLIENT, ANYBODY).tenant, self.metric("waiting", tenant="acme")))
        if self.trouble:
            raise self.trouble
        await send({"type": "http.response.start", "status": 207, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def ask(self, path: str = "/v1/predict", kind: str = "http") -> list[dict]:
        async def send(message) -> None:
            self.sent.append(message)

        headers = [(b"host", b"localhost"), (b"authorization", f"bearer  {self.secret} ".encode())]
        scope = {"type": kind, "method": "GET", "path": path, "headers": headers}
        self.sent = []
        asyncio.run(self._middleware(scope, None, send))
        return self.sent

    def metric(self, name: str, **labels: str) -> float | None:
        return self.counted.get_sample_value(f"pliant_tenant_{name}", labels)


def test_a_request_that_fails_frees_its_place():
    site = Passed(Tenant(max_waiting=1))
    site.trouble = ValueError("the app is broken")
    for _ in range(3):
        with pytest.raises(ValueError, match="the app is broken"):
            site.ask()
        assert site.metric("waiting", tenant="acme") == 0
    assert site.errors == [] and len(site.seen) == 3


def test_what_is_open_and_the_start_of_the_app_pass_uncounted_and_other_protocols_do_not():
    site = Passed(Tenant())
    site.ask("/livez")
    site.ask("/", kind="lifespan")
    assert [(path, tenant) for path, tenant, _ in site.seen] == [("/livez", ""), ("/", "")]
    assert site.metric("arrivals_total", tenant="acme") is None
    with pytest.raises(RuntimeError, match="only HTTP is let in"):
        site.ask("/v1/predict", kind="websocket")
    assert len(site.seen) == 2
