"""The OpenAPI page of tokens documents what the service takes and answers."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from pliant.serving.tokens import bodies
from pliant.serving.tokens.api import create_app
from pliant.serving.tokens.settings import TokensSettings
from tests.fixtures.documented import body_schema, check_answer, check_body, statuses
from tests.fixtures.tokens.http import png, serve


class RoteEndpoint:
    """Remembers the last request, and answers it with nothing."""

    def __init__(self) -> None:
        self.settings, self.now, self.last = TokensSettings(), 1.0, None
        self.metrics = SimpleNamespace(errored=lambda code: None)

    async def predict(self, request, arrived):
        self.last = request
        return {}

    async def register(self, *arguments):
        self.last = arguments
        return {}


def app_over(endpoint: RoteEndpoint):
    app = create_app(Path(__file__).parent)
    app.state.endpoint = endpoint
    return app


def reader(path: str):
    endpoint = RoteEndpoint()
    app = app_over(endpoint)

    def read(body):
        async def main():
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                headers = {"content-type": "application/json"}
                return await client.post(path, content=json.dumps(body).encode(), headers=headers)

        response = asyncio.run(main())
        return response.status_code, endpoint.last if response.status_code == 200 else response.json()

    return app, read


def test_a_request_is_taken_within_the_documented_limits_of_its_fields():
    app, read = reader("/predict")
    usual = {"image": base64.b64encode(b"a picture").decode(), "task": "digits", "deadline": 0.5}
    refused = check_body(body_schema(app, "/predict"), usual, read)
    assert refused <= statuses(app, "/predict")
    forms = app.openapi()["paths"]["/predict"]["post"]["requestBody"]["content"]
    form, body = (forms[kind]["schema"] for kind in ("multipart/form-data", "application/json"))
    assert form["required"] == body["required"] and form["additionalProperties"] is False


@pytest.mark.parametrize("more", [{}, {"version": None}, {"alias": "nightly"}])
def test_a_registration_is_taken_within_the_documented_limits_of_its_fields(more):
    app, read = reader("/tasks")
    schema = body_schema(app, "/tasks")
    assert read({"name": "digits", **more})[0] == 200
    assert check_body(schema, {"name": "digits"}, read) <= statuses(app, "/tasks")


def test_answers_tasks_and_status_have_the_documented_fields_and_no_other(registry):
    async def check(service):
        image = base64.b64encode(png()).decode()
        response = await service.client.post("/predict", json={"image": image, "task": "digits", "deadline": 5.0})
        check_answer(bodies.Prediction, response.json())
        check_answer(bodies.TaskList, (await service.client.get("/tasks")).json())
        check_answer(bodies.Status, (await service.client.get("/status")).json())
        answer = (await service.client.post("/refresh", json={})).json()
        check_answer(bodies.TokensRefresh, answer)

    serve(registry, check)
