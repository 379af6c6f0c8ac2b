"""What every service's app has: documentation, a status, a poll on demand, and errors in one shape that are counted."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import re
import time
from types import SimpleNamespace

import httpx
import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route

from pliant.errors import InputError, RegistryError
from pliant.serving.client import Client
from pliant.serving.http.access.access import CLIENT
from pliant.serving.http.api_errors import ApiError, error_response
from pliant.serving.http.app import (
    CommonStatus,
    RequestIdMiddleware,
    UnknownPathMiddleware,
    add_refresh,
    add_status,
    asks_for_prediction,
    complete,
    guarded,
    new_app,
    request_id,
    select,
)
from pliant.serving.http.openai import error_response as openai_errors
from tests.fixtures.bins.in_process import QUIET, serving
from tests.fixtures.bins.published import publish_tiny
from tests.fixtures.registry import FolderRegistry

ERRORS = {
    "ours": ApiError(409, "taken", "it is taken", "name"),
    "input": InputError("gamma", 9, "at most 4"),
    "http": HTTPException(410, "gone", {"x-more": "yes"}),
    "left": ClientDisconnect(),
}


class Service:
    def __init__(self, swagger, status=dict) -> None:
        self.counted: list[str] = []
        self.roles = frozenset({"admin"})

        async def refresh():
            return {"outcome": "unchanged"}

        async def hot(_request):
            return JSONResponse("hot")

        async def slow():
            return "for the documentation only"

        async def fail(kind: str):
            raise ERRORS[kind]

        self.app = new_app("A title")
        add_status(self.app, CommonStatus)
        self.refresh = add_refresh(self.app)
        self.app.add_api_route("/hot", slow, methods=["POST"])
        self.app.add_api_route("/fail/{kind}", fail)
        complete(self.app, {"/hot": hot, "/refresh": self.refresh}, swagger)
        metrics = SimpleNamespace(errored=self.counted.append)
        self.app.state.endpoint = SimpleNamespace(metrics=metrics, status=status, refresh=refresh)

    def call(self, method: str, path: str, **headers: str) -> httpx.Response:
        async def app(scope, receive, send):
            await self.app({**scope, CLIENT: Client(roles=self.roles)}, receive, send)

        async def main():
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
                return await client.request(method, path, headers=headers)

        return asyncio.run(main())


@pytest.fixture
def service(tmp_path):
    (tmp_path / "swagger-ui.css").write_text("body {}")
    return Service(tmp_path)


@pytest.mark.parametrize(
    ("kind", "status", "code", "message"),
    [
        ("ours", 409, "taken", "it is taken"),
        ("input", 422, "invalid", "gamma is 9, but must be at most 4"),
        ("http", 410, "http", "gone"),
        ("left", 500, "internal", "an unexpected error; see the service's log"),
    ],
)
def test_every_error_is_counted_and_answered_in_one_shape(service, kind, status, code, message):
    answer = service.call("GET", f"/fail/{kind}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert answer.json()["error"]["message"] == message
    assert service.counted == [code]
    assert answer.headers.get("x-more") == ("yes" if kind == "http" else None)


def test_a_path_that_nobody_serves_is_an_error_in_the_same_shape(service):
    answer = service.call("GET", "/nowhere")
    assert (answer.status_code, answer.json()["error"]["code"], service.counted) == (404, "http", ["http"])
    assert service.app.state.shape_of("/any") is error_response


def test_only_predictions_are_turned_away_under_overload():
    paths = ["/embed", "/mails/predict", "/refresh", "/v1/tasks", "/mails/outcomes", "/tasks/digit/predict"]
    assert [asks_for_prediction(path) for path in paths] == [True, True, False, False, False, True]


SECRET = "a secret of some length"
MOVED = json.dumps({"data": {"name": "pliant-release-bins", "alias": "champion", "version": "2"}}).encode()


def signed(body: bytes, secret: str = SECRET, at: float | None = None) -> dict[str, str]:
    timestamp = str(int(time.time() if at is None else at))
    digest = hmac.new(secret.encode(), f"7.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return {
        "x_mlflow_signature": f"v1,{base64.b64encode(digest).decode()}",
        "x_mlflow_timestamp": timestamp,
        "x_mlflow_delivery_id": "7",
    }


@pytest.fixture
def registry(tmp_path):
    registry = FolderRegistry(tmp_path)
    publish_tiny(registry, "colours")
    return registry


def test_a_signed_message_of_a_release_makes_the_service_look_and_one_of_another_system_does_not(registry):
    with serving(registry, QUIET.replace(webhook_secret=SECRET)) as service:
        publish_tiny(registry, "colours", seed=1)
        other = MOVED.replace(b"bins", b"cascade")
        answer = service.call("POST", "/registry-events", other, **signed(other))
        assert (answer.status_code, answer.json()) == (200, {"looks": False})
        assert service.assembly.generations.present.number == 1
        answer = service.call("POST", "/registry-events", MOVED, **signed(MOVED))
        assert (answer.status_code, answer.json()) == (200, {"looks": True})
        service.wait(service.endpoint._looking)
        assert service.assembly.generations.present.number == 2


@pytest.mark.parametrize(
    "headers", [{}, signed(MOVED, "another secret of a length"), signed(MOVED, at=1e9), signed(b"another body")]
)
def test_without_a_fresh_signature_by_the_secret_nothing_is_looked_at(headers, registry):
    with serving(registry, QUIET.replace(webhook_secret=SECRET)) as service:
        answer = service.call("POST", "/registry-events", MOVED, **headers)
        assert answer.status_code == 403 and service.endpoint._looking is None


def test_a_service_without_a_secret_takes_none_and_a_long_body_is_refused(registry):
    with serving(registry) as service:
        assert service.call("POST", "/registry-events", MOVED, **signed(MOVED, "")).status_code == 404
    with serving(registry, QUIET.replace(webhook_secret=SECRET)) as service:
        assert service.call("POST", "/registry-events", b"x" * 100_000, **signed(MOVED)).status_code == 413


def request(body: bytes = b"{}", **scope) -> Request:
    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [(b"content-type", b"application/json")]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": headers, **scope}, receive)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (None, None),
        (ApiError(429, "full", "later"), "full"),
        (InputError("a", 1, "2"), "invalid"),
        (RegistryError("gone"), "registry_unavailable"),
        (ClientDisconnect(), "internal"),
    ],
)
def test_a_routes_errors_are_counted_and_answered_in_its_shape(error, code):
    counted = []
    endpoint = SimpleNamespace(metrics=SimpleNamespace(errored=counted.append))

    async def handle(_request, given_endpoint):
        assert given_endpoint is endpoint
        if error is not None:
            raise error
        return Response("fine")

    shape = lambda shown: Response(shown.code, shown.status)  # noqa: E731
    response = asyncio.run(guarded(handle, lambda _request: endpoint, shape)(request()))
    assert counted == ([code] if code else [])
    assert response.body.decode() == (code or "fine")


def test_the_task_is_the_one_that_is_named_or_the_only_one():
    assert select("b", "task", ["a", "b"]) == "b"
    assert select(None, "task", ["a"]) == "a"
    with pytest.raises(InputError, match="task is missing, but must be given, as several are served: a, b"):
        select(None, "task", ["a", "b"])
    with pytest.raises(InputError, match="task is 3, but must be a text"):
        select(3, "task", ["a"])
    with pytest.raises(ApiError, match="task is 'c', but must be one of a, b") as raised:
        select("c", "task", ["b", "a"])
    assert (raised.value.status, raised.value.field) == (404, "task")


NEW = re.compile(rb"[0-9a-f]{32}")


@pytest.mark.parametrize("id", [b"a", b"req 7/~!", b"x" * 128])
def test_the_requests_own_id_comes_back(id):
    assert request_id([(b"host", b"here"), (b"x-request-id", id)]) == id


@pytest.mark.parametrize(
    "ids", [[], [b""], [b"x" * 129], ["ü".encode()], [b"a\tb"], [b"a\x7f"], [b"a", b"a"], [b"a\n"]]
)
def test_any_other_is_replaced_by_a_new_one(ids):
    headers = [(b"x-request-id", id) for id in ids]
    first, second = request_id(headers), request_id(headers)
    assert NEW.fullmatch(first) and NEW.fullmatch(second) and first != second


def answered(scope, headers=((b"x-request-id", b"of the route"), (b"a", b"b"))):
    sent = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 404, "headers": list(headers)})
        await send({"type": "http.response.body", "body": b"gone"})

    async def send(message):
        sent.append(message)

    asyncio.run(RequestIdMiddleware(app)(scope, None, send))
    return sent


def test_every_answer_has_one_id_and_is_otherwise_left_alone():
    start, body = answered({"type": "http", "headers": [(b"x-request-id", b"seven")]})
    assert start == {
        "type": "http.response.start",
        "status": 404,
        "headers": [(b"a", b"b"), (b"x-request-id", b"seven")],
    }
    assert body == {"type": "http.response.body", "body": b"gone"}


async def known(request):
    return JSONResponse({"error": "gone"}, 404)


async def text(request):
    return PlainTextResponse("a metric 1")


def get(path: str) -> tuple[httpx.Response, list[str]]:
    """The answer to a GET, and the codes that were counted, of a service that is mounted as BentoML does it."""
    counted: list[str] = []
    endpoint = SimpleNamespace(metrics=SimpleNamespace(errored=counted.append))
    shape_of = lambda path: openai_errors if path.startswith("/v1/") else error_response  # noqa: E731
    state = SimpleNamespace(endpoint=endpoint, shape_of=shape_of)
    inner = Starlette(routes=[Route("/known", known), Route("/text", text), Route("/of/{name}", text)])
    app = UnknownPathMiddleware(Starlette(routes=[Mount("/", inner)]), state)

    async def main() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            return await client.get(path)

    return asyncio.run(main()), counted


@pytest.mark.parametrize("path", ["/unheard", "/of/a%0Ab", "/of/a/b", "/%0A"])
def test_a_path_without_a_route_is_an_error_in_the_shape_of_its_interface(path):
    response, counted = get(path)
    assert response.status_code == 404 and counted == ["http"]
    assert response.json()["error"]["code"] == "http" and "there is no such path" in response.json()["error"]["message"]
    response, _ = get("/v1" + path)
    assert response.status_code == 404 and set(response.json()["error"]) == {"message", "type", "param", "code"}
