"""One scheduler, two clocks: a journal's events at their times give its actions again, exactly.

Journals from the asyncio driver on a real clock, and golden ones from the repository; those of the simulator are replayed
by tests/pliant/test_every_system.py, packing's by tests/test_parity_packing.py. Two scratch schedulers with planted
impurities show that the comparison can fail.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from pliant.bins.knowledge import Runtime
from pliant.errors import WorkerError
from pliant.journal import decode, encode
from pliant.protocol import Answer, Arrived, Changed, Drop, Failed, Journal, Launch, Request, Scheduler, replay
from pliant.serving.driver import Driver, loop_clock
from pliant.simulator import simulate
from pliant.tokens.adaptive import AdaptivePolicy
from pliant.tokens.policies import POLICIES
from pliant.tokens.scheduler import Decision, Knowledge, Options, TokensScheduler
from tests.fixtures import golden_journals
from tests.fixtures.bins import loads as bins
from tests.fixtures.cascade import loads as cascades
from tests.fixtures.tokens import loads as tokens
from tests.fixtures.tokens.loads import ACCURACY, KNOWN, RULE, TABLE, World, bursty

ROUGH = World(9, failing=0.25, failing_restarts=0.2, jitter=0.3)
NARROW = {"max_waiting": 60, "restart_pause": 0.05}


def first_difference(fresh: Scheduler, journal: Journal) -> int | None:
    """Index of the first entry that comes out otherwise. Stops there: what has gone astray may not know a later event."""
    return next((i for i, entry in enumerate(journal) if replay(fresh, [entry]) != [entry]), None)


def kinds(journal: Journal) -> set[str]:
    """Types of events, and reasons of drops."""
    reasons = {action.reason for entry in journal for action in entry.actions if isinstance(action, Drop)}
    return {type(entry.event).__name__ for entry in journal} | reasons


@dataclass(frozen=True)
class Case:
    """A scheduler, its load, and the seconds of a launch by setting and size; every `crash`th launch of a worker dies."""

    fresh: Callable[[], Scheduler]
    load: list[Request]
    seconds: Callable[[int, int], float]
    workers: int
    crash: int = 3
    read: Callable[..., Any] = lambda _pending, result: result


def of_tokens(policy: str, workers: int) -> Case:
    fresh = partial(tokens.scheduler, policy, workers, **NARROW)
    return Case(fresh, bursty(2, 0.1), tokens.known(policy).latency.at, workers)


def of_cascade(workers: int, own: bool) -> Case:
    known = cascades.known(workers, own)
    fresh = partial(cascades.scheduler, known, workers, max_waiting=40, restart_pause=0.05)
    seconds = lambda model, batch: known.models[model].latency.between(64, batch)  # noqa: E731
    return Case(fresh, cascades.bursty(2, 0.1).requests, seconds, workers, read=go_on)


def go_on(pending, result):
    """Every third text goes on from its first level, and then reads less."""
    if pending.request.id % 3 or len(pending.launches) > 1:
        return result
    return replace(result, gain=0.01 * (1 + pending.request.id % 30), length=30)


def of_bins(placement: str, workers: int) -> Case:
    """All devices begin with long texts of the streams, so that plans change something."""
    known = bins.known(placement, 2, (1, 4))
    deployed = (3, 5, 5)[:workers] if placement == "single" else ()
    narrow = {"restart_pause": 0.05, "max_waiting": 30, "period": 0.05, "swaps": 0.4}
    fresh = partial(bins.scheduler, known, workers=workers, deployed=deployed, **narrow)
    runtimes: dict[int, Runtime] = {setting: runtime for runtime in known.runtimes for setting in runtime.settings}
    load = bins.bursty(2, 0.1, (200, 1000, 300), streams=2)
    return Case(fresh, load, lambda setting, texts: runtimes[setting].cost(20, texts)[1], workers, crash=9)


class ShortWorker:
    """Sleeps for as long as a launch takes, on the real clock; every `crash`th launch dies."""

    ended = None

    def __init__(self, crash: int, seconds: Callable[[int, int], float]) -> None:
        self._crash, self._seconds, self._runs = crash, seconds, 0

    async def start(self) -> None: ...

    async def restart(self) -> None:
        await asyncio.sleep(0.01)

    async def run(self, setting, payloads):
        self._runs += 1
        began = time.perf_counter()
        await asyncio.sleep(self._seconds(setting, len(payloads)))
        if self._runs % self._crash == 0:
            raise WorkerError("planted")
        return list(payloads), time.perf_counter() - began

    async def update(self, value, build) -> None: ...

    async def load(self, number) -> float:
        await asyncio.sleep(0.01)
        return 0.01

    def kill(self) -> None: ...

    async def stop(self) -> None: ...


def live_journal(case: Case, changes: int = 0) -> Journal:
    """The load through the asyncio driver, open loop, with so many changes of what the scheduler knows in between."""
    journal: Journal = []
    at = {round((1 + n) * len(case.load) / (changes + 1)) for n in range(changes)}

    async def main() -> None:
        workforce = [ShortWorker(case.crash + i, case.seconds) for i in range(case.workers)]
        driver = Driver(case.fresh(), workforce, journal.append, loop_clock(), read=case.read)
        await driver.start()
        asks = []
        for number, request in enumerate(case.load):
            await asyncio.sleep(max(0.0, request.arrival - driver.now))
            if number in at:
                driver.change(other_knowledge(number).plain())
            of = (request.deadline - request.arrival, request.utility, request.id, request.length, request.setting)
            asks.append(asyncio.create_task(driver.submit(request.task, *of)))
        await asyncio.gather(*asks)
        await driver.stop()

    asyncio.run(main())
    return journal


def other_knowledge(number: int) -> Knowledge:
    """Slower or faster, and with a further task."""
    rows = tuple(tuple(seconds * (1.2 - number % 2 * 0.4) for seconds in row) for row in TABLE.seconds)
    return Knowledge(replace(TABLE, seconds=rows), {**ACCURACY, f"task {number}": ACCURACY["hard"]}, RULE)


@pytest.mark.parametrize(
    ("make", "of"),
    [
        *((of_tokens, (policy, workers)) for policy in POLICIES for workers in (1, 2)),
        *((of_cascade, of) for of in ((1, False), (2, False), (2, True))),
        *((of_bins, of) for of in (("shared", 1), ("shared", 3), ("single", 3))),
    ],
)
def test_a_live_journal_replays_exactly_after_the_way_through_a_file(make, of):
    case = make(*of)
    journal = live_journal(case)
    asked = [entry.event.request for entry in journal if isinstance(entry.event, Arrived)]
    assert len(asked) == len(case.load) and {"Arrived", "Finished", "Failed"} <= kinds(journal)
    if make is of_cascade:
        assert any(request.setting for request in asked)
    if make is of_bins:
        launched = {action.kind for entry in journal for action in entry.actions if isinstance(action, Launch)}
        assert launched == {"run", "restart", *(["load"] if of[0] == "single" else [])}
    assert replay(case.fresh(), map(decode, map(encode, journal))) == journal


def test_a_live_journal_with_changes_replays_exactly_and_not_without_them():
    case = of_tokens("default", 1)
    journal = live_journal(case, changes=3)
    assert sum(isinstance(entry.event, Changed) for entry in journal) == 3
    assert replay(case.fresh(), map(decode, map(encode, journal))) == journal
    without = [entry for entry in journal if not isinstance(entry.event, Changed)]
    assert first_difference(case.fresh(), without) is not None


@pytest.mark.parametrize("name", golden_journals.GOLDEN)
def test_a_golden_journal_replays_exactly_holds_every_kind_of_event_and_stays_small(name):
    """If decisions were meant to change: `python -m tests.fixtures.golden_journals`."""
    fresh, _ = golden_journals.GOLDEN[name]
    journal = golden_journals.read(name)
    assert replay(fresh(), journal) == journal
    assert kinds(journal) >= {"Arrived", "Finished", "Failed", "Woke", "late", "full", "failed"}
    assert golden_journals.file(name).stat().st_size < 100_000
    if name == "cascade":
        reasons = {action.reason for entry in journal for action in entry.actions if isinstance(action, Answer)}
        assert reasons == {"", "late", "full", "failed"}


# Planted impurities


class ReadsTheClock(AdaptivePolicy):
    """Lets the wall clock have a say in gamma."""

    def decide(self, pool, now) -> Decision:
        decision = super().decide(pool, now)
        index = time.perf_counter_ns() % len(TABLE.settings)
        return replace(decision, setting=TABLE.settings[index]) if decision.run else decision


class ShufflesItsBatches(AdaptivePolicy):
    def decide(self, pool, now) -> Decision:
        decision = super().decide(pool, now)
        return replace(decision, run=tuple(random.sample(decision.run, len(decision.run))))


@pytest.mark.parametrize("impure", [ReadsTheClock, ShufflesItsBatches])
def test_the_comparison_fails_for_an_impure_scheduler(impure):
    planted, load = lambda: TokensScheduler(impure(KNOWN), 1, Options(margin=0.0, **NARROW)), bursty(3, 0.5)
    assert first_difference(planted(), simulate(planted(), load, World().over(load))) is not None


def test_the_comparison_fails_for_one_changed_action_and_for_shifted_times():
    load, fresh = bursty(3, 0.3), of_tokens("default", 1).fresh
    journal = simulate(fresh(), load, ROUGH.over(load))
    assert any(isinstance(entry.event, Failed) for entry in journal)
    where = next(i for i, entry in enumerate(journal) if entry.actions)
    changed = [*journal[:where], replace(journal[where], actions=()), *journal[where + 1 :]]
    assert first_difference(fresh(), changed) == where
    shifted = [replace(entry, now=entry.now + 0.02) for entry in journal]
    assert first_difference(fresh(), shifted) is not None


@pytest.mark.parametrize("name", ["bins", "bins_shared"])
def test_the_comparison_fails_for_a_journal_of_bins_with_other_lengths(name):
    def halved(entry):
        if not isinstance(entry.event, Arrived):
            return entry
        return replace(entry, event=Arrived(replace(entry.event.request, length=entry.event.request.length // 2)))

    fresh, _ = golden_journals.GOLDEN[name]
    assert first_difference(fresh(), [halved(entry) for entry in golden_journals.read(name)]) is not None
