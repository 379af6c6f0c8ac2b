"""The OpenAPI page of tokens documents what the service takes and answers."""

from __future__ import annotations

import base64

from pliant.serving.tokens import api as bodies
from tests.fixtures.documented import check_answer
from tests.fixtures.tokens.http import png, serve


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
