"""The engine's loop around an executor that follows a script: every report, count, second and call, to the last one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pliant.errors import InputError, WorkerError
from pliant.packing.engine import runtime
from pliant.packing.engine.paged_engine import StepResult
from pliant.packing.engine.runtime import Engine
from pliant.packing.engine.submission import Progress, Sampling, Status, Submission
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Chunk, Memory, Prompt, StepInput, StepPlan
from tests.fixtures.packing.generators import CONTEXT, ENDS, Desk, tiny_generator

MEMORY = Memory(pages=10, page_tokens=4, host_pages=5)
PAGED = Rules("paged", CONTEXT)
STOP, OTHER = ENDS[0], 5


class Scripted:
    """Does what an executor does by a list of results; an exception among them is raised."""

    def __init__(self, script: list[StepResult | Exception]) -> None:
        self.script, self.calls, self.options = list(script), [], ()
        self.pages: dict[int, int] = {}
        self.swap_space = SimpleNamespace(used=0)
        self.cancelled = threading.Event()

    @property
    def pages_used(self) -> int:
        return sum(self.pages.values())

    def pages_of(self, id: int) -> int:
        return self.pages.get(id, 0)

    def enter(self, threads: int) -> None:
        self.calls.append(("enter", threads))

    def add(self, *arguments: Any) -> None:
        self.calls.append(("add", *arguments))

    def cancel(self, id: int) -> None:
        self.calls.append(("cancel", id))
        self.cancelled.set()

    def carry_out(self, plan: StepPlan) -> None:
        self.calls.append(("carry_out", plan))

    def step(self) -> StepResult:
        result = self.script.pop(0) if self.script else StepResult()
        if isinstance(result, Exception):
            raise result
        return result

    def check(self) -> None:
        self.calls.append(("check",))

    def close(self) -> None:
        self.calls.append(("close",))


@pytest.fixture
def engine(monkeypatch) -> Callable[..., tuple[Engine, Desk, Scripted]]:
    """Make an engine on a script. Its clock goes from 10 by 1 a call, and so does the one that measures, from 0."""
    monkeypatch.setattr(runtime, "time", SimpleNamespace(perf_counter=count(0.0).__next__))

    def make(*script: StepResult | Exception, rules: Rules = PAGED, **more: Any) -> tuple[Engine, Desk, Scripted]:
        executor, desk = Scripted(list(script)), Desk()

        def choose(*options: Any) -> Scripted:
            executor.options = options
            return executor

        monkeypatch.setattr(runtime, "PagedEngine", choose)
        clock = count(10.0).__next__
        return Engine(tiny_generator(), MEMORY, rules, desk.deliver, clock=clock, **more), desk, executor

    return make


def text(id: int, tokens: int = 3, limit: int = 8, **more: Any) -> Submission:
    prompt = Prompt(id, 0.0, tokens, limit, (4.0,) * 8, deadline=more.pop("deadline", float("inf")))
    return Submission(prompt, tuple(range(tokens + more.get("generated", 0))), **more)


@pytest.mark.parametrize(
    ("error", "lacking"),
    [(torch.OutOfMemoryError("2 GiB"), True), (MemoryError(), True), (RuntimeError("lost"), False)],
)
def test_an_engine_that_died_for_lack_of_memory_says_so_in_its_status(engine, error, lacking):
    loop, _, _ = engine(error)
    loop.submit(text(0))
    assert not loop.status().out_of_memory
    loop.start()
    loop._thread.join(60)
    assert loop.status().out_of_memory == lacking and type(error).__name__ in loop.status().error


def test_every_iteration_is_reported_and_counted(engine):
    script = (
        StepResult(started=(0,), sequences=1),
        StepResult(((0, OTHER, False),), (1,), sequences=2),
        StepResult(((0, STOP, True), (1, OTHER, False)), (), ((1, 0),), sequences=2),
        StepResult((), (), ((1, 3),)),
        StepResult(((1, STOP, False),), sequences=1),
        StepResult(((1, OTHER, True),), sequences=1),
    )
    loop, _, executor = engine(*script)
    reports: list[Progress] = []
    statuses: list[Status] = []
    done = threading.Event()

    def deliver(news: list[Progress]) -> None:
        reports.extend(news)
        statuses.extend([loop.status()] * bool(news))  # an iteration without news is reported, too
        if sum(bool(report.finished) for report in reports) == 2:
            done.set()

    loop._deliver = deliver
    executor.pages = {1: 2}
    loop.submit(text(0))
    loop.submit(text(1, generated=2))
    loop.start()
    assert done.wait(60)
    loop.stop()
    # An iteration lasts for three seconds until it is shared out, one of them the scheduler's, and for another one until it
    # is over.
    assert reports == [
        Progress(0, (OTHER,), "", 0.0, 0, 0, 1, 1.5),
        Progress(0, (STOP,), "stop", 0.0, 0, 0, 2, 1.5),
        Progress(1, (OTHER,), "", 1.0, 1, 0, 3, 3.0 + 1.5 + 1.5),
        Progress(1, (STOP,), "", 1.0, 2, 3, 4, 3.0 + 3.0),
        Progress(1, (OTHER,), "length", 1.0, 2, 3, 5, 3.0),
    ]
    assert statuses[0] == Status(True, "", 2, 0, 10, 2, 0, 2, 1, 0, 0, 3, 4.0 * 2, 1.0 * 2)
    assert statuses[-1] == Status(True, "", 1, 0, 10, 2, 0, 5, 5, 2, 3, 7, 4.0 * 6, 1.0 * 6)
    assert executor.calls[:3] == [
        ("enter", 1), ("add", 0, (0, 1, 2), 8, ENDS, {}), ("add", 1, (0, 1, 2, 3, 4), 6, ENDS, {}),
    ]  # fmt: skip
    assert executor.calls[-1] == ("close",)


def test_a_text_in_flight_before_the_first_iteration_has_waited_until_now(engine):
    loop, desk, executor = engine(StepResult(), StepResult(), RuntimeError("lost"))
    loop.submit(text(0))
    loop.submit(text(1))
    loop.start()
    desk.wait(2)
    loop.stop()
    assert [desk.last[id] for id in (0, 1)] == [Progress(id, (), "failed", 3.0, 0, 0, 0) for id in (0, 1)]
    assert executor.calls[-3:] == [("cancel", 0), ("cancel", 1), ("close",)]
    status = loop.status()
    assert (status.alive, status.error, status.waiting, status.iterations) == (False, "RuntimeError: lost", 0, 0)
    with pytest.raises(WorkerError, match=r"^the engine has stopped: RuntimeError: lost$"):
        loop.submit(text(2))


def test_rules_decide_what_runs_and_the_journal_has_every_decision(engine):
    entries: list[tuple[Any, ...]] = []
    script = (
        StepResult((), (1,), sequences=1),
        StepResult(((1, OTHER, False),), sequences=1),
        StepResult(((1, OTHER, True),), sequences=1),
    )
    loop, desk, executor = engine(*script, rules=PAGED, journal=lambda *entry: entries.append(entry), threads=2)
    executor.pages = {1: 1}
    loop.submit(text(0, deadline=9.5))
    loop.submit(text(1, sampling=Sampling(0.5, 0.9, 3, 7), force=2))
    loop.submit(text(2))
    loop.cancel(2)
    loop.cancel(99)
    loop.start()
    desk.wait(3)
    loop.stop()
    assert {id: last.finished for id, last in desk.last.items()} == {0: "late", 1: "length", 2: "cancelled"}
    assert desk.last[0] == Progress(0, (), "late", 0.0, 0, 0, 0)
    assert desk.last[2] == Progress(2, (), "cancelled", 0.0, 0, 0, 0)
    first, second, third = (text(id, **more).prompt for id, more in ((0, {"deadline": 9.5}), (1, {}), (2, {})))
    assert third not in entries[0][1].arrived
    plan = StepPlan(((0, "late"),), (), (), (1,), (Chunk(1, 3),))
    assert entries[:3] == [
        (10.0, StepInput((first, second)), plan),
        (11.0, StepInput(), StepPlan()),
        (12.0, StepInput(), StepPlan()),
    ]
    options = {"temperature": 0.5, "top_k": 3, "top_p": 0.9, "seed": 7}
    assert executor.calls[:6] == [
        ("enter", 2), ("add", 0, (0, 1, 2), 8, ENDS, {}), ("add", 1, (0, 1, 2), 2, (), options),
        ("cancel", 2), ("cancel", 99), ("carry_out", plan),
    ]  # fmt: skip
    status = loop.status()
    assert (status.iterations, status.tokens, status.sequences, status.running, status.waiting) == (3, 2, 3, 0, 0)
    # The scheduler takes one second of the three until an iteration is shared out, which lasts for four.
    assert status.deciding * 4 == status.busy and desk.seconds[1] == 9.0


def test_an_idle_engine_is_woken_by_a_cancellation_and_by_a_check(engine):
    loop, _, executor = engine(rules=PAGED)
    before = threading.enumerate()
    loop.start()
    (thread,) = (each for each in threading.enumerate() if each.name == "packing engine" and each not in before)
    assert thread.daemon and loop.status().alive
    loop.cancel(7)
    assert executor.cancelled.wait(60)
    loop.check()
    assert ("check",) in executor.calls
    loop.stop()
    assert not thread.is_alive() and not loop.status().alive
    calls = len(executor.calls)
    loop.check()
    assert executor.calls[calls:] == [("check",)], "also after the end"


def test_an_id_may_come_again_after_its_end_and_not_before(engine):
    loop, desk, _ = engine(StepResult(((0, OTHER, True),), (0,), sequences=1))
    loop.submit(text(0))
    with pytest.raises(InputError, match=r"^id is 0, but must be one that is not in flight$"):
        loop.submit(text(0))
    loop.start()
    desk.wait(1)
    assert desk.last.pop(0).finished == "length"
    loop.submit(text(0))
    loop.stop()
    assert desk.last[0].finished == "cancelled"
