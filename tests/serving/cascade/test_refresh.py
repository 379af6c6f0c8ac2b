"""A new champion replaces the present one without affecting earlier requests."""

from __future__ import annotations

import asyncio

import pytest

from pliant.registry.names import CASCADE_TASK, cascade_level
from pliant.serving.http.api_errors import ApiError
from tests.fixtures.cascade.in_process import UNSURE, serve
from tests.fixtures.cascade.published import publish_tiny, tiny_classifier


async def until(condition) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def versions(service, **told) -> dict:
    return (await service.ask(UNSURE, **told))[0]["versions"]


def test_a_new_champion_answers_new_requests_and_the_former_one_those_that_it_has(registry):
    async def check(service):
        old = service.devices[0]
        old.seconds = 2.0
        before = asyncio.create_task(versions(service))
        await until(lambda: service.present.driver.pending)
        publish_tiny(registry, seed=1)
        told = await service.endpoint.refresh()
        assert (told["outcome"], told["changed"][CASCADE_TASK + "colours"]) == ("changed", 2)
        assert await versions(service) == {"task": 2, "models": {"small": 2, "large": 2}}
        assert not before.done()
        assert await before == {"task": 1, "models": {"small": 1, "large": 1}}
        await until(lambda: old.stopped)
        assert (service.present.number, service.endpoint.status()["generation"]) == (2, 2)
        await until(lambda: len(registry.discarded) == 4)
        models = [f"{cascade_level('colours', level)}/1" for level in ("small", "large")]
        tasks = [f"{CASCADE_TASK}colours/{version}" for version in (1, 2)]  # as soon as they are in memory
        assert {str(folder) for folder in registry.discarded} == {*models, *tasks}
        assert service.sample("pliant_refreshes_total", outcome="changed") == 1

    serve(registry, check, run=asyncio.run)


def test_a_classifier_promoted_before_its_task_waits_for_it_and_is_not_fetched_at_every_poll(registry):
    async def check(service):
        digest = registry.publish(cascade_level("colours", "large"), tiny_classifier("colours", "large", seed=1))
        told = await service.endpoint.refresh()
        assert told["outcome"] == "held"
        assert f"is {digest[:12]}" in told["message"]
        fetched = len(registry.fetched)
        assert (await service.assembly.refresher.poller.poll(retry_held=False)).outcome == "held"
        assert len(registry.fetched) == fetched
        assert (await versions(service))["models"]["large"] == 1
        publish_tiny(registry, seed=1)
        assert (await service.endpoint.refresh())["outcome"] == "changed"

    serve(registry, check, run=asyncio.run)


def test_tasks_come_and_go_with_the_alias(registry):
    async def check(service):
        publish_tiny(registry, "shades", seed=1)
        await service.endpoint.refresh()
        assert [task["name"] for task in service.endpoint.tasks()] == ["colours", "shades"]
        assert (await versions(service, task="shades"))["task"] == 1
        del registry.champions[CASCADE_TASK + "shades"]
        assert (await service.endpoint.refresh())["outcome"] == "changed"
        with pytest.raises(ApiError, match="must be one of colours"):
            await service.ask(task="shades")

    serve(registry, check, run=asyncio.run)
