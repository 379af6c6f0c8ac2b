"""A former generation answers what it has and goes; one that fails to start or to stop leaves nothing running."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from pliant.errors import WorkerError
from pliant.serving.lifecycle.generation import Generation, Generations
from pliant.serving.request_context import to_challenger
from tests.serving.lifecycle.refreshing import A, B, Registry, Service


@dataclass(eq=False)
class Driver:
    """Stops once it is let go."""

    trouble: str = ""
    done: list[str] = field(default_factory=list)
    free: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self) -> None:
        self.done.append("start")
        if self.trouble == "start":
            raise WorkerError("no memory")

    async def stop(self) -> None:
        await self.free.wait()
        self.done.append("stop")
        if self.trouble == "stop":
            raise OSError("a socket")


@pytest.mark.parametrize("trouble", ["", "stop"])
async def test_a_former_one_drains_beside_the_present_and_is_reported_once_however_it_ends(trouble, caplog):
    reported = []
    first, second = (Generation(number, None, {}, Driver(trouble)) for number in (1, 2))
    generations = Generations(first, reported.append)
    generations.promote(second)
    assert generations.present is second and generations.draining == 1
    await asyncio.sleep(0.01)
    assert reported == [] and first.driver.done == []
    first.driver.free.set()
    await asyncio.sleep(0.01)
    assert reported == [first] and generations.draining == 0
    assert second.driver.done == []
    assert ("generation 1 did not stop cleanly" in caplog.text) is bool(trouble)


class Ready(Driver):
    ready = True


def ready(number: int, catalog=None) -> Generation:
    driver = Ready()
    driver.free.set()
    return Generation(number, catalog, {}, driver)


@pytest.mark.virtual
async def test_a_former_one_stays_loaded_for_a_while_so_that_going_back_takes_no_time():
    first, second, third = (ready(number, f"release {number}") for number in (1, 2, 3))
    stopped = []
    generations = Generations(first, stopped.append, standby_seconds=60.0)
    generations.promote(second)
    await asyncio.sleep(59)
    assert generations.standby is first and first.driver.done == [] and generations.draining == 0
    assert generations.take_loaded(lambda catalog: catalog == "release 3") is None
    back = generations.take_loaded(lambda catalog: catalog == "release 1")
    assert back is first and generations.standby is None
    generations.promote(back)
    assert generations.present is first and generations.standby is second
    await asyncio.sleep(59)
    assert second.driver.done == []
    await asyncio.sleep(2)
    assert second.driver.done == ["stop"] and stopped == [second] and generations.standby is None
    generations.promote(third)
    await generations.stop()
    assert third.driver.done == first.driver.done == ["stop"]


@pytest.mark.virtual
async def test_only_requests_that_are_routed_to_the_challenger_go_there_and_so_do_the_tasks_that_they_start():
    first, second = ready(1), ready(2)
    generations = Generations(first)
    with to_challenger():
        assert generations.chosen is first
    generations.challenge(second)
    assert generations.chosen is first

    async def chosen():
        return generations.chosen

    with to_challenger():
        assert generations.chosen is second and generations.present is first
        assert await asyncio.create_task(chosen()) is second
        generations.end_challenge()
        assert generations.chosen is first
    await asyncio.sleep(0.1)
    assert second.driver.done == ["stop"]
    await generations.stop()


@pytest.mark.virtual
async def test_a_challenger_that_is_promoted_goes_on_and_another_challenger_replaces_the_former_one():
    first, second, third = (ready(number) for number in (1, 2, 3))
    generations = Generations(first)
    generations.challenge(second, promotable=False)
    assert generations.take_loaded(lambda _: True) is None
    generations.challenge(third)
    assert generations.take_loaded(lambda _: True) is third
    await asyncio.sleep(0.1)
    assert second.driver.done == ["stop"]
    generations.promote(third)
    await asyncio.sleep(0.1)
    assert generations.present is third and generations.challenger is None
    assert (first.driver.done, third.driver.done) == (["stop"], [])
    await generations.stop()


@pytest.mark.virtual
async def test_a_guarded_promotion_leaves_the_former_one_beside_and_going_back_or_another_one_ends_that():
    first, second, third = (ready(number, number) for number in (1, 2, 3))
    generations = Generations(first)
    generations.challenge(second)
    generations.guards = True
    generations.promote(second)
    assert generations.former_beside and generations.present is second
    with to_challenger():
        assert generations.chosen is first
    generations.promote(generations.take_loaded(lambda catalog: catalog == 1))
    assert generations.present is first and generations.challenger is None and not generations.former_beside
    generations.challenge(third)
    generations.promote(third)
    assert generations.former_beside
    await generations.drop_standby()
    assert first.driver.done == ["stop"] and generations.present is third and not generations.former_beside
    await generations.stop()


def released(*versions: int) -> Registry:
    registry = Registry()
    for version in versions:
        registry.commit(a=version, b=1)
    return registry


async def test_a_rollback_serves_the_former_generation_at_once_and_so_does_the_way_forth():
    service = Service(released(1), standby_seconds=60.0)
    service.registry.commit(a=2, b=1)
    assert (await service.poll())[0] == "changed" and service.starts == 1
    second = service.generations.present
    service.registry.released.append(service.registry.released[0])  # the alias goes back
    service.registry.pointers = {A: 1, B: 1}
    assert await service.poll() == ("changed", f"now served: {A} version 1", {A: 1})
    assert service.generations.present is service.first and service.generations.standby is second
    assert service.starts == 1 and not second.driver.stopped
    assert service.refresher.release == 1
    service.registry.commit(a=2, b=1)
    assert (await service.poll())[0] == "changed"
    assert service.generations.present is second and service.starts == 1
    await service.generations.stop()
    assert service.first.driver.stopped and second.driver.stopped
