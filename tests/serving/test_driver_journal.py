"""The driver's journal to the last event, its counts, its limits and its end, and what it does about a broken read."""

from __future__ import annotations

import asyncio
import dataclasses

from pliant.protocol import Answer, Arrived, Drop, Finished, JournalEntry, Launch, Request, Result, Woke
from pliant.serving.clock import loop_clock
from pliant.serving.driver import Driver
from tests.fixtures.fakes import FakeWorker, FifoScheduler, run_virtually
from tests.serving.test_driver import Bench


def test_the_journal_holds_every_event_with_its_time_and_wakes_once_at_each_deadline():
    async def main():
        bench = Bench()
        bench.workers[0].seconds = 3.0
        await bench.driver.start()
        asks = []
        for deadline in (10.0, 0.5, 2.0):
            asks.append(asyncio.create_task(bench.driver.submit("a", deadline, 1.0, "x")))
            await asyncio.sleep(0)
        await asyncio.gather(*asks)
        await bench.driver.stop()
        await asyncio.sleep(20)
        return bench.journal

    assert run_virtually(main()) == [
        JournalEntry(0.0, Arrived(Request(0, 0.0, 10.0, "a", 1.0, 0, 0, "", 1.0)), (Launch(0, 0, (0,)),)),
        JournalEntry(0.0, Arrived(Request(1, 0.0, 0.5, "a", 1.0, 0, 0, "", 1.0)), ()),
        JournalEntry(0.0, Arrived(Request(2, 0.0, 2.0, "a", 1.0, 0, 0, "", 1.0)), ()),
        JournalEntry(0.5, Woke(), (Drop(1, "late"),)),
        JournalEntry(2.0, Woke(), (Drop(2, "late"),)),
        JournalEntry(3.0, Finished(0, 3.0, (Result(0),)), (Answer(0, 0),)),
    ]


def test_it_counts_those_that_wait_and_those_that_have_no_answer():
    async def main():
        bench = Bench()
        bench.workers[0].seconds = 1.0
        await bench.driver.start()
        driver, counts = bench.driver, []
        assert (driver.pending, driver.waiting) == (0, 0)
        asks = [asyncio.create_task(bench.driver.submit("a", 50.0, 1.0, at)) for at in range(4)]
        await asyncio.sleep(0.5)
        counts.append((driver.pending, driver.waiting))
        asks[0].cancel()  # it runs, and nobody waits for it any more
        await asyncio.gather(asks[0], return_exceptions=True)
        counts.append((driver.pending, driver.waiting))
        for ask in asks[1:]:
            ask.cancel()
        await asyncio.gather(*asks, return_exceptions=True)
        counts.append((driver.pending, driver.waiting))
        assert counts == [(4, 3), (3, 2), (0, 0)]
        await driver.stop()

    run_virtually(main())


class Overlapping(FifoScheduler):
    """Takes its one worker for free though it is not."""

    def handle(self, event, now):
        actions = super().handle(event, now)
        self._free = [0]
        return actions


def test_a_worker_that_is_given_two_launches_at_once_is_the_schedulers_fault():
    async def main():
        bench = Bench(scheduler=Overlapping())
        bench.scheduler.check = lambda: None
        await bench.driver.start()
        answers = await bench.ask("x", "y")
        sentence = "the scheduler failed: SchedulerError: worker 0 was given launch 1 during launch 0"
        assert [str(answer) for answer in answers] == [sentence] * 2
        await bench.driver.stop()

    run_virtually(main())


def test_an_output_that_cannot_be_read_fails_its_own_request_and_is_logged(caplog):
    def read(pending, result):
        if pending.payload == "bad":
            raise ValueError("not an output")
        return dataclasses.replace(result, length=3)

    async def main():
        journal, worker = [], FakeWorker()
        driver = Driver(FifoScheduler(), [worker], journal.append, loop_clock(), read=read)
        await driver.start()
        asks = [driver.submit("a", 5.0, 1.0, payload) for payload in ("first", "good", "bad", "good")]
        answers = await asyncio.gather(*asks, return_exceptions=True)
        outputs = [getattr(answer, "output", str(answer)) for answer in answers]
        assert outputs == ["first", "good", "not an output", "good"]
        finished = [entry.event for entry in journal if isinstance(entry.event, Finished)]
        assert finished[1].results == (Result(1, length=3), Result(2), Result(3, length=3))
        await driver.stop()

    run_virtually(main())
    assert [record.message for record in caplog.records] == ["the output of request 2 could not be read"]


def test_spares_start_beside_the_workers_and_share_their_updates_builds_and_end():
    async def main():
        worker, spare, late = (FakeWorker(build="b") for _ in range(3))
        late.failing_restarts = 1
        driver = Driver(FifoScheduler(), [worker], lambda _: None, loop_clock(), spares=[spare, late])
        await driver.start()
        assert driver.spares == 0
        await asyncio.sleep(1)
        assert driver.spares == 1 and spare.calls == ["restart"]
        await driver.update("more", lambda _: "c")
        assert (worker.calls[-1], spare.calls[-1], late.build) == (("update", "more"), ("update", "more"), "c")
        driver.remember(lambda _: "d")
        assert [one.build for one in (worker, spare, late)] == ["d"] * 3
        await driver.stop()
        assert [one.calls[-1] for one in (worker, spare, late)] == ["stop"] * 3

    run_virtually(main())
