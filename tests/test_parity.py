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
from pliant.protocol import Arrived, Drop, Failed, Journal, replay
from pliant.simulate import simulate
from pliant.tokens.batching import Queue
from pliant.tokens.scheduler import TokensScheduler
from serving.driver import Driver, loop_clock
from tests import golden_journals
from tests.pliant.tokens.loads import TABLE, World, bursty, config

ROUGH = World(9, failing=0.25, failing_restarts=0.2, jitter=0.3)


def first_difference(fresh: TokensScheduler, journal: Journal) -> int | None:
    """Index of the first entry that comes out otherwise. Stops there: what has gone astray may not know a later event."""
    return next((i for i, entry in enumerate(journal) if replay(fresh, [entry]) != [entry]), None)


def kinds(journal: Journal) -> set[str]:
    """Types of events, and reasons of drops."""
    reasons = {action.reason for entry in journal for action in entry.actions if isinstance(action, Drop)}
    return {type(entry.event).__name__ for entry in journal} | reasons


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_simulated_journal_replays_exactly(workers):
    load = bursty(20 + workers, 0.5)
    journal = simulate(TokensScheduler(config(max_waiting=60, restart_pause=0.05), workers), load, ROUGH.over(load))
    assert kinds(journal) >= {"Arrived", "Finished", "Failed", "Woke", "late", "failed"}
    assert replay(TokensScheduler(config(max_waiting=60, restart_pause=0.05), workers), journal) == journal


def test_a_journal_replays_exactly_after_the_way_through_a_file():
    load = bursty(1, 0.3)
    journal = simulate(TokensScheduler(config()), load, ROUGH.over(load))
    lines = [encode(entry) for entry in journal]
    assert replay(TokensScheduler(config()), map(decode, lines)) == journal


class ShortWorker:
    """Sleeps for what the table says, on the real clock; every `crash`th launch dies."""

    def __init__(self, crash: int) -> None:
        self._crash, self._runs = crash, 0

    async def start(self) -> None: ...

    async def restart(self) -> None:
        await asyncio.sleep(0.01)

    async def run(self, setting, payloads):
        self._runs += 1
        began = time.perf_counter()
        await asyncio.sleep(TABLE.at(setting, len(payloads)))
        if self._runs % self._crash == 0:
            raise WorkerError("planted")
        return list(payloads), time.perf_counter() - began

    async def update(self, value) -> None: ...

    def kill(self) -> None: ...

    async def stop(self) -> None: ...


def live_journal(scheduler, workers: int) -> Journal:
    """The same load through the asyncio driver, open loop."""
    journal: Journal = []

    async def main() -> None:
        driver = Driver(scheduler, [ShortWorker(12 + i) for i in range(workers)], journal.append, loop_clock())
        await driver.start()
        asks = []
        for request in bursty(2, 0.2):
            await asyncio.sleep(max(0.0, request.arrival - driver.now))
            within = request.deadline - request.arrival
            asks.append(asyncio.create_task(driver.submit(request.task, within, request.utility, request.id)))
        await asyncio.gather(*asks)
        await driver.stop()

    asyncio.run(main())
    return journal


@pytest.mark.parametrize("workers", [1, 2])
def test_a_live_journal_replays_exactly(workers):
    journal = live_journal(TokensScheduler(config(max_waiting=60, restart_pause=0.05), workers), workers)
    assert sum(isinstance(entry.event, Arrived) for entry in journal) == len(bursty(2, 0.2))
    assert {"Arrived", "Finished", "Failed", "late"} <= kinds(journal)
    assert replay(TokensScheduler(config(max_waiting=60, restart_pause=0.05), workers), journal) == journal


@pytest.mark.parametrize("name", golden_journals.GOLDEN)
def test_a_golden_journal_replays_exactly(name):
    """If decisions were meant to change: `python -m tests.golden_journals`."""
    fresh, _ = golden_journals.GOLDEN[name]
    journal = golden_journals.read(name)
    assert replay(fresh(), journal) == journal


@pytest.mark.parametrize("name", golden_journals.GOLDEN)
def test_a_golden_journal_holds_every_kind_of_event_and_stays_small(name):
    assert kinds(golden_journals.read(name)) >= {"Arrived", "Finished", "Failed", "Woke", "late", "full", "failed"}
    assert golden_journals.file(name).stat().st_size < 100_000


# Planted impurities


class ReadsTheClock(TokensScheduler):
    """Lets the wall clock have a say in gamma."""

    def _choose(self, now):
        batch, index = super()._choose(now)
        return batch, (index + time.perf_counter_ns()) % len(TABLE.settings)


class ShuffledQueue(Queue):
    @property
    def batches(self):
        batches = super().batches
        random.shuffle(batches)
        return batches


class ShufflesItsBatches(TokensScheduler):
    def __init__(self, given, workers: int = 1) -> None:
        super().__init__(given, workers)
        self._queue = ShuffledQueue(given.batching)


@pytest.mark.parametrize("impure", [ReadsTheClock, ShufflesItsBatches])
def test_the_comparison_fails_for_an_impure_scheduler(impure):
    load = bursty(3, 0.5)
    journal = simulate(impure(config()), load, World().over(load))
    assert first_difference(impure(config()), journal) is not None


@pytest.mark.parametrize("impure", [ReadsTheClock, ShufflesItsBatches])
def test_the_comparison_fails_for_an_impure_scheduler_recorded_live(impure):
    journal = live_journal(impure(config()), 1)
    assert first_difference(impure(config()), journal) is not None


def test_the_comparison_fails_for_one_changed_action_and_for_shifted_times():
    load = bursty(3, 0.3)
    journal = simulate(TokensScheduler(config()), load, ROUGH.over(load))
    assert any(isinstance(entry.event, Failed) for entry in journal)
    where = next(i for i, entry in enumerate(journal) if entry.actions)
    changed = [*journal[:where], replace(journal[where], actions=()), *journal[where + 1 :]]
    assert first_difference(TokensScheduler(config()), changed) == where
    shifted = [replace(entry, now=entry.now + 0.02) for entry in journal]
    assert first_difference(TokensScheduler(config()), shifted) is not None
