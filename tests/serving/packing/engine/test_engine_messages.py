"""What an engine's driver sends its worker, and what it makes of what the worker says, message by message."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from pliant.errors import WorkerError
from pliant.packing.engine.submission import Progress, Status
from serving.packing.engine.engine import EngineDriver, EngineLimits, EngineReport
from serving.packing.engine.suspects import CLEAR
from serving.packing.messages import NO_STATUS
from tests.fixtures.fakes import run_virtually
from tests.fixtures.packing.fakes import new_tokenizer
from tests.serving.packing.engine.test_engine import LIMITS, new_output


class Wire:
    """A worker that only notes what is sent; the test says what its process tells. `fails`: starts that will fail."""

    def __init__(self) -> None:
        self.sent: list[tuple] = []
        self.calls: list[tuple[float, str]] = []
        self.fails = 0

    def note(self, call: str) -> None:
        self.calls.append((asyncio.get_running_loop().time(), call))

    async def start(self) -> None:
        self.note("start")
        if self.fails:
            self.fails -= 1
            raise WorkerError("no memory")

    def send(self, verb, *arguments) -> None:
        self.sent.append((verb, arguments[0].prompt.id if verb == "submit" else arguments[0]))

    def kill(self) -> None:
        self.note("kill")

    async def stop(self) -> None:
        self.note("stop")


def wired(test, limits: EngineLimits = LIMITS):
    """Run in virtual time with a started driver and its wire; the driver is stopped at the end."""

    async def run():
        wire, deaths = Wire(), []
        driver = EngineDriver(wire, asyncio.get_running_loop().time, limits, lambda: deaths.append(wire.calls[-1]))
        assert not driver.ready and driver.alive
        await driver.start()
        try:
            await test(driver, wire, deaths)
        finally:
            for output in list(driver._outputs.values()):
                driver.cancel(output)
            wire.on_message("progress", [progress_of(id, finished="cancelled") for id in range(driver.next_id())])
            await driver.stop()
        assert not driver.ready and len(asyncio.all_tasks()) == 1, "nothing of it goes on"

    run_virtually(run())


def progress_of(id: int, *tokens: int, finished: str = "") -> Progress:
    return Progress(id, tokens, finished, 0.0, 0, 0, len(tokens))


def status_of(**fields) -> Status:
    return replace(NO_STATUS, **{"alive": True, "pages": 64, **fields})


def test_a_process_is_killed_by_a_silence_that_began_with_the_first_output_and_not_before():
    async def test(driver, wire, deaths):
        await asyncio.sleep(10.0)
        assert wire.calls == [(0.0, "start")], "it may be silent while nothing is pending"
        driver.submit([new_output(driver)])
        await asyncio.sleep(3.0)
        driver.submit([new_output(driver)])  # is no sign of life of the process
        await asyncio.sleep(1.5)
        assert wire.calls == [(0.0, "start")]
        await asyncio.sleep(1.0)
        assert wire.calls == [(0.0, "start"), (15.0, "kill")]
        wire.on_message("status", status_of())
        await asyncio.sleep(4.0)
        assert len(wire.calls) == 2, "a message of any kind is a sign of life"

    wired(test, EngineLimits(silence=4.0))


def test_what_is_sent_is_every_submission_and_one_cancellation_of_what_ends_here():
    async def test(driver, wire, deaths):
        stopped, left, going = new_output(driver, stops=("é",)), new_output(driver), new_output(driver)
        driver.submit([stopped, left, going])
        driver.cancel(left)
        driver.cancel(new_output(driver))  # nobody knows it
        ids = new_tokenizer().encode("é").ids
        wire.on_message("progress", [progress_of(99, 5), progress_of(stopped.id, *ids), progress_of(going.id, 5)])
        wire.on_message("progress", [progress_of(stopped.id, 5), progress_of(going.id)])
        assert (stopped.finish, left.finish, going.tokens) == ("stop", "cancelled", [5])
        assert driver.pending == 3, "the engine still has their pages"
        ends = [progress_of(id, finished="cancelled") for id in (left.id, stopped.id)]
        wire.on_message("progress", [ends[0], *ends[1:], progress_of(going.id, 0, finished="stop")])
        assert (driver.pending, driver.waiting) == (0, 0)
        driver.cancel(going)  # it has ended
        assert wire.sent == [("submit", 0), ("submit", 1), ("submit", 2), ("cancel", 1), ("cancel", 0)]

    wired(test)


def test_what_comes_and_goes_while_the_process_is_down_is_sent_to_the_next_one_or_forgotten_here():
    async def test(driver, wire, deaths):
        first = new_output(driver)
        driver.submit([first])
        wire.on_message("status", status_of(running=1))
        wire.fails = 1
        wire.on_end()
        wire.on_end()  # once is enough
        assert (driver.ready, driver.alive, driver.status, len(deaths)) == (False, True, NO_STATUS, 1)
        assert await driver.poll() == EngineReport(NO_STATUS, None)
        second, third = new_output(driver), new_output(driver)
        driver.submit([second, third])
        driver.cancel(third)
        assert (driver.pending, driver.waiting, third.finish) == (2, 2, "cancelled")
        assert wire.sent == [("submit", 0)]
        await asyncio.sleep(0.02)
        assert driver.ready and [when for when, _ in wire.calls] == [0.0, 0.0, 0.01]
        assert wire.sent == [("submit", 0), ("submit", 0), ("submit", 1)]

    wired(test)


def test_three_starts_that_fail_in_a_row_are_too_many_and_two_are_not():
    async def test(driver, wire, deaths):
        output = new_output(driver)
        driver.submit([output])
        for _ in range(2):
            wire.fails = 2
            wire.on_end()
            await asyncio.sleep(0.05)
            assert driver.ready and driver.alive and len(deaths) > 0
            wire.on_message("progress", [progress_of(output.id, *[5] * CLEAR)])
        assert output.finish == "" and len(deaths) == 2
        wire.fails = 3
        wire.on_end()
        await asyncio.sleep(0.015)
        assert driver.alive and output.finish == ""
        await asyncio.sleep(0.01)
        assert (driver.alive, output.finish) == (False, "cancelled")
        assert (output.fault, driver.pending) == ("the engine's process cannot be started", 0)
        with pytest.raises(WorkerError, match=r"^the engine's process cannot be started; the service keeps trying$"):
            driver.submit([new_output(driver)])
        await asyncio.sleep(0.05)
        assert driver.alive and driver.ready

    wired(test)


def test_a_report_is_waited_for_for_a_second_and_one_that_comes_late_still_tells_the_status():
    async def test(driver, wire, deaths):
        loop = asyncio.get_running_loop()
        wire.on_message("status", status_of(running=1))
        assert (driver.status, wire.sent) == (status_of(running=1), [])
        assert await driver.poll() == EngineReport(status_of(running=1), None)
        assert loop.time() == 1.0
        wire.on_message("report", (0, status_of(running=2), ""))  # nobody waits for it any more
        assert driver.status == status_of(running=2)
        polls = [asyncio.create_task(driver.poll()) for _ in range(2)]
        await asyncio.sleep(0.5)
        wire.on_message("report", (2, status_of(running=3), "sequence 3: 2 pages"))
        wire.on_message("report", (2, status_of(running=4), ""))  # a second time
        assert await polls[1] == EngineReport(status_of(running=3), "sequence 3: 2 pages")
        assert loop.time() == 1.5 and await polls[0] == EngineReport(status_of(running=4), None)
        assert wire.sent == [("poll", 0), ("poll", 1), ("poll", 2)]

    wired(test)


def test_outputs_that_were_cancelled_when_the_process_died_are_not_waited_for():
    async def test(driver, wire, deaths):
        left, going = new_output(driver), new_output(driver)
        driver.submit([left, going])
        driver.cancel(left)
        wire.on_end()
        assert driver.pending == 1
        await asyncio.sleep(0.02)
        assert wire.sent == [("submit", 0), ("submit", 1), ("cancel", 0), ("submit", 1)]

    wired(test)
