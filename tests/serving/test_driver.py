"""The driver answers every request exactly once, whatever its workers and its scheduler do."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from pliant.errors import SchedulerError, WorkerError
from pliant.protocol import (
    Answer,
    Arrived,
    Cancelled,
    Drop,
    Failed,
    Finished,
    Journal,
    JournalEntry,
    Launch,
    Request,
    Result,
    Woke,
    replay,
)
from serving.answers import Completed, Pending, Rejected
from serving.client import Client
from serving.clock import loop_clock
from serving.driver import Driver, Limits
from tests.fixtures.fakes import FakeWorker, FifoScheduler, run_virtually


class Bench:
    """A driver on fakes and its journal; after every entry the scheduler is checked."""

    def __init__(self, workers: int = 1, scheduler=None, facts=None, **limits: float) -> None:
        self.journal: Journal = []
        self.scheduler = scheduler or FifoScheduler(workers)
        self.workers = [FakeWorker() for _ in range(workers)]
        self.deaths: list[float] = []  # of idle workers: when
        self.driver = Driver(
            self.scheduler,
            self.workers,
            self.record,
            loop_clock(),
            Limits(**limits),
            self.note_death,
            facts=facts,
        )

    def note_death(self) -> None:
        self.deaths.append(self.driver.now)

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


def test_every_request_gets_its_own_output_with_its_batch_and_times():
    async def main():
        bench = Bench()
        await bench.driver.start()
        answers = await bench.ask(*range(6))
        assert [answer.output for answer in answers] == list(range(6))
        assert [answer.batch for answer in answers] == [1, 4, 4, 4, 4, 1]  # the first one found the worker free
        assert [round(answer.queue_seconds, 4) for answer in answers] == [0, 0.02, 0.02, 0.02, 0.02, 0.04]
        assert all(answer.run_seconds == 0.02 and answer.on_time for answer in answers)
        await bench.driver.stop()
        assert set(answers_per_request(bench.journal).values()) == {1}

    run_virtually(main())


def test_a_refusal_says_when_the_queue_is_probably_empty():
    async def main():
        bench = Bench()
        await bench.driver.start()
        await bench.ask(*range(20))
        bench.workers[0].seconds = 5.0
        refused = [answer for answer in await bench.ask(*range(200), deadline=1.0) if isinstance(answer, Rejected)]
        assert refused[0].retry_after > 10 * refused[-1].retry_after == 10.0  # as many wait as were refused after it
        await bench.driver.stop()

    run_virtually(main())


def test_a_request_whose_deadline_passes_in_the_queue_is_dropped_at_that_moment():
    async def main():
        bench = Bench()
        bench.workers[0].seconds = 5.0
        await bench.driver.start()
        first = asyncio.create_task(bench.driver.submit("a", 10.0, 1.0, "first"))
        await asyncio.sleep(0)
        assert await bench.driver.submit("a", 1.0, 1.0, "second") == Rejected("late")
        assert bench.driver.now == pytest.approx(1.0)
        assert isinstance(await first, Completed)
        await bench.driver.stop()

    run_virtually(main())


def test_an_answer_past_its_deadline_says_by_how_much_it_is_late():
    async def main():
        bench = Bench()
        bench.workers[0].seconds = 3.0
        await bench.driver.start()
        answer = await bench.driver.submit("a", 1.0, 1.0, "x")
        assert not answer.on_time
        assert answer.late_by == pytest.approx(2.0)
        await bench.driver.stop()

    run_virtually(main())


def test_an_answer_that_waits_for_the_loop_beyond_its_deadline_is_late():
    async def main():
        bench = Bench()
        await bench.driver.start()
        act = bench.driver._act

        def act_and_be_held_up(action, now):  # between the scheduler's answer and the client's turn
            act(action, now)
            bench.driver._clock = lambda: 0.7 if isinstance(action, Answer) else now

        bench.driver._act = act_and_be_held_up
        answer = await bench.driver.submit("a", 0.5, 1.0, "x")
        assert not answer.on_time and answer.late_by == pytest.approx(0.2)
        await bench.driver.stop()

    run_virtually(main())


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


def test_the_driver_is_not_ready_while_its_only_worker_is_down():
    async def main():
        bench = Bench()
        assert not bench.driver.ready
        await bench.driver.start()
        assert bench.driver.ready
        asked = asyncio.create_task(bench.ask("crash", deadline=0.3))
        await asyncio.sleep(0.1)
        assert not bench.driver.ready
        await asked
        await asyncio.sleep(1.0)
        assert bench.driver.ready
        await bench.driver.stop()
        assert not bench.driver.ready

    run_virtually(main())


def test_a_hung_worker_is_killed_after_the_limit_and_reported_as_failed():
    async def main():
        bench = Bench(launch=2.0)
        await bench.driver.start()
        assert await bench.driver.submit("a", 1.0, 1.0, "hang") == Rejected("late")
        assert "kill" in bench.workers[0].calls
        reasons = [entry.event.reason for entry in bench.journal if isinstance(entry.event, Failed)]
        assert reasons == ["it was still running after 2 s"]
        assert (await bench.driver.submit("a", 5.0, 1.0, "x")).output == "x"
        await bench.driver.stop()

    run_virtually(main())


def test_a_worker_that_gives_too_few_outputs_has_failed():
    async def main():
        bench = Bench()
        await bench.driver.start()
        give_all = bench.workers[0].run

        async def give_none(setting, payloads):
            bench.workers[0].run = give_all
            return [], 0.01

        bench.workers[0].run = give_none
        assert (await bench.driver.submit("a", 5.0, 1.0, "x")).output == "x"
        assert any(isinstance(entry.event, Failed) for entry in bench.journal)
        await bench.driver.stop()

    run_virtually(main())


def test_an_update_reaches_every_worker_between_launches():
    async def main():
        bench = Bench(workers=2)
        await bench.driver.start()
        asked = asyncio.create_task(bench.ask("x", "y"))
        await asyncio.sleep(0.01)
        await bench.driver.update("task b", None)
        assert bench.driver.now == pytest.approx(0.02)
        assert [worker.calls[-1] for worker in bench.workers] == [("update", "task b")] * 2
        assert [answer.output for answer in await asked] == ["x", "y"]
        await bench.driver.stop()

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


def test_a_request_whose_client_has_disconnected_affects_no_other():
    async def main():
        bench = Bench()
        await bench.driver.start()
        gone = asyncio.create_task(bench.driver.submit("a", 5.0, 1.0, "gone"))
        await asyncio.sleep(0)
        gone.cancel()
        assert (await bench.driver.submit("a", 5.0, 1.0, "x")).output == "x"
        await bench.driver.stop()
        assert bench.driver.alive

    run_virtually(main())


def test_a_live_journal_replays_to_itself_on_a_fresh_scheduler():
    async def main():
        bench = Bench(workers=2)
        await bench.driver.start()
        asks = []
        for number in range(60):
            payload = "crash" if number == 20 else number
            asks.append(asyncio.create_task(bench.driver.submit("a", 0.05 + number % 7 * 0.1, 1.0, payload)))
            await asyncio.sleep(0.004)
        await asyncio.gather(*asks)
        await bench.driver.stop()
        return bench.journal

    journal = run_virtually(main())
    assert {type(entry.event).__name__ for entry in journal} == {"Arrived", "Finished", "Failed", "Woke"}
    assert replay(FifoScheduler(workers=2), journal) == journal
    shifted = [dataclasses.replace(entry, now=entry.now + 0.05) for entry in journal]
    assert replay(FifoScheduler(workers=2), shifted) != shifted  # the comparison can fail


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


def test_a_clock_that_goes_back_does_not_take_the_journal_with_it():
    async def main():
        bench = Bench()
        clock, steps = bench.driver._clock, iter([0.0, 0.5, 0.2, 0.1])
        bench.driver._clock = lambda: clock() + next(steps, 0.0)
        await bench.driver.start()
        await bench.ask(*range(6))
        await bench.driver.stop()
        times = [entry.now for entry in bench.journal]
        assert times == sorted(times) and len(times) > 6

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


def test_what_a_request_says_of_itself_and_its_client_reaches_the_scheduler():
    async def main():
        bench = Bench()
        await bench.driver.start()
        client = Client("ann", 2.5)
        await bench.driver.submit("a", 4.0, 0.5, "x", length=7, setting=-3, client=client)
        await bench.driver.stop()
        assert bench.journal[0].event.request == Request(0, 0.0, 4.0, "a", 0.5, 7, -3, "ann", 2.5)

    run_virtually(main())


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


def test_the_usual_deadline_follows_those_of_the_latest_requests():
    async def main():
        bench = Bench()
        await bench.driver.start()
        assert bench.driver.usual_deadline == 0.5
        await bench.ask("x", deadline=10.5)
        assert bench.driver.usual_deadline == pytest.approx(1.0)
        await bench.ask("x", deadline=1.0)
        assert bench.driver.usual_deadline == pytest.approx(1.0)
        await bench.driver.stop()

    run_virtually(main())


def test_without_limits_of_its_own_a_launch_may_take_a_minute_and_the_end_two():
    async def main():
        bench = Bench()
        await bench.driver.start()
        asked = asyncio.create_task(bench.ask("hang", deadline=1000.0))
        await asyncio.sleep(59.9)
        assert "kill" not in bench.workers[0].calls
        await asyncio.sleep(0.2)
        assert "kill" in bench.workers[0].calls
        began = bench.driver.now
        await bench.driver.stop()
        assert bench.driver.now - began == pytest.approx(120.0, abs=0.01)
        assert [str(answer) for answer in await asked] == ["the service stopped before an answer came, after 120 s"]

    run_virtually(main())


class WatchedWorker(FakeWorker):
    """Notes a run that is cancelled."""

    async def run(self, setting, payloads):
        try:
            return await super().run(setting, payloads)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            self.calls.append("cancelled")
            raise


def test_the_end_gives_up_what_runs_before_it_stops_the_workers_and_nothing_comes_later():
    async def main():
        bench = Bench(drain=1.0)
        worker = bench.driver._slots[0].worker = WatchedWorker()
        await bench.driver.start()
        asked = asyncio.create_task(bench.ask("hang", "waits"))
        await asyncio.sleep(0.5)
        await bench.driver.stop()
        assert bench.driver.now == pytest.approx(1.5)
        assert worker.calls == ["start", ("hang",), "cancelled", "stop"]
        assert [type(answer) for answer in await asked] == [WorkerError] * 2
        assert bench.driver.pending == 0
        entries = len(bench.journal)
        await asyncio.sleep(30)  # beyond the deadline of what waited
        assert len(bench.journal) == entries

    run_virtually(main())


def test_a_launch_that_is_over_is_not_remembered():
    async def main():
        bench = Bench()
        await bench.driver.start()
        for number in range(3):
            await bench.ask(number)
        assert not bench.driver._tasks and not bench.driver._pending
        await bench.driver.stop()

    run_virtually(main())


def test_an_answer_that_came_before_its_client_left_is_not_cancelled_too():
    async def main():
        bench = Bench()
        await bench.driver.start()
        asks = [asyncio.create_task(bench.driver.submit("a", 5.0, 1.0, at)) for at in range(2)]
        await asyncio.sleep(0)
        asks[1].cancel()
        settle = Pending.settle

        def settle_and_leave(pending, answer):
            settle(pending, answer)
            asks[0].cancel()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Pending, "settle", settle_and_leave)
            answers = await asyncio.gather(*asks, return_exceptions=True)
        assert [type(answer) for answer in answers] == [asyncio.CancelledError] * 2
        cancelled = [entry.event for entry in bench.journal if isinstance(entry.event, Cancelled)]
        assert cancelled == [Cancelled(1)]
        await bench.driver.stop()

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


def test_a_scheduler_that_fails_for_good_is_logged_with_its_error(caplog):
    async def main():
        bench = Bench(scheduler=BrokenScheduler())
        await bench.driver.start()
        await bench.ask(*range(5))
        await bench.driver.stop()

    run_virtually(main())
    (record,) = caplog.records
    assert record.message == "the scheduler failed; every request gets an error from now on"
    assert isinstance(record.exc_info[1], KeyError)


def test_a_scheduler_that_wants_to_be_woken_in_the_past_says_so_in_its_error():
    async def main():
        bench = Bench(scheduler=RestlessScheduler())
        bench.workers[0].seconds = 2.0
        await bench.driver.start()
        (answer,) = await bench.ask("x")
        assert str(answer).endswith("after Woke at 1.0 the scheduler asks to be woken at 1.0, which is not later")
        await bench.driver.stop()

    run_virtually(main())


def test_spares_start_beside_the_workers_and_share_their_updates_builds_and_end():
    async def main():
        worker, spare, late = (FakeWorker(build="b") for _ in range(3))
        late.failing_restarts = 1
        driver = Driver(FifoScheduler(), [worker], lambda _: None, loop_clock(), spares=[spare, late])
        await driver.start()
        assert driver.spares == 0
        await asyncio.sleep(1)
        assert driver.spares == 1 and spare.calls == ["restart"]
        await driver.update("more", "c")
        assert (worker.calls[-1], spare.calls[-1], late.build) == (("update", "more"), ("update", "more"), "c")
        driver.remember("d")
        assert [one.build for one in (worker, spare, late)] == ["d"] * 3
        await driver.stop()
        assert [one.calls[-1] for one in (worker, spare, late)] == ["stop"] * 3

    run_virtually(main())
