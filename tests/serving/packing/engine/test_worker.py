"""The engine's process exchanges messages and dies with its engine; the service gets all tokens nevertheless."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys

import pytest

from pliant.errors import WorkerError
from serving.packing.engine import worker as engine_worker
from serving.packing.engine.engine import EngineDriver, EngineLimits
from serving.packing.engine.engine_process import joined
from serving.packing.engine.worker import EngineProcess, _reap
from serving.workers.child_process import pack, receive
from tests.fixtures.packing.fakes import TALE, FakeBuild
from tests.serving.packing.engine.test_engine import new_output, until

LIMITS = EngineLimits(retry=0.05)


def driving(test, build: FakeBuild, limits: EngineLimits = LIMITS):
    async def run():
        worker = EngineProcess(lambda: build)
        driver = EngineDriver(worker, asyncio.get_running_loop().time, limits)
        await driver.start()
        try:
            await asyncio.wait_for(test(driver, worker), 300)
        finally:
            await driver.stop()

    asyncio.run(run())


def test_a_process_sends_tokens_and_reports_its_accounting_of_pages():
    async def test(driver, worker):
        outputs = [new_output(driver) for _ in range(20)]
        driver.submit(outputs)
        await until(lambda: all(one.finish for one in outputs))
        assert {one.writer.take() for one in outputs} == {TALE}
        report = await driver.poll()
        assert (report.accounting_error, report.status.pages_used) == ("", 0) and report.status.iterations > 0
        gone = new_output(driver)
        driver.submit([gone])
        await until(lambda: gone.tokens)
        driver.cancel(gone)
        await until(lambda: driver.pending == 0)
        assert driver.status.pages == 64  # told now and then without being asked

    driving(test, FakeBuild())


@pytest.mark.parametrize("trouble", ["fail", "hang"])
def test_an_engine_that_fails_or_hangs_is_replaced_with_its_process(tmp_path, trouble):
    async def test(driver, worker):
        first = worker.pid
        outputs = [new_output(driver), new_output(driver, limit=40, temperature=1.0, seed=2)]
        driver.submit(outputs)
        await until(lambda: all(one.finish for one in outputs))
        assert worker.pid != first and [one.crashes for one in outputs] == [0, 0]  # they got further: no suspects
        assert outputs[0].writer.take() == TALE and len(outputs[1].tokens) == 40

    driving(test, FakeBuild(trouble=trouble, after=6, once=tmp_path / "once"), EngineLimits(silence=1.5, retry=0.05))


def test_a_process_that_lacks_memory_is_replaced_by_one_with_fewer_sequences(tmp_path):
    async def test(driver, worker):
        driver.sequences.value = driver.sequences.planned = 64
        outputs = [new_output(driver) for _ in range(8)]
        driver.submit(outputs)
        await until(lambda: all(one.finish for one in outputs))
        assert {one.writer.take() for one in outputs} == {TALE} and {one.crashes for one in outputs} == {0}
        assert (driver.sequences.value, driver.sequences.exhausted) == (4, 1)

    driving(test, FakeBuild(trouble="memory", after=6, once=tmp_path / "once"))


def test_a_killed_process_is_replaced_and_ends_with_the_service():
    async def test(driver, worker):
        first = worker.pid
        one = new_output(driver)
        driver.submit([one])
        await until(lambda: one.tokens)
        os.kill(first, signal.SIGKILL)
        await until(lambda: one.finish)
        assert one.writer.take() == TALE and worker.pid != first

    driving(test, FakeBuild())


def test_a_process_that_cannot_build_its_engine_says_why():
    async def run():
        worker = EngineProcess(lambda: FakeBuild(trouble="refuse"))
        with pytest.raises(WorkerError, match="could not start: memory is 0, but must be at least 1"):
            await worker.start()
        assert worker.pid is None

    asyncio.run(run())


def test_news_that_gathered_goes_as_one_message():
    told = [("progress", [1]), ("progress", [2, 3]), ("status", "s"), ("progress", [4])]
    assert joined(told) == [("progress", [1, 2, 3]), ("status", "s"), ("progress", [4])]


def test_a_process_that_does_not_end_by_itself_is_killed(monkeypatch):
    monkeypatch.setattr("serving.packing.engine.worker.END_SECONDS", 0.01)
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    _reap(process)
    assert process.returncode == -signal.SIGKILL


# A process of which only the socket is real


class Process:
    """Notes what is done to it. `stubborn`: it ends only when it is killed."""

    pid = 77

    def __init__(self, stubborn: bool = False) -> None:
        self.calls, self.stubborn = [], stubborn

    def kill(self) -> None:
        self.calls.append("kill")
        self.stubborn = False

    def wait(self, timeout=None) -> None:
        self.calls.append(("wait", timeout))
        if self.stubborn:
            raise subprocess.TimeoutExpired("engine", timeout)


class Spawned:
    """What `spawn` gives: a process, and the process's end of the socket."""

    def __init__(self, monkeypatch, *answers: bytes, closes: bool = False) -> None:
        self.processes, self.ends, self.entries = [], [], []
        self.answers, self.closes = answers, closes
        monkeypatch.setattr(engine_worker, "spawn", self)

    def __call__(self, entry, variables, interpreter=None):
        ours, theirs = socket.socketpair()
        for answer in self.answers:
            theirs.sendall(answer)
        if self.closes:
            theirs.shutdown(socket.SHUT_WR)
        self.entries.append(entry)
        self.variables = variables
        self.ends.append(theirs)
        self.processes.append(Process())
        return ours, self.processes[-1]

    def read(self, index: int = -1) -> list:
        """Return the messages to a process whose socket the service has closed."""
        end = self.ends[index]
        end.settimeout(30)
        messages = []
        with end, end.makefile("rb") as incoming:
            while True:
                try:
                    messages.append(receive(incoming))
                except EOFError:
                    return messages


