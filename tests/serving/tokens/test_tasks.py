"""Tasks, status and documentation of the tokens service, in-process, over a fake device."""

from __future__ import annotations

import pytest

from pliant.errors import BackboneError, RegistryError
from pliant.serving.tokens.catalog import load_catalog
from tests.fixtures.tokens.http import FolderRegistry, ask, check_good, serve
from tests.fixtures.tokens.samples import tiny_task


def test_a_task_published_later_can_be_registered_while_running(registry):
    async def check(service):
        digest = service.catalog.backbone.digest
        task = tiny_task("shapes", ["round", "square"], digest, seed=1)
        registry.publish("pliant-tokens-task-shapes", task)
        assert (await ask(service, task="shapes")).status_code == 404
        response = await service.client.post("/tasks", json={"name": "shapes"})
        assert response.status_code == 200, response.text
        assert response.json()["classes"] == ["round", "square"]
        assert (await ask(service, task="shapes")).json()["label"] == "round"
        assert dict(service.scheduler.facts[-1]["accuracy"]["shapes"])[0] == 0.8
        names = [task["name"] for task in (await service.client.get("/tasks")).json()["tasks"]]
        assert names == ["digits", "shapes"]

    serve(registry, check)


def test_a_task_for_another_backbone_is_refused_and_the_others_are_served(registry):
    async def check(service):
        registry.publish("pliant-tokens-task-other", tiny_task("other", ["a", "b"], "f" * 64))
        response = await service.client.post("/tasks", json={"name": "other"})
        assert response.status_code == 409
        assert "task other was made for backbone ffffffffffff" in response.json()["error"]["message"]
        await check_good(service)

    serve(registry, check)


def test_a_task_with_other_gammas_than_the_rest_is_refused(registry):
    async def check(service):
        digest = service.catalog.backbone.digest
        registry.publish("pliant-tokens-task-odd", tiny_task("odd", ["a", "b"], digest, gammas=(2,)))
        response = await service.client.post("/tasks", json={"name": "odd"})
        assert response.status_code == 422
        assert "heads of task odd is for gammas [0, 2]" in response.text
        await check_good(service)

    serve(registry, check)


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ({"name": "nothing"}, 404, "name is 'nothing', but the registry has no such task"),
        ({"name": "digits", "alias": "nightly"}, 404, "has no version nightly"),
        ({"name": "../digits"}, 404, "the registry has no such task"),
        ({"name": "digits", "version": 9}, 404, "has no version 9"),
        ({"name": "digits", "version": "1"}, 422, "version is '1'"),
        ({"name": "digits", "version": 1, "alias": "x"}, 422, "version is given together with alias"),
        ({"alias": "champion"}, 422, "name is missing"),
        ({"name": 5}, 422, "name is 5"),
        (
            {"name": "digits", "stage": "x"},
            422,
            "'stage' is unknown",
        ),
        ([], 400, "body is a JSON list"),
    ],
)
def test_a_bad_registration_is_refused_with_a_sentence(registry, body, status, sentence):
    async def check(service):
        response = await service.client.post("/tasks", json=body)
        assert response.status_code == status, response.text
        assert sentence in response.json()["error"]["message"]
        await check_good(service)

    serve(registry, check)


def test_a_catalog_with_a_task_for_another_backbone_is_refused_before_serving(registry):
    registry.publish("pliant-tokens-task-other", tiny_task("other", ["a", "b"], "f" * 64))
    with pytest.raises(BackboneError, match="task other was made for backbone ffffffffffff"):
        load_catalog(registry, "champion")


def test_an_empty_registry_is_refused_before_serving(tmp_path):
    with pytest.raises(RegistryError, match="pliant-tokens-backbone has no version"):
        load_catalog(FolderRegistry(tmp_path), "champion")
