"""The driver under a scheduler that decides ahead: two batches are in flight, and what dies is answered nevertheless."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from pliant.latency import LatencyTable
from pliant.protocol import Launch, replay
from pliant.serving.driver import Driver, Limits, loop_clock
from pliant.tokens.artifact import RateRule
from pliant.tokens.policies import make
from pliant.tokens.scheduler import Knowledge
from tests.fixtures.fakes import FakeWorker

pytestmark = pytest.mark.virtual

TABLE = LatencyTable((0,), (1, 64), ((0.02, 0.02),))
KNOWN = Knowledge(TABLE, {"digits": {0: 0.9}}, RateRule((), (0,)), lead=0.005)


def scheduler(workers: int = 1):
    return make("default", KNOWN, workers)


@asynccontextmanager
async def served(workers: int = 1):
    """A driver, its workers and its journal, which must replay."""
    journal, devices = [], [FakeWorker() for _ in range(workers)]
    limits, facts = Limits(ahead=True), KNOWN.plain()
    driver = Driver(scheduler(workers), devices, journal.append, loop_clock(), limits, facts=facts)
    await driver.start()
    yield driver, devices, journal
    await driver.stop()
    assert replay(scheduler(workers), journal) == journal


def asking(driver, *payloads) -> list[asyncio.Task]:
    return [asyncio.create_task(driver.submit("digits", 5.0, 1.0, payload)) for payload in payloads]


async def test_the_next_batch_is_at_the_device_before_the_running_one_ends():
    async with served() as (driver, devices, _):
        first = asking(driver, "a")
        await asyncio.sleep(0.001)
        later = asking(driver, "b", "c")
        answers = await asyncio.gather(*first, *later)
        assert [answer.output for answer in answers] == ["a", "b", "c"]
        assert devices[0].calls[:4] == ["start", ("a",), ("ahead", "b", "c"), ("b", "c")]
        assert driver.now == pytest.approx(0.04)


async def test_a_device_that_dies_with_two_batches_in_flight_answers_both_after_its_restart():
    async with served() as (driver, devices, journal):
        first = asking(driver, "a")
        await asyncio.sleep(0.001)
        later = asking(driver, "b", "c")
        await asyncio.sleep(0.017)
        assert ("ahead", "b", "c") in devices[0].calls and driver.waiting == 0
        devices[0].dead = True
        answers = await asyncio.gather(*first, *later)
        assert [answer.output for answer in answers] == ["a", "b", "c"]
        restarts = [action for entry in journal for action in entry.actions if getattr(action, "kind", "") == "restart"]
        assert len(restarts) == 1


async def test_of_two_devices_the_other_one_takes_over_what_the_dead_one_had():
    async with served(2) as (driver, devices, journal):
        waiting = asking(driver, "a")
        await asyncio.sleep(0.001)
        waiting += asking(driver, "b")
        await asyncio.sleep(0.001)
        devices[0].dead = True
        answers = await asyncio.gather(*waiting)
        assert [answer.output for answer in answers] == ["a", "b"]
        workers = [a.worker for entry in journal for a in entry.actions if isinstance(a, Launch) and a.requests]
        assert workers == [0, 1, 1] and driver.up == [False, True]