READY = pack(("ready", None))


def test_messages_go_both_ways_between_start_and_stop(monkeypatch):
    spawned = Spawned(monkeypatch, READY, pack(("status", 1)), pack(("progress", [2])))
    builds = iter(["first build", "second build"])

    async def run():
        worker, told = EngineProcess(lambda: next(builds)), []
        worker.on_message = lambda *message: told.append(message)
        worker.on_end = lambda: told.append("end")
        worker.send("too early", 1)
        worker.kill()
        assert worker.pid is None
        await worker.start()
        assert worker.pid == 77
        await until(lambda: len(told) == 2)
        worker.send("submit", "text")
        worker.send("poll", 4)
        await worker.start()  # from any state: the former process ends first
        assert spawned.processes[0].calls == [("wait", 5.0)] and spawned.processes[1].calls == []
        worker.kill()
        await until(lambda: len(told) == 4)
        await worker.stop()
        worker.send("too late", 1)
        await worker.stop()
        assert worker.pid is None and len(asyncio.all_tasks()) == 1
        return told

    assert asyncio.run(run()) == [("status", 1), ("progress", [2])] * 2, "the end was asked for"
    assert spawned.entries == ["serving.packing.engine.engine_process:main"] * 2
    assert spawned.processes[1].calls == ["kill", ("wait", 5.0)]
    assert spawned.read(0) == ["first build", ("submit", ("text",)), ("poll", (4,))]
    assert spawned.read(1) == ["second build"]


def test_a_process_that_ends_by_itself_is_reported_once(monkeypatch):
    spawned = Spawned(monkeypatch, READY, pack(("status", 1)))

    async def run():
        worker, told = EngineProcess(lambda: "build"), []
        worker.on_message = lambda *message: told.append(message)
        worker.on_end = lambda: told.append("end")
        await worker.start()
        spawned.ends[0].close()
        await until(lambda: "end" in told)
        await worker.stop()
        return told

    assert asyncio.run(run()) == [("status", 1), "end"]


@pytest.mark.parametrize(
    ("answers", "closes", "sentence"),
    [
        ([pack(("failed", "no room"))], False, "the engine process could not start: no room"),
        ([], True, "the engine process ended before it was ready"),
        ([READY[:-1]], True, "the engine process ended before it was ready"),
        ([], False, "the engine process was not ready within 0 s"),
    ],
)
def test_a_start_that_fails_leaves_no_process_and_says_how(monkeypatch, answers, closes, sentence):
    spawned = Spawned(monkeypatch, *answers, closes=closes)

    async def run():
        worker = EngineProcess(lambda: "build", 0.05 if not (answers or closes) else 60.0)
        with pytest.raises(WorkerError, match=f"^{sentence}$"):
            await worker.start()
        assert worker.pid is None and len(asyncio.all_tasks()) == 1

    asyncio.run(run())
    assert spawned.processes[0].calls == [("wait", 5.0)]
    assert spawned.read() == ["build"]


def test_a_process_may_be_restarted_from_its_own_end(monkeypatch):
    """The driver restarts it while `on_end` runs, which is in the task that listened."""
    spawned = Spawned(monkeypatch, READY)

    async def run():
        worker, restarted = EngineProcess(lambda: "build"), asyncio.Event()

        async def restart():
            await worker.start()
            restarted.set()

        tasks = []
        worker.on_end = lambda: tasks.append(asyncio.create_task(restart()))
        await worker.start()
        spawned.ends[0].close()
        await asyncio.wait_for(restarted.wait(), 30)
        assert worker.pid == 77 and len(spawned.processes) == 2
        await worker.stop()

    asyncio.run(run())
