"""The OpenAPI page documents what the service takes and answers, and names every status of a route."""

from __future__ import annotations

from pliant.serving.packing import schemas
from pliant.serving.packing.api import create_app
from tests.fixtures.documented import check_answer
from tests.fixtures.packing.in_process import publish, serving
from tests.fixtures.registry import FolderRegistry


def test_answers_models_and_status_have_the_documented_fields_and_no_other(tmp_path):
    registry = FolderRegistry(tmp_path)
    publish(registry)
    with serving(registry) as service:
        check_answer(schemas.Completion, service.complete(n=2).json())
        check_answer(schemas.ChatCompletion, service.chat().json())
        check_answer(schemas.OpenaiModels, service.get("/models").json())
        check_answer(schemas.Status, service.status())


def test_the_page_documents_the_models_name_in_the_path_and_each_routes_answer(tmp_path):
    page = create_app(tmp_path).openapi()
    name = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
    assert page["paths"]["/models/{model}"]["get"]["parameters"] == [name]
    documented = {
        (path, method): (spec["summary"], spec["responses"]["200"]["content"]["application/json"]["schema"]["$ref"])
        for path, methods in page["paths"].items()
        for method, spec in methods.items()
        if spec.get("tags") == ["openai"]
    }
    assert {route: answer.rpartition("/")[2] for route, (_, answer) in documented.items()} == {
        ("/completions", "post"): "Completion",
        ("/chat/completions", "post"): "ChatCompletion",
        ("/models", "get"): "OpenaiModels",
        ("/models/{model}", "get"): "OpenaiModel",
    }
    assert all(summary for summary, _ in documented.values())
    errors = page["paths"]["/completions"]["post"]["responses"]
    assert "Retry-After" in errors["429"]["description"] and "Retry-After" in errors["503"]["description"]
    for code in ("400", "500"):
        assert errors[code]["content"]["application/json"]["schema"]["$ref"].endswith("OpenaiErrorAnswer")
