"""A former generation answers what it has and goes; one that fails to start or to stop leaves nothing running."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from pliant.errors import WorkerError
from serving.lifecycle.generation import Generation, Generations, numbered_journal


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


class Recorder:
    closed = False

    def close(self) -> None:
        self.closed = True


def test_one_that_cannot_start_is_stopped_with_its_journal():
    async def run():
        driver, recorder = Driver("start"), Recorder()
        driver.free.set()
        with pytest.raises(WorkerError, match="no memory"):
            await Generation(1, None, {}, driver, recorder).start()
        assert driver.done == ["start", "stop"] and recorder.closed

    asyncio.run(run())


@pytest.mark.parametrize("trouble", ["", "stop"])
def test_a_former_one_drains_beside_the_present_and_is_reported_once_however_it_ends(trouble, caplog):
    async def run():
        reported = []
        first, second = (Generation(number, None, {}, Driver(trouble)) for number in (1, 2))
        generations = Generations(first, lambda *pair: reported.append(pair))
        generations.promote(second)
        assert generations.present is second and generations.draining == 1
        await asyncio.sleep(0.01)
        assert reported == [] and first.driver.done == []
        first.driver.free.set()
        await asyncio.sleep(0.01)
        assert reported == [(first, second)] and generations.draining == 0
        assert second.driver.done == []
        assert ("generation 1 did not stop cleanly" in caplog.text) is bool(trouble)

    asyncio.run(run())


def test_the_end_waits_for_all_generations():
    async def run():
        first, second = (Generation(number, None, {}, Driver()) for number in (1, 2))
        generations = Generations(first)
        generations.promote(second)
        end = asyncio.create_task(generations.stop())
        second.driver.free.set()
        await asyncio.sleep(0.01)
        assert second.driver.done == ["stop"] and not end.done()
        first.driver.free.set()
        await end
        assert first.driver.done == ["stop"]

    asyncio.run(run())


def test_an_amended_generation_keeps_its_driver():
    async def run():
        generations = Generations(Generation(1, "old", {}, Driver()))
        amended = replace(generations.present, catalog="new")
        generations.amend(amended)
        assert generations.present is amended and generations.draining == 0
        with pytest.raises(AssertionError, match="another driver"):
            generations.amend(Generation(1, "other", {}, Driver()))

    asyncio.run(run())


def test_each_generation_has_a_journal_of_its_own_and_the_first_the_plain_name():
    names = [numbered_journal(Path("folder/j.jsonl"), number).as_posix() for number in (1, 2, 11)]
    assert names == ["folder/j.jsonl", "folder/j-2.jsonl", "folder/j-11.jsonl"]
