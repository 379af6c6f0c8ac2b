"""The OpenAPI page documents what the service takes and answers, and names every status of a route."""

from __future__ import annotations

from pliant.serving.packing import schemas
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
