"""Tasks are registered while a service runs, and pinned to a version: by administrators alone, and seen by everybody."""

from __future__ import annotations

import logging

import httpx
import pytest

from pliant.errors import BackboneError, RegistryError
from pliant.serving.client import Client
from pliant.serving.tokens.catalog import load_catalog
from tests.fixtures.clients import as_client
from tests.fixtures.tokens.http import FolderRegistry, ask, check_good
from tests.fixtures.tokens.samples import tiny_task


async def test_a_task_published_later_can_be_registered_while_running(registry, service):
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


async def test_a_task_for_another_backbone_is_refused_and_the_others_are_served(registry, service):
    registry.publish("pliant-tokens-task-other", tiny_task("other", ["a", "b"], "f" * 64))
    response = await service.client.post("/tasks", json={"name": "other"})
    assert response.status_code == 409
    assert "task other was made for backbone ffffffffffff" in response.json()["error"]["message"]
    await check_good(service)


async def test_a_task_that_lacks_a_profiled_gamma_is_refused(registry, service):
    digest = service.catalog.backbone.digest
    registry.publish("pliant-tokens-task-odd", tiny_task("odd", ["a", "b"], digest, gammas=(2,)))
    response = await service.client.post("/tasks", json={"name": "odd"})
    assert response.status_code == 422
    assert "accuracy of task odd is without gammas [4, 8]" in response.text
    await check_good(service)


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
        ({"name": "digits", "stage": "x"}, 422, "'stage' is unknown"),
        ([], 400, "body is a JSON list"),
    ],
)
async def test_a_bad_registration_is_refused_with_a_sentence(service, body, status, sentence):
    response = await service.client.post("/tasks", json=body)
    assert response.status_code == status, response.text
    assert sentence in response.json()["error"]["message"]
    await check_good(service)


def test_a_catalog_with_a_task_for_another_backbone_is_refused_before_serving(registry):
    registry.publish("pliant-tokens-task-other", tiny_task("other", ["a", "b"], "f" * 64))
    with pytest.raises(BackboneError, match="task other was made for backbone ffffffffffff"):
        load_catalog(registry, "champion")


def test_an_empty_registry_is_refused_before_serving(tmp_path):
    with pytest.raises(RegistryError, match="pliant-tokens-backbone has no version"):
        load_catalog(FolderRegistry(tmp_path), "champion")


DIGITS = "pliant-tokens-task-digits"
ADMIN = Client("root", 1.0, frozenset({"use", "admin", "monitor"}), "1234abcd")
USER = Client("acme", 3.0, frozenset({"use", "monitor"}), "5678abcd")


def publish_second(service) -> None:
    service.registry.publish(
        DIGITS, tiny_task("digits", ["zero", "one", "two"], service.catalog.backbone.digest, seed=1)
    )


def as_(service, client: Client) -> None:
    """Let all further requests come from this client."""
    transport = httpx.ASGITransport(as_client(service.app, client))
    service.client = httpx.AsyncClient(transport=transport, base_url="http://test")


async def test_a_pin_is_shown_by_status_and_refresh_counted_and_logged_until_it_is_taken_off(service, caplog):
    as_(service, ADMIN)
    publish_second(service)
    assert (await service.refresh())["pins"] == {}
    with caplog.at_level(logging.WARNING, "pliant.serving"):
        assert (await service.client.post("/tasks", json={"name": "digits", "version": 1})).status_code == 200
    (record,) = caplog.records
    assert record.message == f"{DIGITS} is pinned to version 1 by key 1234abcd of root"
    outcome = await service.refresh()
    assert (outcome["outcome"], outcome["pins"]) == ("unchanged", {"digits": 1})
    assert outcome["message"].endswith("; pinned: digits version 1")
    assert (await service.client.get("/status")).json()["pins"] == {"digits": 1}
    assert service.counted.get_sample_value("pliant_pins") == 1
    assert (await ask(service)).json()["versions"]["task"] == 1
    caplog.clear()
    with caplog.at_level(logging.WARNING, "pliant.serving"):
        assert (await service.client.post("/tasks", json={"name": "digits", "version": None})).status_code == 200
    assert "no longer pinned: taken off by key 1234abcd of root" in caplog.text
    outcome = await service.refresh()
    assert outcome["pins"] == {} and "pinned" not in outcome["message"]
    assert service.counted.get_sample_value("pliant_pins") == 0
    assert (await ask(service)).json()["versions"]["task"] == 2


async def test_only_administrators_pin_register_and_refresh(service):
    publish_second(service)
    await service.refresh()
    as_(service, USER)
    for body in ({"name": "digits", "version": 1}, {"name": "digits"}):
        response = await service.client.post("/tasks", json=body)
        assert (response.status_code, response.json()["error"]["code"]) == (403, "forbidden")
    assert (await service.client.post("/refresh", json={})).status_code == 403
    assert (await ask(service)).json()["versions"]["task"] == 2
