"""What the scheduler knows and which worker it has change between batches, and nobody who waits is dropped for it."""

from __future__ import annotations

import asyncio

import pytest

from pliant.errors import InputError, SchedulerError
from pliant.protocol import Action, Arrived, Changed, Failed, Finished, Launch, replay
from tests.fixtures.fakes import FakeWorker, FifoScheduler, run_virtually
from tests.serving.test_driver import Bench, answers_per_request


async def started(scheduler=None) -> Bench:
    bench = Bench(scheduler=scheduler)
    await bench.driver.start()
    return bench


async def started_worker(seconds: float = 0.01) -> FakeWorker:
    worker = FakeWorker(seconds)
    await worker.start()
    return worker


def test_a_launch_names_what_was_known_when_it_was_decided():
    async def main():
        bench = await started()
        bench.driver.change({"facts": 1}, "first")
        running = asyncio.create_task(bench.ask("x", "y"))  # y waits until x is done
        await asyncio.sleep(0.01)
        bench.driver.change({"facts": 2}, "second")
        assert [answer.known for answer in await running] == ["first", "second"]
        assert bench.scheduler.facts == [{"facts": 1}, {"facts": 2}]
        await bench.driver.stop()
        assert replay(FifoScheduler(), bench.journal) == bench.journal

    run_virtually(main())


def test_facts_that_the_scheduler_refuses_leave_no_trace():
    async def main():
        bench = await started()
        bench.driver.change({"facts": 1}, "first")
        bench.scheduler.refuses = "bad"
        with pytest.raises(InputError, match="facts is bad"):
            bench.driver.change({"facts": "bad"}, "second")
        assert [entry.event for entry in bench.journal] == [Changed({"facts": 1})]
        assert (await bench.ask("x"))[0].known == "first"
        assert bench.driver.alive
        await bench.driver.stop()

    run_virtually(main())


class BrokenByFacts(FifoScheduler):
    def handle(self, event, now):
        if isinstance(event, Changed):
            raise KeyError("a bug")
        return super().handle(event, now)


def test_a_scheduler_that_breaks_over_facts_leaves_nobody_waiting():
    async def main():
        bench = await started(BrokenByFacts())
        asked = asyncio.create_task(bench.ask("x", "y"))
        await asyncio.sleep(0.01)
        with pytest.raises(SchedulerError, match="KeyError"):
            bench.driver.change({})
        assert all(isinstance(answer, SchedulerError) for answer in await asked)
        with pytest.raises(SchedulerError):
            bench.driver.change({})
        await bench.driver.stop()

    run_virtually(main())


def test_an_idle_worker_is_exchanged_at_once():
    async def main():
        bench, new = await started(), await started_worker()
        await bench.driver.exchange([new], {"facts": 2}, "new")
        assert bench.driver.now == 0
        assert bench.workers[0].calls == ["start", "stop"]
        answer = (await bench.ask("x"))[0]
        assert (answer.output, answer.known, new.calls) == ("x", "new", ["start", ("x",)])
        await bench.driver.stop()
        assert new.calls[-1] == "stop"

    run_virtually(main())


def test_a_busy_worker_finishes_its_batch_and_the_next_one_runs_on_the_new_worker_by_the_new_facts():
    async def main():
        bench, new = await started(), await started_worker()
        asked = asyncio.create_task(bench.ask(*range(9)))  # 0 runs, the rest waits
        await asyncio.sleep(0.01)
        await bench.driver.exchange([new], {"facts": 2}, "new")
        assert bench.driver.now == pytest.approx(0.02)  # when the batch in hand had ended
        answers = await asked
        assert [answer.output for answer in answers] == list(range(9))
        assert [answer.known for answer in answers] == [None, *["new"] * 8]
        assert bench.workers[0].calls == ["start", (0,), "stop"]
        assert new.calls == ["start", (1, 2, 3, 4), (5, 6, 7, 8)]
        await bench.driver.stop()
        kinds = [type(entry.event).__name__ for entry in bench.journal if not isinstance(entry.event, Arrived)]
        assert kinds == ["Changed", "Finished", "Finished", "Finished"]
        assert replay(FifoScheduler(), bench.journal) == bench.journal

    run_virtually(main())


