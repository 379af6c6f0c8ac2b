"""Who is let in: over an app of two routes, with the middleware as BentoML has it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from pliant import systems
from pliant.serving.http import openai, tei
from pliant.serving.http.access.access import (
    Access,
    AccessMiddleware,
    Gate,
    KnownHosts,
    TenantMetrics,
    TokenBucket,
    check_admin,
    client_of,
)
from pliant.serving.http.access.keys import Keys, Tenant, new_key
from pliant.serving.http.api_errors import ApiError, error_response

SHAPES = {"/tei/predict": tei.error_response, "/v1/models": openai.error_response}

NO_LIMITS = Tenant()


class Site:
    """A service with keys of three roles for the tenant acme, and one of the tenant other."""

    def __init__(
        self, with_keys: bool = True, is_open: bool = False, limits: Tenant = NO_LIMITS, peer: str = "127.0.0.1"
    ):
        self.keys, self.secrets, self.now, self.errors = Keys(), {}, 100.0, []
        for name, tenant, role in (
            *((role, "acme", role) for role in ("use", "admin", "monitor")),
            ("other", "other", "use"),
        ):
            self.secrets[name], key = new_key(tenant, (role,), "", self.keys)
            self.keys = self.keys.with_key(key, limits if tenant == "acme" else Tenant())
        self.counted, self.hold, self.held = CollectorRegistry(), asyncio.Event(), 0
        self.hold.set()
        access = Access(KnownHosts("127.0.0.1"), (lambda: self.keys) if with_keys else None, is_open)
        shape_of = lambda path: SHAPES.get(path, error_response)  # noqa: E731
        gate = Gate(access, TenantMetrics(self.counted), shape_of, self.errors.append, lambda: self.now)
        paths = ("/v1/predict", "/livez", "/readyz", "/v1/label", "/", "/metrics", "/v1/status", *SHAPES)
        routes = [Route(path, self.answer, methods=["GET", "POST"]) for path in paths]
        routes.append(Route("/v1/refresh", self.administer, methods=["POST"]))
        app = AccessMiddleware(
            Starlette(routes=routes, exception_handlers={ApiError: self.error}), SimpleNamespace(gate=gate)
        )
        transport = httpx.ASGITransport(app, client=(peer, 1234))
        self.client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:3000")

    async def answer(self, request):
        self.held += 1
        await self.hold.wait()
        client = client_of(request)
        return JSONResponse({"tenant": client.tenant, "weight": client.weight})

    async def administer(self, request):
        return JSONResponse({"key": check_admin(request, "poll").key})

    async def error(self, _request, error):
        return error_response(error)

    async def ask(self, path="/v1/predict", key=None, method="POST", **headers):
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        if key:
            names["authorization"] = f"Bearer {self.secrets[key]}"
        return await self.client.request(method, path, headers=names)

    def metric(self, name: str, **labels) -> float | None:
        return self.counted.get_sample_value(f"pliant_tenant_{name}", labels)


async def test_a_key_lets_its_tenant_in_and_nothing_else_does():
    site = Site()
    response = await site.ask(key="use")
    assert (response.status_code, response.json()) == (200, {"tenant": "acme", "weight": 1.0})
    for headers in (
        {},
        {"authorization": "Bearer "},
        {"authorization": "Bearer wrong"},
        {"authorization": site.secrets["use"]},
        {"authorization": "Basic " + site.secrets["use"]},
        {"x_api_key": site.secrets["use"]},
    ):
        response = await site.ask(**headers)
        assert response.status_code == 401, headers
        assert response.headers["www-authenticate"].startswith("Bearer")
        assert response.json()["error"]["code"] == "unauthorized"
    assert site.errors == ["unauthorized"] * 6


async def test_two_keys_or_two_hosts_in_one_request_are_none():
    site = Site()
    bearer = ("authorization", f"Bearer {site.secrets['use']}")
    response = await site.client.post("/v1/predict", headers=[bearer, ("authorization", "Bearer x")])
    assert response.status_code == 401
    response = await site.client.post("/v1/predict", headers=[bearer, ("host", "127.0.0.1"), ("host", "evil.example")])
    assert response.status_code == 421


async def test_only_health_and_pages_without_content_are_open_and_only_for_reading():
    site = Site()
    for path in ("/livez", "/readyz", "/v1/label", "/"):
        assert (await site.ask(path, method="GET", host="10.0.0.5")).status_code == 200
        assert (await site.ask(path, method="POST")).status_code == 401
    for path in ("/metrics", "/v1/status", "/nowhere"):
        assert (await site.ask(path, method="GET")).status_code == 401


async def test_roles_say_which_paths_a_key_may_use():
    site = Site()
    json = {"content_type": "application/json"}
    statuses = {
        (path, key): (await site.ask(path, key, method, **json)).status_code
        for path, method in (
            ("/v1/predict", "POST"),
            ("/v1/status", "GET"),
            ("/metrics", "GET"),
            ("/v1/refresh", "POST"),
        )
        for key in ("use", "monitor", "admin")
    }
    allowed = {place for place, status in statuses.items() if status == 200}
    assert set(statuses.values()) == {200, 403}
    assert allowed == {
        ("/v1/predict", "use"),
        *(("/v1/status", key) for key in ("monitor", "admin")),
        *(("/metrics", key) for key in ("monitor", "admin")),
        *((path, "admin") for path in ("/v1/predict", "/v1/refresh")),
    }


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_an_admin_action_without_a_json_content_type_is_refused_also_without_keys(kind):
    headers = {"content_type": kind} if kind else {}
    assert (await Site(with_keys=False).ask("/v1/refresh", **headers)).status_code == 415
    assert (await Site().ask("/v1/refresh", "admin", **headers)).status_code == 415
    assert (await Site(with_keys=False).ask("/v1/refresh", content_type="application/json")).status_code == 200


def test_a_request_whose_peer_nobody_knows_is_not_of_this_machine():
    scope = {"type": "http", "method": "GET", "path": "/v1/predict", "headers": [(b"host", b"localhost")]}
    access = Access(KnownHosts("127.0.0.1"))
    for peer in ({}, {"client": None}, {"client": ("10.0.0.9", 1)}):
        with pytest.raises(ApiError) as refused:
            access.judge({**scope, **peer})
        assert (refused.value.status, refused.value.code) == (403, "no_keys")
    assert access.judge({**scope, "client": ("127.0.0.1", 1)}).tenant == ""
    with pytest.raises(ApiError) as refused:
        access.judge({**scope, "client": ("127.0.0.1", 1), "headers": []})
    assert refused.value.status == 421
    assert access.tenant("anybody") == Tenant()


async def test_without_keys_only_this_machine_is_let_in_unless_the_service_is_open():
    assert (await Site(with_keys=False).ask()).status_code == 200
    response = await Site(with_keys=False, peer="10.0.0.9").ask()
    assert (response.status_code, response.json()["error"]["code"]) == (403, "no_keys")
    assert (await Site(with_keys=False, is_open=True, peer="10.0.0.9").ask()).status_code == 200
    assert (await Site(peer="10.0.0.9").ask(key="use")).status_code == 200


async def test_a_tenant_beyond_its_rate_hears_when_to_come_again_and_the_others_go_on():
    site = Site(limits=Tenant(rate=2.0))
    assert [(await site.ask(key="use")).status_code for _ in range(3)] == [200, 200, 429]
    response = await site.ask(key="use")
    assert response.json()["error"]["code"] == "rate_limited"
    assert response.headers["retry-after"] == "1"
    assert (await site.ask(key="other")).status_code == 200
    site.now += 0.5
    assert [(await site.ask(key="use")).status_code for _ in range(2)] == [200, 429]
    assert site.metric("refusals_total", tenant="acme", code="rate_limited") == 3


async def test_a_tenant_with_too_many_waiting_requests_gets_no_more_in_until_one_is_answered():
    site = Site(limits=Tenant(max_waiting=2))
    site.hold.clear()
    waiting = [asyncio.create_task(site.ask(key="use")) for _ in range(2)]
    while site.held < 2:
        await asyncio.sleep(0)
    response = await site.ask(key="use")
    assert (response.status_code, response.json()["error"]["code"]) == (429, "too_many_waiting")
    assert site.metric("waiting", tenant="acme") == 2
    site.hold.set()
    assert [(await task).status_code for task in waiting] == [200, 200]
    assert (await site.ask(key="use")).status_code == 200
    assert site.metric("waiting", tenant="acme") == 0


@pytest.mark.parametrize("system", systems.names())
def test_every_service_has_the_middleware_around_all_of_its_routes(system):
    module = systems.system(system).part("serving", "service")
    service = getattr(module, f"{system.capitalize()}Service")
    (entry,) = [options for kind, options in service.middlewares if kind is AccessMiddleware]
    assert entry["state"] is module.app.state


async def test_only_http_is_let_in_and_the_start_of_the_app_passes():
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["type"])

    middleware = AccessMiddleware(app, SimpleNamespace())
    await middleware({"type": "lifespan"}, None, None)
    with pytest.raises(RuntimeError, match="only HTTP is let in"):
        await middleware({"type": "websocket", "path": "/", "headers": []}, None, None)
    assert seen == ["lifespan"]


@given(st.integers(1, 8), st.lists(st.integers(0, 16), min_size=1, max_size=60))
def test_in_no_stretch_of_time_pass_more_than_the_rate_and_one_burst(rate, gaps):
    bucket, now, passed = TokenBucket(rate), 0.0, []
    for gap in gaps:
        now += gap / 16
        wait = bucket.take(now)
        if wait == 0:
            passed.append(now)
        else:
            assert 0 < wait <= 1 / rate
    for first, start in enumerate(passed):
        for last, end in enumerate(passed[first:], start=first):
            assert last - first + 1 <= rate + rate * (end - start) + 1e-6


UNKNOWN = """evil.example evil.example:3000 localhost.evil.example 127.0.0.1.evil.example xlocalhost [ ]
10.0.0.8 [fe80::1] localhost@evil.example evil.example#localhost 0x7f.1"""


@pytest.mark.parametrize("header", ["", " localhost", *UNKNOWN.split()])
def test_other_names_are_unknown(header):
    assert not KnownHosts("127.0.0.1", ["api.example.org"]).knows(header)


def test_the_bound_address_and_allowed_names_are_known():
    hosts = KnownHosts("10.0.0.7", ["API.example.org", "*.inner.example"])
    for header in ("10.0.0.7:80", "api.example.org", "API.EXAMPLE.ORG.:443", "a.inner.example", "b.a.inner.example:1"):
        assert hosts.knows(header)
    for header in ("10.0.0.8", "example.org", "inner.example", "xinner.example"):
        assert not hosts.knows(header)


def test_on_all_addresses_any_address_is_known_but_no_name():
    hosts = KnownHosts("0.0.0.0")
    assert hosts.knows("192.168.1.5:3000") and hosts.knows("[2001:db8::1]:3000")
    assert not hosts.knows("evil.example") and not hosts.knows("192.168.1.5.evil.example")
    assert KnownHosts("0.0.0.0", ["*"]).knows("anything")
