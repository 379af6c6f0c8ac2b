"""What every service's app has: documentation, a status, a poll on demand, and errors in one shape that are counted."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import httpx
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse

from pliant.errors import InputError
from pliant.serving.client import Client
from pliant.serving.http.access.roles import CLIENT
from pliant.serving.http.api_errors import ApiError, error_response
from pliant.serving.http.app import add_refresh, add_status, asks_for_prediction, complete, new_app
from pliant.serving.http.schemas import CommonStatus

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


def test_the_page_of_the_api_needs_no_internet_and_does_not_document_itself(service):
    page = service.call("GET", "/docs").text
    assert "A title" in page and "swagger/swagger-ui-bundle.js" in page and "https://" not in page
    assert service.call("GET", "/swagger/swagger-ui.css").text == "body {}"
    documented = service.call("GET", "/openapi.json").json()["paths"]
    assert list(documented) == ["/status", "/refresh", "/hot", "/fail/{kind}"]
    assert set(documented["/refresh"]["post"]["responses"]) == {"200", "403", "415", "500", "503"}
    answer = documented["/status"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert answer == {"$ref": "#/components/schemas/CommonStatus"}
    assert set(documented["/status"]["get"]["responses"]) == {"200"}


def test_the_most_frequent_routes_come_before_those_that_document_them(service):
    assert service.call("POST", "/hot").json() == "hot"
    assert service.call("GET", "/hot").status_code == 405


def test_the_status_may_need_waiting_for(tmp_path):
    async def status():
        return {"ready": True}

    assert Service(tmp_path, lambda: {"ready": False}).call("GET", "/status").json() == {"ready": False}
    assert Service(tmp_path, status).call("GET", "/status").json() == {"ready": True}


def test_only_an_administrator_polls_the_registry(service):
    assert service.call("POST", "/refresh", content_type="application/json").status_code == 415
    json = {"content-type": "application/json"}
    assert service.call("POST", "/refresh", **json).json() == {"outcome": "unchanged"}
    service.roles = frozenset({"use"})
    refused = service.call("POST", "/refresh", **json)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
    assert "this key may not poll the registry" in refused.json()["error"]["message"]


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
