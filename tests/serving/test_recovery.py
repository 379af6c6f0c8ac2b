"""A scheduler that raises an error is replaced by a fresh one: what is pending goes on, and only the bad requests fail."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import SchedulerError
from pliant.journal import decode, encode
from pliant.protocol import Answer, Arrived, Changed, Drop, Finished, Launch, Request, Restarted, replay
from pliant.serving.driver import Completed, Driver, Limits, Recovery, loop_clock
from tests.fixtures.fakes import FakeWorker, FifoScheduler, run_virtually


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


class Restless(FifoScheduler):
    def wake_at(self):
        return 0.5


class Bench:
    def __init__(self, make=Buggy, workers: int = 1, **limits: float) -> None:
        self.journal = []
        self.make = partial(make, workers)
        self.workers = [FakeWorker() for _ in range(workers)]
        limited = Limits(**limits)
        self.driver = Driver(
            self.make(), self.workers, self.journal.append, loop_clock(), limited, facts={}, factory=self.make
        )

    async def ask(self, *tasks: str, deadline: float = 50.0):
        asks = [self.driver.submit(task, deadline, 1.0, (task, at)) for at, task in enumerate(tasks)]
        return await asyncio.gather(*asks, return_exceptions=True)

    @property
    def restarts(self) -> int:
        return sum(isinstance(entry.event, Restarted) for entry in self.journal)

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


@given(st.lists(st.sampled_from(["good", "good", "bad", "worse"]), min_size=1, max_size=12), st.integers(1, 3))
def test_whatever_is_bad_only_that_fails_and_every_request_has_one_answer(tasks, workers):
    async def main():
        bench = Bench(workers=workers)
        await bench.driver.start()
        bench.check(["good", *tasks, "good"], await bench.ask("good", *tasks, "good"))
        await bench.driver.stop()

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


def test_an_output_that_came_with_the_error_is_given_and_not_computed_again():
    async def main():
        Forgetful.errors = 1
        bench = Bench(Forgetful)
        await bench.driver.start()
        assert (await bench.ask("good"))[0].output == ("good", 0)
        assert bench.workers[0].calls == ["start", (("good", 0),)]
        await bench.driver.stop()

    run_virtually(main())


def test_a_launch_of_the_former_scheduler_is_waited_for_and_not_taken_for_one_of_the_new():
    async def main():
        bench = Bench()
        bench.workers[0].seconds = 3.0
        await bench.driver.start()
        first = asyncio.create_task(bench.ask("good"))
        await asyncio.sleep(1)
        bad = asyncio.create_task(bench.ask("bad"))
        assert (await first)[0].output == ("good", 0)
        assert bench.driver.now == pytest.approx(6.0)
        assert isinstance((await bad)[0], SchedulerError)
        assert bench.driver.alive
        await bench.driver.stop()

    run_virtually(main())


def test_one_that_does_nothing_but_fail_is_given_up_with_an_error_for_each():
    async def main():
        bench = Bench(Restless)
        await bench.driver.start()
        bench.workers[0].seconds = 100.0
        answers = await bench.ask("good", "good")
        assert all(isinstance(answer, SchedulerError) for answer in answers)
        assert not bench.driver.alive
        await bench.driver.stop()

    run_virtually(main())


def test_a_fresh_scheduler_gets_the_facts_first_then_those_that_wait_and_no_timer_of_the_former(caplog):
    async def main():
        bench = Bench()
        bench.workers[0].seconds = 3.0
        await bench.driver.start()
        good = asyncio.create_task(bench.ask("good", "good", deadline=2.0))
        await asyncio.sleep(0.5)
        bad = asyncio.create_task(bench.ask("bad", deadline=50.0))
        await asyncio.gather(good, bad)
        await bench.driver.stop()
        return bench.journal

    journal = run_virtually(main())
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
