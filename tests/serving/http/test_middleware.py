"""An answer has the id of its request, if that may stand in a header, or a new one."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Mount, Route

from pliant.serving.http.api_errors import error_response
from pliant.serving.http.middleware import RequestIdMiddleware, UnknownPathMiddleware, request_id
from pliant.serving.http.openai import error_response as openai_errors

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
