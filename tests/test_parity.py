"""One scheduler, two clocks: a journal's events at their times give its actions again, exactly.

Journals from the simulator, from the asyncio driver on a real clock, and golden ones from the repository. Two scratch
schedulers with planted impurities show that the comparison can fail.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import replace

import pytest

from pliant.errors import WorkerError
from pliant.journal import decode, encode
from pliant.latency import LatencyTable
from pliant.protocol import Answer, Arrived, Changed, Drop, Failed, Journal, Scheduler, replay
from pliant.serving.driver import Driver, loop_clock
from pliant.simulator import simulate
from pliant.tokens.adaptive import AdaptivePolicy
from pliant.tokens.policies import POLICIES
from pliant.tokens.scheduler import Decision, Knowledge, Options, TokensScheduler
from tests.fixtures import golden_journals
from tests.fixtures.cascade import loads as cascades
from tests.fixtures.tokens import loads
from tests.fixtures.tokens.loads import ACCURACY, KNOWN, RULE, TABLE, World, bursty, known

ROUGH = World(9, failing=0.25, failing_restarts=0.2, jitter=0.3)
NARROW = {"max_waiting": 60, "restart_pause": 0.05}


def scheduler(workers: int = 1, policy: str = "default") -> TokensScheduler:
    return loads.scheduler(policy, workers, **NARROW)


def first_difference(fresh: Scheduler, journal: Journal) -> int | None:
    """Index of the first entry that comes out otherwise. Stops there: what has gone astray may not know a later event."""
    return next((i for i, entry in enumerate(journal) if replay(fresh, [entry]) != [entry]), None)


def kinds(journal: Journal) -> set[str]:
    """Types of events, and reasons of drops."""
    reasons = {action.reason for entry in journal for action in entry.actions if isinstance(action, Drop)}
    return {type(entry.event).__name__ for entry in journal} | reasons


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("workers", [1, 3])
def test_a_simulated_journal_replays_exactly(workers, policy):
    load = bursty(20 + workers, 0.5)
    world = replace(ROUGH, known=known(policy))
    journal = simulate(scheduler(workers, policy), load, world.over(load))
    assert kinds(journal) >= {"Arrived", "Finished", "Failed"}
    assert replay(scheduler(workers, policy), journal) == journal


class ShortWorker:
    """Sleeps for what the table says, on the real clock; every `crash`th launch dies."""

    ended = None

    def __init__(self, crash: int, table: LatencyTable) -> None:
        self._crash, self._table, self._runs = crash, table, 0

    async def start(self) -> None: ...

    async def restart(self) -> None:
        await asyncio.sleep(0.01)

    async def run(self, setting, payloads):
        self._runs += 1
        began = time.perf_counter()
        await asyncio.sleep(self._table.at(setting, len(payloads)))
        if self._runs % self._crash == 0:
            raise WorkerError("planted")
        return list(payloads), time.perf_counter() - began

    async def update(self, value, build) -> None: ...

    async def load(self, number) -> float:
        await asyncio.sleep(0.01)
        return 0.01

    def kill(self) -> None: ...

    async def stop(self) -> None: ...


def live_journal(fresh, workers: int, changes: int = 0, table: LatencyTable = TABLE) -> Journal:
    """The same load through the asyncio driver, open loop, with so many changes of what the scheduler knows in between."""
    journal: Journal = []
    load = bursty(2, 0.1)
    at = {round((1 + n) * len(load) / (changes + 1)) for n in range(changes)}

    async def main() -> None:
        driver = Driver(fresh, [ShortWorker(3 + i, table) for i in range(workers)], journal.append, loop_clock())
        await driver.start()
        asks = []
        for number, request in enumerate(load):
            await asyncio.sleep(max(0.0, request.arrival - driver.now))
            if number in at:
                driver.change(other_knowledge(number).plain())
            within = request.deadline - request.arrival
            asks.append(asyncio.create_task(driver.submit(request.task, within, request.utility, request.id)))
        await asyncio.gather(*asks)
        await driver.stop()

    asyncio.run(main())
    return journal


def other_knowledge(number: int) -> Knowledge:
    """Slower or faster, and with a further task."""
    rows = tuple(tuple(seconds * (1.2 - number % 2 * 0.4) for seconds in row) for row in TABLE.seconds)
    return Knowledge(replace(TABLE, seconds=rows), {**ACCURACY, f"task {number}": ACCURACY["hard"]}, RULE)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_live_journal_replays_exactly(workers, policy):
    journal = live_journal(scheduler(workers, policy), workers, table=known(policy).latency)
    assert sum(isinstance(entry.event, Arrived) for entry in journal) == len(bursty(2, 0.1))
    assert {"Arrived", "Finished", "Failed"} <= kinds(journal)
    assert replay(scheduler(workers, policy), journal) == journal


def test_a_live_journal_with_changes_replays_exactly_and_not_without_them():
    journal = live_journal(scheduler(), 1, changes=3)
    assert sum(isinstance(entry.event, Changed) for entry in journal) == 3
    assert replay(scheduler(), map(decode, map(encode, journal))) == journal
    without = [entry for entry in journal if not isinstance(entry.event, Changed)]
    assert first_difference(scheduler(), without) is not None


# The cascade, whose requests run more than once


CASCADE = {"max_waiting": 40, "restart_pause": 0.05}
PLACES = pytest.mark.parametrize(("workers", "own"), [(1, False), (2, False), (2, True)])


@PLACES
def test_a_simulated_journal_of_a_cascade_replays_exactly_after_the_way_through_a_file(workers, own):
    world = cascades.World(9, failing=0.25, failing_restarts=0.2, jitter=0.3)
    journal, _ = cascades.run(cascades.bursty(20 + workers, 0.2), world, workers, own, **CASCADE)
    assert kinds(journal) >= {"Arrived", "Finished", "Failed"}
    assert replay(cascades.scheduler(cascades.known(workers, own), workers, **CASCADE), journal) == journal
    assert [decode(encode(entry)) for entry in journal] == journal


class ShortModels:
    """Times of models in place of a table's."""

    def __init__(self, models) -> None:
        self._models = models

    def at(self, model: int, batch: int) -> float:
        return self._models[model].latency.between(64, batch)


