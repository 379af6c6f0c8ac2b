"""The driver answers every request exactly once, whatever its workers and its scheduler do."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError, SchedulerError, WorkerError
from pliant.journal import decode, encode
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
    Restarted,
    Result,
    Woke,
    replay,
)
from pliant.serving.driver import (
    LEAP,
    PATIENCE,
    Completed,
    Driver,
    Limits,
    PatientClock,
    Recovery,
    Rejected,
    loop_clock,
)
from pliant.serving.journal import named
from pliant.serving.request_context import REQUEST_ID, holding
from tests.fixtures.fakes import FakeWorker, FifoScheduler, run_virtually

pytestmark = pytest.mark.virtual


class Bench:
    """A driver on fakes and its journal; after every entry the scheduler is checked, unless a fresh one may replace it."""

    def __init__(self, make=FifoScheduler, workers: int = 1, recovers: bool = False, **limits: float) -> None:
        self.journal: Journal = []
        self.make, self.recovers = partial(make, workers), recovers
        self.scheduler, self.workers = self.make(), [FakeWorker() for _ in range(workers)]
        more = {"facts": {}, "factory": self.make} if recovers else {}
        self.driver = Driver(self.scheduler, self.workers, self.record, loop_clock(), Limits(**limits), **more)

    def record(self, entry) -> None:
        if not self.recovers:
            self.scheduler.check()
        self.journal.append(entry)

    async def ask(self, *payloads, deadline: float = 10.0):
        """Submit requests together, and return answers and exceptions."""
        asks = [self.driver.submit("a", deadline, 1.0, payload) for payload in payloads]
        return await asyncio.gather(*asks, return_exceptions=True)

    async def ask_of(self, *tasks: str, deadline: float = 50.0):
        """Submit a request of each task together, and return answers and exceptions."""
        asks = [self.driver.submit(task, deadline, 1.0, (task, at)) for at, task in enumerate(tasks)]
        return await asyncio.gather(*asks, return_exceptions=True)

    def answers(self) -> Counter[int]:
        """Answers and drops by request, those of a restart included."""
        return Counter(a.request for e in self.journal for a in e.actions if isinstance(a, Answer | Drop))

    def check(self, tasks, answers) -> None:
        for at, (task, answer) in enumerate(zip(tasks, answers, strict=True)):
            if task == "bad":
                assert isinstance(answer, SchedulerError)
            elif task == "good" or not isinstance(answer, SchedulerError):  # alone, a worse one may be served
                assert isinstance(answer, Completed) and answer.output == (task, at)
        assert self.answers() == dict.fromkeys(range(len(tasks)), 1)
        assert self.driver.alive and self.driver.pending == 0
        assert [decode(encode(entry)) for entry in self.journal] == self.journal
        assert replay(self.make(), self.journal) == self.journal


@asynccontextmanager
async def driven(*args, **options) -> AsyncIterator[Bench]:
    bench = Bench(*args, **options)
    await bench.driver.start()
    yield bench
    await bench.driver.stop()


async def test_a_killed_worker_is_restarted_and_its_requests_are_served_or_dropped():
    async with driven() as bench:
        asked = asyncio.create_task(bench.ask("x", "y"))
        await asyncio.sleep(0.01)
        bench.workers[0].dead = True
        assert [answer.output for answer in await asked] == ["x", "y"]
        assert bench.workers[0].calls.count("restart") == 1
        assert await bench.driver.submit("a", 0.3, 1.0, "crash") == Rejected("late")
        assert (await bench.driver.submit("a", 5.0, 1.0, "z")).output == "z"
    assert set(bench.answers().values()) == {1}


async def test_stopping_answers_pending_requests_and_rejects_later_ones():
    async with driven() as bench:
        asked = asyncio.create_task(bench.ask(*range(10)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert [answer.output for answer in await asked] == list(range(10))
    assert bench.workers[0].calls[-1] == "stop"
    with pytest.raises(WorkerError, match="stopping"):
        await bench.driver.submit("a", 1.0, 1.0, "x")


async def test_a_drain_that_takes_too_long_ends_with_an_error_for_each_request():
    async with driven(drain=1.0) as bench:
        asked = asyncio.create_task(bench.ask("hang"))
        await asyncio.sleep(0.01)
    assert [str(answer) for answer in await asked] == ["the service stopped before an answer came, after 1 s"]


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
async def test_a_scheduler_that_breaks_the_contract_leaves_nobody_waiting(scheduler):
    async with driven(scheduler) as bench:
        bench.workers[0].seconds = 2.0
        answers = await bench.ask(*range(5))
        assert all(isinstance(answer, SchedulerError | Completed) for answer in answers)
        assert any(isinstance(answer, SchedulerError) for answer in answers)
        assert not bench.driver.alive
        with pytest.raises(SchedulerError, match="the scheduler failed"):
            await bench.driver.submit("a", 1.0, 1.0, "x")


async def test_the_next_launch_reaches_its_worker_before_any_answer_is_written():
    """The device once idled for some ten milliseconds between launches, while 64 responses were written."""
    async with driven() as bench:
        calls = bench.workers[0].calls

        async def ask(payload):
            await bench.driver.submit("a", 10.0, 1.0, payload)
            calls.append(f"{payload} answered")

        await asyncio.gather(ask("one"), ask("two"))
        assert calls == ["start", ("one",), ("two",), "one answered", "two answered"]


async def test_facts_that_the_scheduler_refuses_leave_no_trace():
    async with driven() as bench:
        bench.driver.change({"facts": 1})
        bench.scheduler.refuses = "bad"
        with pytest.raises(InputError, match="facts is bad"):
            bench.driver.change({"facts": "bad"})
        assert [entry.event for entry in bench.journal] == [Changed({"facts": 1})]
        assert (await bench.ask("x"))[0].output == "x"
        assert bench.driver.alive


async def test_the_journal_holds_every_event_with_its_time_and_wakes_once_at_each_deadline():
    async with driven() as bench:
        bench.workers[0].seconds = 3.0
        asks = []
        for deadline in (10.0, 0.5, 2.0):
            asks.append(asyncio.create_task(bench.driver.submit("a", deadline, 1.0, "x")))
            await asyncio.sleep(0)
        await asyncio.gather(*asks)
    await asyncio.sleep(20)
    assert bench.journal == [
        JournalEntry(0.0, Arrived(Request(0, 0.0, 10.0, "a", 1.0, 0, 0, "", 1.0)), (Launch(0, 0, (0,)),)),
        JournalEntry(0.0, Arrived(Request(1, 0.0, 0.5, "a", 1.0, 0, 0, "", 1.0)), ()),
        JournalEntry(0.0, Arrived(Request(2, 0.0, 2.0, "a", 1.0, 0, 0, "", 1.0)), ()),
        JournalEntry(0.5, Woke(), (Drop(1, "late"),)),
        JournalEntry(2.0, Woke(), (Drop(2, "late"),)),
        JournalEntry(3.0, Finished(0, 3.0, (Result(0),)), (Answer(0, 0),)),
    ]


async def test_an_output_that_cannot_be_read_fails_its_own_request_and_is_logged(caplog):
    def read(pending, result):
        if pending.payload == "bad":
            raise ValueError("not an output")
        return dataclasses.replace(result, length=3)

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
    assert [record.message for record in caplog.records] == ["the output of request 2 could not be read"]


# A scheduler that raises an error is replaced by a fresh one: what is pending goes on, and only the bad requests fail


class Buggy(FifoScheduler):
    """Raises an error over each arrival of the task "bad", and over each end of a launch while a "worse" one waits."""

    def handle(self, event, now):
        if isinstance(event, Arrived) and event.request.task == "bad":
            raise KeyError("a bug")
        if isinstance(event, Finished) and any(request.task == "worse" for request in self._waiting):
            raise KeyError("another bug")
        if isinstance(event, Changed) and event.facts.get("bad"):
            raise KeyError("a bug over facts")
        return super().handle(event, now)


class Forgetful(FifoScheduler):
    """Raises an error at the first end of a launch after each of `errors` starts."""

    errors = 0

    def handle(self, event, now):
        if isinstance(event, Finished) and Forgetful.errors:
            Forgetful.errors -= 1
            raise RuntimeError("passing")
        return super().handle(event, now)


@given(st.lists(st.sampled_from(["good", "good", "bad", "worse"]), min_size=1, max_size=12), st.integers(1, 3))
def test_whatever_is_bad_only_that_fails_and_every_request_has_one_answer(tasks, workers):
    async def main():
        async with driven(Buggy, workers, recovers=True) as bench:
            bench.check(["good", *tasks, "good"], await bench.ask_of("good", *tasks, "good"))

    run_virtually(main())


def test_requests_arrive_one_by_one_only_after_a_failure_that_nobody_is_blamed_for():
    recovery = Recovery()
    assert recovery.begin(Finished(0, 0.1), [1, 2]) is None
    assert (recovery.next(), recovery.next()) == (1, None), "the second waits for what becomes of the first"
    assert recovery.note(Launch(0, 0, (1,), 0))
    assert recovery.next() == 2
    assert recovery.note(Drop(2, "late"))
    assert recovery.next() is None
    recovery.begin(Arrived(Request(3, 0.0, 1.0, "bad")), [4, 5, 3])
    assert [recovery.next() for _ in range(4)] == [4, 5, 3, None]


async def test_an_output_that_came_with_the_error_is_given_and_not_computed_again():
    Forgetful.errors = 1
    async with driven(Forgetful, recovers=True) as bench:
        assert (await bench.ask_of("good"))[0].output == ("good", 0)
        assert bench.workers[0].calls == ["start", (("good", 0),)]


async def test_a_launch_of_the_former_scheduler_is_waited_for_and_not_taken_for_one_of_the_new():
    async with driven(Buggy, recovers=True) as bench:
        bench.workers[0].seconds = 3.0
        first = asyncio.create_task(bench.ask_of("good"))
        await asyncio.sleep(1)
        bad = asyncio.create_task(bench.ask_of("bad"))
        assert (await first)[0].output == ("good", 0)
        assert bench.driver.now == pytest.approx(6.0)
        assert isinstance((await bad)[0], SchedulerError)
        assert bench.driver.alive


async def test_one_that_does_nothing_but_fail_is_given_up_with_an_error_for_each():
    async with driven(RestlessScheduler, recovers=True) as bench:
        bench.workers[0].seconds = 100.0
        answers = await bench.ask_of("good", "good")
        assert all(isinstance(answer, SchedulerError) for answer in answers)
        assert not bench.driver.alive


async def test_a_fresh_scheduler_gets_the_facts_first_then_those_that_wait_and_no_timer_of_the_former(caplog):
    async with driven(Buggy, recovers=True) as bench:
        bench.workers[0].seconds = 3.0
        good = asyncio.create_task(bench.ask_of("good", "good", deadline=2.0))
        await asyncio.sleep(0.5)
        bad = asyncio.create_task(bench.ask_of("bad", deadline=50.0))
        await asyncio.gather(good, bad)
    journal = bench.journal
    kinds = [(round(entry.now, 6), type(entry.event).__name__) for entry in journal]
    assert kinds == [
        (0.0, "Changed"),
        (0.0, "Arrived"),
        (0.0, "Arrived"),
        (0.5, "Restarted"),
        (0.5, "Changed"),
        (0.5, "Arrived"),
        (0.5, "Arrived"),
        (0.5, "Restarted"),
        (0.5, "Changed"),
        (0.5, "Arrived"),
        (0.5, "Arrived"),
        (2.0, "Woke"),
        (6.0, "Finished"),
    ]
    assert [entry.event.reason for entry in journal if isinstance(entry.event, Restarted)] == ["KeyError: 'a bug'"] * 2
    assert [entry.actions for entry in journal if isinstance(entry.event, Restarted)] == [(), (Drop(2, "failed"),)]
    logged = [record.message for record in caplog.records if "a fresh one goes on" in record.message]
    assert len(logged) == 2 and all("the scheduler failed over Arrived" in message for message in logged)


async def test_the_journal_has_the_name_of_each_request_also_where_a_fresh_scheduler_gets_it():
    lines = []
    async with driven(Buggy, recovers=True) as bench:
        bench.driver._record = lambda entry: lines.append(json.loads(named(entry)))
        bench.workers[0].seconds, asking = 3.0, []
        for task in ("good", "good", "bad"):
            with holding(REQUEST_ID, f"{task} {len(asking)}"):  # the task keeps it
                asking.append(asyncio.create_task(bench.ask_of(task, deadline=20.0)))
            await asyncio.sleep(0.1)
        await asyncio.gather(*asking)
    names = [(line["event"]["id"], line["request_id"]) for line in lines if line["event"]["type"] == "arrived"]
    assert len(names) > 3 and set(names) == {(0, "good 0"), (1, "good 1")}, "what failed over a request is no entry"
    assert all("request_id" not in line for line in lines if line["event"]["type"] != "arrived")


def test_a_new_request_waits_behind_those_that_wait_and_who_leaves_is_struck_out():
    recovery = Recovery()
    assert not recovery.takes(5)
    recovery.begin(Finished(0, 0.1), [0, 1, 2])
    assert recovery.takes(5)
    assert recovery.next() == 0
    assert recovery.forget(1) and not recovery.forget(8) and recovery.next() is None
    assert not recovery.forget(0), "the scheduler knows it"
    assert (recovery.next(), recovery.next()) == (2, None)
    assert recovery.note(Drop(2, "late"))
    assert recovery.next() == 5
    assert not recovery.takes(6)


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
