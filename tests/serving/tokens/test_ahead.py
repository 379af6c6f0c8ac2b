"""The driver under a scheduler that decides ahead: two batches are in flight, and what dies is answered nevertheless."""

from __future__ import annotations

import asyncio

import pytest

from pliant.latency import LatencyTable
from pliant.protocol import Launch, replay
from pliant.serving.driver import Driver, Limits, loop_clock
from pliant.tokens.artifact import RateRule
from pliant.tokens.policies import make
from pliant.tokens.scheduler import Knowledge
from tests.fixtures.fakes import FakeWorker, run_virtually

TABLE = LatencyTable((0,), (1, 64), ((0.02, 0.02),))
KNOWN = Knowledge(TABLE, {"digits": {0: 0.9}}, RateRule((), (0,)), lead=0.005)


def scheduler(workers: int = 1):
    return make("default", KNOWN, workers)


def served(check, workers: int = 1, ahead: bool = True):
    """Run `check` in virtual time with a driver, its workers and its journal, which must replay."""

    async def main():
        journal, devices = [], [FakeWorker() for _ in range(workers)]
        limits = Limits(ahead=ahead)
        driver = Driver(scheduler(workers), devices, journal.append, loop_clock(), limits, facts=KNOWN.plain())
        await driver.start()
        await check(driver, devices, journal)
        await driver.stop()
        assert replay(scheduler(workers), journal) == journal

    run_virtually(main())


def asking(driver, *payloads) -> list[asyncio.Task]:
    return [asyncio.create_task(driver.submit("digits", 5.0, 1.0, payload)) for payload in payloads]


def test_the_next_batch_is_at_the_device_before_the_running_one_ends():
    async def check(driver, devices, journal):
        first = asking(driver, "a")
        await asyncio.sleep(0.001)
        later = asking(driver, "b", "c")
        answers = await asyncio.gather(*first, *later)
        assert [answer.output for answer in answers] == ["a", "b", "c"]
        assert devices[0].calls[:4] == ["start", ("a",), ("ahead", "b", "c"), ("b", "c")]
        assert driver.now == pytest.approx(0.04)

    served(check)


def test_a_device_that_dies_with_two_batches_in_flight_answers_both_after_its_restart():
    async def check(driver, devices, journal):
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

    served(check)


def test_of_two_devices_the_other_one_takes_over_what_the_dead_one_had():
    async def check(driver, devices, journal):
        waiting = asking(driver, "a")
        await asyncio.sleep(0.001)
        waiting += asking(driver, "b")
        await asyncio.sleep(0.001)
        devices[0].dead = True
        answers = await asyncio.gather(*waiting)
        assert [answer.output for answer in answers] == ["a", "b"]
        workers = [a.worker for entry in journal for a in entry.actions if isinstance(a, Launch) and a.requests]
        assert workers == [0, 1, 1] and driver.up == [False, True]

    served(check, workers=2)