def go_on(pending, result):
    """Every third text goes on from its first level, and then reads less."""
    if pending.request.id % 3 or len(pending.launches) > 1:
        return result
    return replace(result, gain=0.01 * (1 + pending.request.id % 30), length=30)


def live_cascade(fresh, knowledge, workers: int) -> Journal:
    journal: Journal = []
    load = cascades.bursty(2, 0.1).requests

    async def main() -> None:
        workforce = [ShortWorker(3 + i, ShortModels(knowledge.models)) for i in range(workers)]
        driver = Driver(fresh, workforce, journal.append, loop_clock(), read=go_on)
        await driver.start()
        asks = []
        for request in load:
            await asyncio.sleep(max(0.0, request.arrival - driver.now))
            within, more = request.deadline - request.arrival, (None, request.length, request.setting)
            asks.append(asyncio.create_task(driver.submit(request.task, within, request.utility, *more)))
        await asyncio.gather(*asks)
        await driver.stop()

    asyncio.run(main())
    return journal


@PLACES
def test_a_live_journal_of_a_cascade_replays_exactly(workers, own):
    knowledge = cascades.known(workers, own)
    journal = live_cascade(cascades.scheduler(knowledge, workers, **CASCADE), knowledge, workers)
    assert {"Arrived", "Finished", "Failed"} <= kinds(journal)
    assert any(entry.event.request.setting for entry in journal if isinstance(entry.event, Arrived))
    assert replay(cascades.scheduler(knowledge, workers, **CASCADE), map(decode, map(encode, journal))) == journal


def test_the_cascades_golden_journal_holds_every_reason_for_an_answer_cut_short():
    journal = golden_journals.read("cascade")
    reasons = {action.reason for entry in journal for action in entry.actions if isinstance(action, Answer)}
    assert reasons == {"", "late", "full", "failed"}


@pytest.mark.parametrize("name", golden_journals.GOLDEN)
def test_a_golden_journal_replays_exactly(name):
    """If decisions were meant to change: `python -m tests.fixtures.golden_journals`."""
    fresh, _ = golden_journals.GOLDEN[name]
    journal = golden_journals.read(name)
    assert replay(fresh(), journal) == journal


@pytest.mark.parametrize("name", golden_journals.GOLDEN)
def test_a_golden_journal_holds_every_kind_of_event_and_stays_small(name):
    assert kinds(golden_journals.read(name)) >= {"Arrived", "Finished", "Failed", "Woke", "late", "full", "failed"}
    assert golden_journals.file(name).stat().st_size < 100_000


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


def planted(impure) -> TokensScheduler:
    return TokensScheduler(impure(KNOWN), 1, Options(margin=0.0, **NARROW))


@pytest.mark.parametrize("impure", [ReadsTheClock, ShufflesItsBatches])
def test_the_comparison_fails_for_an_impure_scheduler(impure):
    load = bursty(3, 0.5)
    journal = simulate(planted(impure), load, World().over(load))
    assert first_difference(planted(impure), journal) is not None


def test_the_comparison_fails_for_one_changed_action_and_for_shifted_times():
    load = bursty(3, 0.3)
    journal = simulate(scheduler(), load, ROUGH.over(load))
    assert any(isinstance(entry.event, Failed) for entry in journal)
    where = next(i for i, entry in enumerate(journal) if entry.actions)
    changed = [*journal[:where], replace(journal[where], actions=()), *journal[where + 1 :]]
    assert first_difference(scheduler(), changed) == where
    shifted = [replace(entry, now=entry.now + 0.02) for entry in journal]
    assert first_difference(scheduler(), shifted) is not None
