"""Routes answer every error in their shape and count it, know when a request came, and choose its task."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from pliant.errors import InputError, RegistryError
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.app import guarded, select


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
