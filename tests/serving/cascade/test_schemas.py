"""The OpenAPI page of cascade documents what the service takes and answers."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from pliant.errors import InputError
from pliant.serving.cascade import schemas
from pliant.serving.http.schemas import ErrorAnswer
from pliant.serving.loop.outcome_routes import take_all
from pliant.serving.loop.outcomes import MAX_LABELS, Outcomes
from tests.fixtures.cascade.fakes import Service
from tests.fixtures.cascade.in_process import QUIET, SURE, UNSURE, serving
from tests.fixtures.cascade.published import publish_tiny
from tests.fixtures.documented import body_schema, check_answer, check_body, statuses
from tests.fixtures.fakes import run_virtually
from tests.fixtures.registry import FolderRegistry


def reader(service: Service, path: str):
    def read(body):
        response = service.post(path, body)
        return response.status_code, service.endpoint.requests[-1:] if response.status_code == 200 else response.json()

    return read


def test_a_request_is_taken_within_the_documented_limits_of_its_fields():
    service = Service("reviews")
    # Texts are checked below: their limits are in bytes, and a pair is for other tasks.
    skip = ("task", "text", "text_pair", "texts", "candidate")
    schema = body_schema(service.app, "/predict")
    refused = check_body(schema, {"text": "A film"}, reader(service, "/predict"), skip)
    assert refused <= statuses(service.app, "/predict")
    assert service.ask(texts=schema["properties"]["texts"]["minItems"] * ["A film"]).status_code == 200
    assert service.ask(texts=(schema["properties"]["texts"]["minItems"] - 1) * ["A film"]).status_code == 422


def test_a_text_comes_in_every_documented_shape():
    text, pair, both = body_schema(Service("reviews").app, "/predict")["properties"]["text"]["oneOf"]
    assert text["type"] == "string" and pair["minItems"] == pair["maxItems"]
    single, double = Service("reviews"), Service("paraphrase")
    for length in (1, 2, 3):
        taken = double.ask(text=["A film"] * length).status_code == 200
        assert taken is (pair["minItems"] <= length <= pair["maxItems"])
    assert single.ask(text={"text": "A film"}).status_code == 200
    assert both["required"] == ["text"] and single.ask(text={"text_pair": "A film"}).status_code == 422
    assert both["additionalProperties"] is False and single.ask(text={"text": "A", "more": 1}).status_code == 422


def test_teis_form_is_taken_within_its_documented_limits():
    service = Service("reviews")

    def read(body):
        response = service.post("/tei/reviews/predict", body)
        return response.status_code, response.json()

    schema = body_schema(service.app, "/tei/{task}/predict")
    refused = check_body(schema, {"inputs": "A film"}, read, ("inputs", "parameters"))
    assert refused <= statuses(service.app, "/tei/{task}/predict")
    assert read({"inputs": [["A film"], ["Another"]]})[0] == 200


def test_labels_come_alone_or_in_lists_of_the_documented_length():
    service = Service("reviews")
    single, many = body_schema(service.app, "/outcomes")["oneOf"]
    service.ask(text="A film")
    read = reader(service, "/outcomes")
    assert check_body(single, {"id": "rote-1", "label": "positive"}, read, skip=("id",)) == {422}
    assert single["properties"]["id"]["minLength"] == 1 and read({"id": "", "label": "positive"})[0] == 422
    label = {"id": "rote-1", "label": "positive"}
    assert service.post("/outcomes", [label] * (many["minItems"] - 1)).status_code == 422
    assert service.post("/outcomes", [label] * many["minItems"]).status_code == 200
    assert asyncio.run(take_all([label] * many["maxItems"], lambda id, label: {}))[0] == 200
    with pytest.raises(InputError, match="a list of 1 to"):
        asyncio.run(take_all([label] * (many["maxItems"] + 1), lambda id, label: {}))


@pytest.fixture
def registry(tmp_path):
    registry = FolderRegistry(tmp_path)
    publish_tiny(registry)
    return registry


def test_answers_tasks_and_status_have_the_documented_fields_and_no_other(registry):
    async def main():
        async with serving(registry, QUIET) as service:
            sure, unsure = await service.ask(SURE, UNSURE)
            (pruned,) = await service.ask(UNSURE, accuracy=0.92)
            for answer in (sure, unsure, pruned):
                check_answer(schemas.Answer, {**answer, "cleaned": 0})  # which the route adds
            check_answer(schemas.TakenOutcome, service.endpoint.outcome(sure["id"], "blue"))
            for task in service.endpoint.tasks():
                check_answer(schemas.TaskDescription, task)
            check_answer(schemas.Status, service.endpoint.status())
            with pytest.raises(InputError):
                await service.ask(accuracy=1.0)

    run_virtually(main())


def test_a_tenant_that_reports_too_many_labels_gets_a_documented_status():
    service = Service("reviews")
    service.endpoint.outcomes = Outcomes(CollectorRegistry(), clock=lambda: 0.0)
    service.ask(text="A film")
    for _ in range(MAX_LABELS):
        service.endpoint.outcomes.take("rote-1", "positive")
    content = service.post("/outcomes", {"id": "rote-1", "label": "positive"})
    assert content.status_code == 429 and 429 in statuses(service.app, "/outcomes")
    check_answer(ErrorAnswer, content.json())
