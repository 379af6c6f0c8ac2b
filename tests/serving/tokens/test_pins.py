"""A task that is pinned to a version: by administrators alone, seen by everybody who looks, and taken off again."""

from __future__ import annotations

import logging

import httpx

from pliant.serving.client import Client
from tests.fixtures.clients import as_client
from tests.fixtures.tokens.http import ask, serve
from tests.fixtures.tokens.samples import tiny_task

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


def test_a_pin_is_shown_by_status_and_refresh_counted_and_logged_until_it_is_taken_off(registry, caplog):
    async def check(service):
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

    serve(registry, check)


def test_only_administrators_pin_register_and_refresh(registry):
    async def check(service):
        publish_second(service)
        await service.refresh()
        as_(service, USER)
        for body in ({"name": "digits", "version": 1}, {"name": "digits"}):
            response = await service.client.post("/tasks", json=body)
            assert (response.status_code, response.json()["error"]["code"]) == (403, "forbidden")
        assert (await service.client.post("/refresh", json={})).status_code == 403
        assert (await ask(service)).json()["versions"]["task"] == 2

    serve(registry, check)
