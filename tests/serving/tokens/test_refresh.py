"""A service follows the registry's alias while it answers requests, over fakes of registry and device."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from pliant.latency import LatencyTable
from pliant.protocol import Changed
from pliant.tokens.artifact import GAMMAS
from tests.fixtures.tokens.http import SETTINGS, ask, check_good, serving
from tests.fixtures.tokens.samples import tiny_backbone, tiny_profile, tiny_task

BACKBONE, PROFILE, DIGITS, SHAPES = (
    f"pliant-tokens-{p}" for p in ("backbone", "profile", "task-digits", "task-shapes")
)
CLASSES = ["zero", "one", "two"]


def task(digest: str, seed: int = 0, classes=CLASSES, name: str = "digits"):
    return tiny_task(name, classes, digest, seed=seed)


def new_backbone(registry, promote: bool = True) -> str:
    return registry.publish(BACKBONE, tiny_backbone(seed=1), promote)


async def versions(service, **changes) -> dict[str, int]:
    return (await ask(service, **changes)).json()["versions"]


async def test_a_tasks_new_champion_answers_from_then_on_and_the_scheduler_knows_its_accuracy(registry, service):
    assert (await versions(service))["task"] == 1
    better = replace(task(service.catalog.backbone.digest, 1), accuracy=dict.fromkeys(GAMMAS, 0.99))
    registry.publish(DIGITS, better)
    assert (await service.refresh())["changed"] == {DIGITS: 2}
    assert await versions(service) == {"backbone": 1, "task": 2, "profile": 1}
    assert dict(service.journal[-3].event.facts["accuracy"]["digits"])[-5] == 0.99
    assert ("update", "digits") in service.device.calls
    counted = service.counted.get_sample_value
    origin = {
        "task": "digits",
        "backbone_version": "1",
        "profile_version": "1",
    }
    assert [counted("pliant_answers_total", {**origin, "task_version": v}) for v in "12"] == [1, 1]


async def test_after_the_way_back_answers_name_the_former_versions_though_the_artifacts_are_the_same(registry):
    async with serving(registry, SETTINGS.replace(standby_seconds=60.0)) as service:
        registry.publish(BACKBONE, tiny_backbone())
        registry.publish(DIGITS, task(service.catalog.backbone.digest))
        for version in (2, 1):
            registry.champions.update({BACKBONE: version, DIGITS: version})
            assert (await service.refresh())["outcome"] == "changed"
            assert (await versions(service)) == {"backbone": version, "task": version, "profile": 1}
        assert service.assembly.generations.standby is not None, "the way back must not have started a generation"


async def test_a_task_that_gets_the_alias_is_served_and_one_that_loses_it_is_not(registry, service):
    registry.publish(SHAPES, task(service.catalog.backbone.digest, 1, ["round", "square"], "shapes"))
    await service.refresh()
    assert (await ask(service, task="shapes")).json()["label"] == "round"
    del registry.champions[SHAPES]
    assert (await service.refresh())["outcome"] == "changed"
    assert (await ask(service, task="shapes")).status_code == 404
    await check_good(service)


async def test_who_waits_for_a_task_that_goes_gets_an_answer_and_nobody_new_does(registry, service):
    registry.publish(SHAPES, task(service.catalog.backbone.digest, 1, ["round", "square"], "shapes"))
    await service.refresh()
    service.device.seconds = 0.2
    waiting = asyncio.create_task(ask(service, task="shapes"))
    while not service.driver.pending:
        await asyncio.sleep(0)
    del registry.champions[SHAPES]
    assert (await service.refresh())["outcome"] == "changed"
    assert (await ask(service, task="shapes")).status_code == 404
    assert (await waiting).json()["label"] == "round"


async def test_a_new_profile_is_a_new_generation_that_plans_by_it(registry, service):
    profile = tiny_profile(service.catalog.backbone.digest, "a device")
    slow = tuple(tuple(2 * value for value in row) for row in profile.latency.seconds)
    table = LatencyTable(profile.latency.settings, profile.latency.batches, slow)
    first = service.device
    registry.publish(PROFILE, replace(profile, latency=table))
    await service.refresh()
    assert await versions(service) == {"backbone": 1, "task": 1, "profile": 2}
    assert service.scheduler.facts[-1]["latency"]["seconds"] == [list(row) for row in slow]
    status = (await service.client.get("/status")).json()
    assert (status["profile"]["version"], status["generation"]) == (2, 2)
    assert (service.device is first, first.calls[-1]) == (False, "stop")


async def test_a_task_with_a_head_that_nobody_asks_for_takes_the_place_of_the_former(registry, service):
    first, digest = service.device, service.catalog.backbone.digest
    registry.publish(DIGITS, tiny_task("digits", CLASSES, digest, gammas=(2, 4, 8, 16)))
    assert (await service.refresh())["outcome"] == "changed"
    assert (await versions(service))["task"] == 2
    assert service.device is first


async def refused(service, status: int, sentence: str) -> None:
    """Check that a poll fails with this status, is counted and reported, and changes nothing."""
    before = service.catalog
    response = await service.client.post("/refresh", json={})
    assert response.status_code == status
    assert sentence in response.json()["error"]["message"]
    await check_unchanged(service, "failed", sentence, before)


async def check_unchanged(service, outcome: str, sentence: str, before) -> None:
    refresh = (await service.client.get("/status")).json()["refresh"]
    assert (refresh["outcome"], sentence in refresh["message"]) == (outcome, True), refresh
    assert service.counted.get_sample_value("pliant_refreshes_total", {"outcome": outcome}) == 1
    assert service.catalog is before
    assert await versions(service) == {"backbone": 1, "task": 1, "profile": 1}


async def test_a_change_that_fails_leaves_every_task_served(registry, service):
    registry.publish(SHAPES, task(service.catalog.backbone.digest, 1, ["round", "square"], "shapes"))
    await service.refresh()
    digest, former = new_backbone(registry), registry.champions.pop(SHAPES)
    for name, made in ((DIGITS, task(digest, 1)), (PROFILE, tiny_profile(digest, "a device"))):
        registry.publish(name, made)
    service.trouble = "no room"
    await refused(service, 503, "no room")
    registry.champions[SHAPES] = former  # shapes was to go with the change, and once stayed refused
    assert (await ask(service, task="shapes")).status_code == 200


async def test_an_update_that_the_device_refuses_takes_the_scheduler_back(registry, service):
    registry.publish(DIGITS, replace(task(service.catalog.backbone.digest, 1), accuracy=dict.fromkeys(GAMMAS, 0.5)))
    service.device.refuses = "digits"
    await refused(service, 503, "the device refuses it")
    told = [e.event.facts["accuracy"] for e in service.journal if isinstance(e.event, Changed)]
    assert told[0] == told[2] != told[1]


async def test_a_task_registered_by_version_stays_at_it_until_a_new_backbone_comes(registry, service):
    digest = service.catalog.backbone.digest
    registry.publish(DIGITS, task(digest, 1), promote=False)
    await service.client.post("/tasks", json={"name": "digits", "version": 2})
    assert (await service.refresh())["outcome"] == "unchanged"
    assert (await versions(service))["task"] == 2
    new = new_backbone(registry)
    registry.publish(PROFILE, tiny_profile(new, "a device"))
    registry.publish(DIGITS, task(new, 2))
    assert (await service.refresh())["outcome"] == "changed"
    assert (await versions(service))["task"] == 3
    assert (await service.refresh())["outcome"] == "unchanged"  # the pin once came back here, for good
