"""A path that no route has is answered as an error of its interface; all other answers pass as they are."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Mount, Route

from pliant.serving.http.api_errors import error_response
from pliant.serving.http.openai import error_response as openai_errors
from pliant.serving.http.unknown_path import UnknownPathMiddleware


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


@pytest.mark.parametrize(
    ("path", "status", "content"), [("/known", 404, json.dumps({"error": "gone"})), ("/text", 200, "a metric 1")]
)
def test_answers_of_routes_pass_as_they_are(path, status, content):
    response, counted = get(path)
    assert (response.status_code, response.text.replace(" ", ""), counted) == (status, content.replace(" ", ""), [])


def test_what_is_no_http_passes():
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["type"])

    asyncio.run(UnknownPathMiddleware(app, SimpleNamespace())({"type": "lifespan"}, None, None))
    assert seen == ["lifespan"]
