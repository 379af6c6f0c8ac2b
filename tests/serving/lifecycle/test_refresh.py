"""A poll serves what has changed, whole, once; whatever fails leaves everything as it was, and says so."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from pliant.errors import ArtifactError, InputError, RegistryError, UnreachableError, WorkerError
from pliant.serving.lifecycle.generation import Generation
from pliant.serving.lifecycle.refresh import REPLACED, Outcome, Poller
from tests.fixtures.fakes import run_virtually
from tests.serving.lifecycle.refreshing import PREFIX, A, B, C, D, Registry, Service


async def test_a_generation_that_can_be_extended_keeps_its_driver():
    async def extend(present, target):
        return Generation(present.number, target, {}, present.driver)

    service = Service(extend=extend)
    service.registry.pointers = {A: 2}
    service.refuses = AssertionError("no generation is started")
    assert (await service.poll())[0] == "changed"
    assert service.served == {A: 2} and service.generations.present.driver is service.first.driver
    assert service.generations.draining == 0 and not service.first.driver.stopped


@pytest.mark.parametrize("error", [ArtifactError("another encoder"), InputError("gamma", 3, "profiled")])
async def test_versions_that_do_not_fit_are_held_and_tried_again_by_hand_only(error):
    service = Service()
    service.registry.pointers = {A: 2}
    service.broken = {2: error}
    held = ("held", f"the versions that champion points to are not served: {error}", {})
    assert await service.poll(retry_held=False) == held
    assert await service.poll(retry_held=False) == held and service.loads == 1
    assert await service.poll() == held and service.loads == 2
    assert service.served == {A: 1}
    service.broken = {}
    assert (await service.poll(retry_held=False))[0] == "held"
    assert (await service.poll())[0] == "changed" and service.served == {A: 2}


@pytest.mark.parametrize("error", [UnreachableError("no answer"), RegistryError("no such version")])
async def test_in_a_registry_without_releases_its_errors_fail_the_poll_and_the_next_one_tries_again(error):
    service = Service()
    service.registry.pointers = {A: 2}
    service.broken = {2: error}
    for _ in range(2):
        with pytest.raises(type(error)):
            await service.poll(retry_held=False)
    assert service.loads == 2 and service.outcomes == ["failed", "failed"]
    service.broken = {}
    assert (await service.poll(retry_held=False))[0] == "changed"


@pytest.mark.parametrize(
    ("error", "outcome"), [(RegistryError("no such version"), "held"), (UnreachableError("no answer"), "failed")]
)
async def test_a_release_that_lacks_a_version_is_held_but_a_registry_out_of_reach_is_tried_again(error, outcome):
    registry = Registry()
    registry.commit(a=1)
    service = Service(registry)
    registry.commit(a=2)
    service.broken = {1: error, 2: error}
    if outcome == "failed":
        with pytest.raises(UnreachableError):
            await service.poll(retry_held=False)
    else:
        assert (await service.poll(retry_held=False))[0] == "held"
    assert service.outcomes == [outcome] and service.refresher.release == 1
    service.broken = {}
    assert (await service.poll(retry_held=False))[0] == ("held" if outcome == "held" else "changed")
    assert (await service.poll())[0] == ("changed" if outcome == "held" else "unchanged")
    assert service.refresher.release == 2


@pytest.mark.parametrize("error", [WorkerError("no room"), asyncio.CancelledError()])
async def test_what_the_devices_refuse_is_discarded_and_the_former_serves_on(error):
    service = Service()
    service.registry.pointers = {A: 1, B: 2}
    service.refuses = error
    with pytest.raises(type(error)):
        await service.poll()
    assert service.registry.discarded == [Path(f"{B}-2")]  # what both have is still read
    assert service.generations.present is service.first and not service.first.driver.stopped
    service.refuses = None
    assert (await service.poll(retry_held=False))[0] == "changed"


async def test_a_broken_release_leaves_the_one_that_is_served_and_says_so_until_a_whole_one_comes():
    registry = Registry()
    registry.commit(a=1)
    service = Service(registry)
    registry.commit(a=2)
    service.broken = {2: ArtifactError("altered")}
    outcome, message, changed = await service.poll()
    assert (outcome, changed, service.refresher.release) == ("held", {}, 1)
    assert message == "the last release is broken (altered): release 1 is served"
    registry.commit(a=3)
    assert await service.poll() == ("changed", f"now served: {A} version 3", {A: 3})
    assert service.refresher.release == 3


async def test_aliases_that_differ_from_the_release_are_not_followed_and_named_once_in_the_log(caplog):
    registry = Registry()
    registry.commit(a=1, b=1, c=1, d=1)
    service = Service(registry)
    caplog.set_level(logging.WARNING, "pliant.serving")
    registry.pointers = {A: 2, B: 1, C: 1, D: 1, PREFIX + "stranger": 4}
    for _ in range(2):
        outcome, message, changed = await service.poll()
        assert (outcome, changed) == ("unchanged", {})
        assert message.startswith("the service serves what the alias points to; ")
        assert f"the alias champion of {A} differs from release 1" in message
    assert caplog.text.count("differs from release 1") == 1 and service.loads == 1
    registry.pointers = {A: 2, B: 2, C: 2}
    message = (await service.poll())[1]
    assert f"champion of {A}, {B}, {C}, ... differs" in message
    assert caplog.text.count("differs from release 1") == 2
    registry.pointers = {A: 2, B: 2, C: 2, D: 1}
    assert f"champion of {A}, {B}, {C} differs" in (await service.poll())[1]
    registry.pointers = dict.fromkeys((A, B, C, D), 1)
    assert await service.poll() == ("unchanged", "the service serves what the alias points to", {})


async def test_nothing_of_another_registry_is_served_and_nothing_of_it_is_remembered():
    service = Service()
    service.registry.name, service.registry.pointers = "another", {A: 2}
    for retry in (False, True):
        assert await service.poll(retry) == ("held", REPLACED, {})
    assert service.loads == 0 and service.served == {A: 1}
    service.registry.name = "the registry"
    assert (await service.poll(retry_held=False))[0] == "changed"


def watched(steps, poll, rung=lambda: 0) -> list[str]:
    """Let a watch that polls every ten seconds take `steps(poller)`, and return how its polls ended."""
    outcomes: list[str] = []

    async def main():
        poller = Poller(poll, 10.0, SimpleNamespace(refreshed=outcomes.append), rung)
        watch = asyncio.create_task(poller.run())
        await steps(poller)
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch

    run_virtually(main())
    return outcomes


def test_an_unexpected_error_does_not_end_the_watch_and_is_recorded():
    faults = [ValueError("a bug"), OSError("a socket"), MemoryError()]

    async def poll(_retry_held: bool) -> Outcome:
        if faults:
            raise faults.pop(0)
        return Outcome("unchanged", "", {})

    async def steps(poller):
        await asyncio.sleep(25)
        assert (poller.last.outcome, poller.last.message) == ("failed", "a socket")
        await asyncio.sleep(20)

    assert watched(steps, poll) == ["failed", "failed", "failed", "unchanged"]


def test_a_bell_that_rings_is_followed_by_a_poll_at_once_and_without_it_polls_come_as_usual():
    times, rung = [], [0]

    async def poll(_retry_held: bool) -> Outcome:
        times.append(asyncio.get_running_loop().time())
        return Outcome("unchanged", "", {})

    async def steps(poller):
        start = asyncio.get_running_loop().time()
        await asyncio.sleep(3)
        assert times == []
        rung[0] = 1
        await asyncio.sleep(0.5)
        assert len(times) == 1 and times[0] < start + 3.5
        await asyncio.sleep(11)
        assert len(times) == 2

    watched(steps, poll, lambda: rung[0])
