"""A worker that dies while idle delays no request."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager

import pytest

from pliant.errors import InputError
from pliant.protocol import Failed, Finished, Launch
from pliant.serving.cascade.settings import CascadeSettings
from pliant.serving.driver import Driver, loop_clock
from pliant.serving.packing.settings import PackingSettings
from pliant.serving.workers.worker import ModelError
from pliant.serving.workers.worker_slot import FACTOR, FLOOR, LaunchLimit, Spares, WorkerSlot, within
from tests.fixtures.fakes import FakeWorker, FifoScheduler


@pytest.mark.virtual
async def test_an_update_whose_caller_leaves_reaches_the_worker_whole():
    begun, ended = [], []

    class Worker(FakeWorker):
        async def update(self, value, build):
            begun.append(value)
            await asyncio.sleep(1)
            ended.append((value, build))

    slot = WorkerSlot(Worker(), 60.0, lambda: None)
    update = asyncio.create_task(slot.update("value", lambda _: "build"))
    await asyncio.sleep(0.5)
    update.cancel()
    await asyncio.sleep(1)
    assert (begun, ended) == (["value"], [("value", "build")])


# One slot, word by word


class Odd(FakeWorker):
    """Returns one output too many for "two", and takes half a second to load a model unless it is model 13."""

    async def run(self, setting, payloads):
        outputs, seconds = await super().run(setting, payloads)
        return ([*outputs, "another"] if "two" in payloads else outputs), seconds

    async def load(self, number):
        if number == 13:
            raise ModelError("no model 13")
        return await super().load(number)


@asynccontextmanager
async def slot_made():
    """A slot that is not started, its worker, and the times of idle deaths; in the end nothing of it goes on."""
    deaths: list[float] = []
    loop, worker = asyncio.get_running_loop(), Odd()
    yield WorkerSlot(worker, 60.0, lambda: deaths.append(loop.time())), worker, deaths
    assert len(asyncio.all_tasks()) == 1


@pytest.fixture
def made():
    return slot_made()


@pytest.mark.virtual
async def test_too_many_outputs_and_a_model_that_is_not_loaded_cost_the_process(made):
    slot, worker, deaths = made
    await slot.start()
    end, outputs = await slot.carry_out(Launch(0, 0, (1,)), ["two"])
    assert (end, outputs) == (Failed(0, "the worker returned 2 outputs for 1 requests"), ())
    assert not slot.up and slot.launch is None and worker.calls[-1] == "kill"
    launch = Launch(1, 0, (2,))
    assert await slot.carry_out(launch, ["x"]) == (Failed(1, "the worker died while idle"), ())
    assert worker.calls.count(("x",)) == 0
    end, _ = await slot.carry_out(Launch(2, 0, (), kind="restart"), [])
    assert isinstance(end, Finished) and end.launch == 2 and end.seconds < 60 and slot.up
    end, _ = await slot.carry_out(Launch(3, 0, (), setting=13, kind="load"), [])
    assert end == Failed(3, "no model 13") and not slot.up and worker.calls[-1] == "kill"
    assert deaths == []


@pytest.mark.virtual
async def test_an_idle_death_is_counted_once_and_repaired_at_once_and_then_every_second(made):
    slot, worker, deaths = made
    await slot.start()
    worker.failing_restarts = 2
    await asyncio.sleep(1.0)
    worker.die()
    worker.die()
    assert not slot.up and deaths == [1.0]
    await asyncio.sleep(4.6)  # three restarts of half a second, with a second between each two
    assert slot.up and worker.calls == ["start", *["restart"] * 3]
    end, _ = await slot.carry_out(Launch(0, 0, (), kind="restart"), [])
    assert isinstance(end, Finished) and worker.calls.count("restart") == 3, "it is up already"
    worker.die()
    assert len(deaths) == 2, "the restarted worker is listened to"
    await slot.stop()
    assert worker.calls[-1] == "stop" and not slot.up


MOST = 60.0


def launch(expected: float = 0.01, setting: int = 3, id: int = 0, kind: str = "run") -> Launch:
    return Launch(id, 0, (1,), setting, kind, expected)


def test_a_limit_is_a_multiple_of_the_profile_within_its_floor_and_the_configured_most():
    limit = LaunchLimit(MOST)
    limit.finished(launch(), 0.0)
    assert limit.seconds(launch(0.01), 1.0) == FLOOR
    assert limit.seconds(launch(1.5), 1.0) == FACTOR * 1.5
    assert limit.seconds(launch(20.0), 1.0) == MOST
    assert limit.seconds(launch(0.0), 1.0) == MOST  # nothing is expected
    assert LaunchLimit(0.5).seconds(launch(0.01), 1.0) == 0.5


async def slot_that_has_run() -> tuple[WorkerSlot, FakeWorker]:
    worker = FakeWorker()
    slot = WorkerSlot(worker, MOST, lambda: None)
    await slot.start()
    assert isinstance((await slot.carry_out(launch(), ["x"]))[0], Finished)
    return slot, worker


@pytest.mark.virtual
async def test_a_hang_is_noticed_after_the_floor_not_after_the_configured_limit():
    slot, worker = await slot_that_has_run()
    loop = asyncio.get_running_loop()
    began = loop.time()
    event, _ = await slot.carry_out(launch(id=1), ["hang"])
    assert loop.time() - began == pytest.approx(FLOOR)
    assert event == Failed(1, "it was still running after 2 s")
    assert worker.calls[-1] == "kill"


async def test_a_loop_that_was_held_up_still_finds_the_result_that_came_meanwhile():
    """A machine that stands still for longer than the limit loses no worker."""
    loop = asyncio.get_running_loop()
    came: asyncio.Future[int] = loop.create_future()

    async def call() -> int:
        return await came

    async def hold_up():
        time.sleep(0.3)  # nothing runs meanwhile
        loop.call_later(0.01, came.set_result, 7)

    holding = asyncio.create_task(hold_up())
    assert await within(0.2, call()) == 7
    await holding


STARTED = 0.6  # seconds in which a fake worker has started


@pytest.mark.virtual
async def test_a_worker_that_dies_during_a_launch_is_replaced_at_once():
    journal, worker, spare = [], FakeWorker(), FakeWorker()
    driver = Driver(FifoScheduler(), [worker], journal.append, loop_clock(), spares=[spare])
    await driver.start()
    assert driver.ready, "nobody waits for spares"
    await asyncio.sleep(STARTED)
    assert driver.spares == 1
    asked = asyncio.create_task(driver.submit("a", 0.1, 1.0, "x"))
    await asyncio.sleep(0.001)
    worker.dead = True
    answer = await asked
    assert answer.output == "x" and answer.on_time and ("x",) in spare.calls
    begun = {a.id: e.now for e in journal for a in e.actions if isinstance(a, Launch) and a.kind == "restart"}
    ended = {e.event.launch: e.now for e in journal if isinstance(e.event, Finished) and e.event.launch in begun}
    assert len(begun) == 1 and ended == begun
    await asyncio.sleep(STARTED)
    assert driver.spares == 1, "the former worker stands by"
    spare.die()
    assert (await driver.submit("a", 0.1, 1.0, "y")).output == "y"
    assert worker.calls[-1] == ("y",)
    await driver.stop()
    assert worker.calls[-1] == spare.calls[-1] == "stop"


def test_a_number_below_zero_and_packing_are_refused_with_a_sentence():
    with pytest.raises(InputError, match="PLIANT_SPARE is -1"):
        CascadeSettings(spare=-1)
    with pytest.raises(InputError, match="a second one has no room"):
        PackingSettings(spare=1)


# Spares by themselves


@asynccontextmanager
async def spares_started():
    """Two spares that have been started, and the workers that they are made of."""
    workers = [FakeWorker(build="build"), FakeWorker(build="build")]
    spares = Spares(workers)
    assert spares.ready == 0 and all(worker.calls == [] for worker in workers)
    spares.start()
    await asyncio.sleep(STARTED)
    assert spares.ready == 2
    yield spares, workers
    await spares.stop()
    assert len(asyncio.all_tasks()) == 1


@pytest.fixture
def started():
    return spares_started()


@pytest.mark.virtual
async def test_an_update_that_comes_while_a_spare_starts_starts_it_again_with_the_update(started):
    spares, workers = started
    workers[0].die()
    await asyncio.sleep(0.1)
    await spares.update("task b", lambda _: "with b")
    assert (workers[0].build, workers[1].build) == ("with b", "build")
    assert ("update", "task b") not in workers[0].calls and workers[1].calls[-1] == ("update", "task b")
    await asyncio.sleep(0.5)
    assert spares.ready == 1, "it has the former model"
    await asyncio.sleep(0.5)
    assert spares.ready == 2 and workers[0].calls == ["restart"] * 3


@pytest.mark.virtual
async def test_a_spare_that_refuses_an_update_is_started_with_it(started):
    spares, workers = started
    workers[1].refuses = "task b"
    await spares.update("task b", lambda _: "with b")
    assert (spares.ready, workers[0].build, workers[1].build) == (1, "build", "with b")
    await asyncio.sleep(STARTED)
    assert spares.ready == 2 and workers[1].calls == ["restart"] * 2
    spares.remember(lambda _: "with c")
    assert [worker.build for worker in workers] == ["with c"] * 2
