"""The driver answers every request exactly once, whatever its workers and its scheduler do."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError, SchedulerError, WorkerError
from pliant.protocol import (
    Answer,
    Arrived,
    Changed,
    Drop,
    Finished,
    Journal,
    JournalEntry,
    Launch,
    Request,
    Result,
    Woke,
)
from pliant.serving.driver import LEAP, PATIENCE, Completed, Driver, Limits, PatientClock, Rejected, loop_clock
from tests.fixtures.fakes import FakeWorker, FifoScheduler, run_virtually


class Bench:
    """A driver on fakes and its journal; after every entry the scheduler is checked."""

    def __init__(self, scheduler=None, **limits: float) -> None:
        self.journal: Journal = []
        self.scheduler = scheduler or FifoScheduler()
        self.workers = [FakeWorker()]
        self.driver = Driver(self.scheduler, self.workers, self.record, loop_clock(), Limits(**limits))

    def record(self, entry) -> None:
        self.scheduler.check()
        self.journal.append(entry)

    async def ask(self, *payloads, deadline: float = 10.0):
        """Submit requests together, and return answers and exceptions."""
        asks = [self.driver.submit("a", deadline, 1.0, payload) for payload in payloads]
        return await asyncio.gather(*asks, return_exceptions=True)


def answers_per_request(journal: Journal) -> dict[int, int]:
    counts = {entry.event.request.id: 0 for entry in journal if isinstance(entry.event, Arrived)}
    for entry in journal:
        for action in entry.actions:
            if isinstance(action, Answer | Drop):
                counts[action.request] += 1
    return counts


def test_a_killed_worker_is_restarted_and_its_requests_are_served_or_dropped():
    async def main():
        bench = Bench()
        await bench.driver.start()
        asked = asyncio.create_task(bench.ask("x", "y"))
        await asyncio.sleep(0.01)
        bench.workers[0].dead = True
        assert [answer.output for answer in await asked] == ["x", "y"]
        assert bench.workers[0].calls.count("restart") == 1
        assert await bench.driver.submit("a", 0.3, 1.0, "crash") == Rejected("late")
        assert (await bench.driver.submit("a", 5.0, 1.0, "z")).output == "z"
        await bench.driver.stop()
        assert set(answers_per_request(bench.journal).values()) == {1}

    run_virtually(main())


def test_stopping_answers_pending_requests_and_rejects_later_ones():
    async def main():
        bench = Bench()
        await bench.driver.start()
        asked = asyncio.create_task(bench.ask(*range(10)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await bench.driver.stop()
        assert [answer.output for answer in await asked] == list(range(10))
        assert bench.workers[0].calls[-1] == "stop"
        with pytest.raises(WorkerError, match="stopping"):
            await bench.driver.submit("a", 1.0, 1.0, "x")

    run_virtually(main())


def test_a_drain_that_takes_too_long_ends_with_an_error_for_each_request():
    async def main():
        bench = Bench(drain=1.0)
        await bench.driver.start()
        asked = asyncio.create_task(bench.ask("hang"))
        await asyncio.sleep(0.01)
        await bench.driver.stop()
        assert [str(answer) for answer in await asked] == ["the service stopped before an answer came, after 1 s"]

    run_virtually(main())


class BrokenScheduler(FifoScheduler):
    def handle(self, event, now):
        if isinstance(event, Arrived) and event.request.id == 3:
            raise KeyError("a bug")
        return super().handle(event, now)


class RestlessScheduler(FifoScheduler):
    def wake_at(self):
        return 1.0


class DoubleScheduler(FifoScheduler):
    """Answers the same requests twice."""

    def handle(self, event, now):
        actions = super().handle(event, now)
        return actions + [action for action in actions if isinstance(action, Answer)]


@pytest.mark.parametrize("scheduler", [BrokenScheduler, RestlessScheduler, DoubleScheduler])
def test_a_scheduler_that_breaks_the_contract_leaves_nobody_waiting(scheduler):
    async def main():
        bench = Bench(scheduler=scheduler())
        bench.workers[0].seconds = 2.0
        await bench.driver.start()
        answers = await bench.ask(*range(5))
        assert all(isinstance(answer, SchedulerError | Completed) for answer in answers)
        assert any(isinstance(answer, SchedulerError) for answer in answers)
        assert not bench.driver.alive
        with pytest.raises(SchedulerError, match="the scheduler failed"):
            await bench.driver.submit("a", 1.0, 1.0, "x")
        await bench.driver.stop()

    run_virtually(main())


def test_the_next_launch_reaches_its_worker_before_any_answer_is_written():
    """The device once idled for some ten milliseconds between launches, while 64 responses were written."""

    async def main():
        bench = Bench()
        await bench.driver.start()
        calls = bench.workers[0].calls

        async def ask(payload):
            await bench.driver.submit("a", 10.0, 1.0, payload)
            calls.append(f"{payload} answered")

        await asyncio.gather(ask("one"), ask("two"))
        assert calls == ["start", ("one",), ("two",), "one answered", "two answered"]
        await bench.driver.stop()

    run_virtually(main())


async def started(scheduler=None) -> Bench:
    bench = Bench(scheduler=scheduler)
    await bench.driver.start()
    return bench


def test_facts_that_the_scheduler_refuses_leave_no_trace():
    async def main():
        bench = await started()
        bench.driver.change({"facts": 1})
        bench.scheduler.refuses = "bad"
        with pytest.raises(InputError, match="facts is bad"):
            bench.driver.change({"facts": "bad"})
        assert [entry.event for entry in bench.journal] == [Changed({"facts": 1})]
        assert (await bench.ask("x"))[0].output == "x"
        assert bench.driver.alive
        await bench.driver.stop()

    run_virtually(main())


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


DAY = 86_400.0


class Machine:
    """`true` seconds have passed; its clock is off by `error`."""

    def __init__(self) -> None:
        self.true, self.error = 1e9, 0.0
        self.clock = PatientClock(lambda: self.true + self.error, lambda: self.true)

    def off_by(self, error: float, after: float) -> None:
        self.true, self.error = self.true + after, error


@given(st.lists(st.tuples(st.floats(-40 * DAY, 40 * DAY), st.floats(0, 1000)), max_size=20))
def test_whatever_leaps_come_and_go_within_an_hour_no_time_is_lost_or_gained_by_leaps_ahead(leaps):
    machine = Machine()
    for error, after in leaps:
        machine.off_by(error, after)
        machine.clock()
        machine.off_by(0.0, 60.0)
        assert machine.clock() <= machine.true + 1e-3, "it is never ahead once the machine's clock is right"
    for after in (60.0, PATIENCE):
        machine.off_by(0.0, after)
        last = machine.clock()
    assert last == pytest.approx(machine.true), "it is followed an hour later at the latest"


@given(st.floats(LEAP + 1, 400 * DAY))
def test_a_leap_that_lasts_is_followed_after_an_hour_and_one_back_at_once(leap):
    machine = Machine()
    for error, after, followed in (
        (leap, 10.0, 0.0),
        (leap, PATIENCE - 1, 0.0),
        (leap, 2.0, leap),
        (-leap, 2.0, -leap),
    ):
        machine.off_by(error, after)
        assert machine.clock() == pytest.approx(machine.true + followed)


def test_a_clock_that_is_right_is_followed_to_the_second_for_a_month_and_small_steps_at_once():
    machine = Machine()
    for hour in range(24 * 30):
        machine.off_by(hour % 7 * 100.0, 3600.0)
        assert machine.clock() == machine.true + machine.error