def test_an_exchange_whose_facts_are_refused_exchanges_nobody():
    async def main():
        bench, new = await started(), await started_worker()
        bench.scheduler.refuses = "bad"
        asked = asyncio.create_task(bench.ask("x", "y"))
        await asyncio.sleep(0.01)
        with pytest.raises(InputError):
            await bench.driver.exchange([new], {"facts": "bad"})
        assert [answer.output for answer in await asked] == ["x", "y"]
        assert bench.workers[0].calls == ["start", ("x",), ("y",)]
        await bench.driver.stop()

    run_virtually(main())


def test_an_exchange_mends_a_worker_that_failed_meanwhile():
    async def main():
        bench, new = await started(), await started_worker()
        asked = asyncio.create_task(bench.ask("x", deadline=0.1))
        await asyncio.sleep(0.01)
        bench.workers[0].dead = True
        await bench.driver.exchange([new], {})
        assert (await asked)[0].output == "x"  # a restart, which takes half a second, would have been too late
        assert "restart" not in new.calls
        assert any(isinstance(entry.event, Failed) for entry in bench.journal)
        await bench.driver.stop()
        assert set(answers_per_request(bench.journal).values()) == {1}

    run_virtually(main())


def test_a_worker_that_dies_idle_is_brought_back_before_anybody_asks():
    async def main():
        bench = await started()
        bench.workers[0].failing_restarts = 1
        bench.workers[0].die()
        assert not bench.driver.ready and bench.deaths == [0.0]
        await asyncio.sleep(1.4)
        assert not bench.driver.ready
        await asyncio.sleep(0.7)  # half a second, a pause of one, and half a second
        assert bench.driver.ready
        assert (await bench.ask("x"))[0].output == "x"
        assert bench.journal[0].event.request.id == 0 and not any(isinstance(e.event, Failed) for e in bench.journal)
        await bench.driver.stop()

    run_virtually(main())


def test_a_request_that_comes_while_a_dead_worker_is_brought_back_waits_for_it():
    async def main():
        bench = await started()
        bench.workers[0].die()
        await asyncio.sleep(0.1)
        assert (await bench.ask("x"))[0].output == "x"
        assert bench.workers[0].calls == ["start", "restart", ("x",)]
        await bench.driver.stop()

    run_virtually(main())


def test_a_worker_exchanged_while_it_is_brought_back_is_let_go():
    async def main():
        bench, new = await started(), await started_worker()
        bench.workers[0].die()
        await asyncio.sleep(0.1)
        await bench.driver.exchange([new], {})
        assert bench.workers[0].calls[-1] == "stop"
        assert (await bench.ask("x"))[0].output == "x"
        assert bench.driver.ready
        await bench.driver.stop()

    run_virtually(main())


class LoadsFirst(FifoScheduler):
    """Has model 2 loaded before the first batch."""

    loaded = False

    def handle(self, event, now) -> list[Action]:
        if not self.loaded and isinstance(event, Changed):
            self.loaded = True
            self._free.pop()
            launch = Launch(self._launches, 0, (), 2, "load")
            self._running[launch.id] = (launch, [])
            self._launches += 1
            return [launch]
        return super().handle(event, now)


def test_a_load_occupies_the_worker_for_as_long_as_it_took():
    async def main():
        bench = await started(LoadsFirst())
        bench.driver.change({})
        answer = (await bench.ask("x"))[0]
        assert (answer.output, answer.queue_seconds) == ("x", pytest.approx(0.5))
        assert bench.workers[0].calls == ["start", ("load", 2), ("x",)]
        assert [e.event.seconds for e in bench.journal if isinstance(e.event, Finished)] == [0.5, 0.02]
        await bench.driver.stop()

    run_virtually(main())
