"""One scheduler, two clocks, for bins: see tests/test_parity.py. Under both placements, with swaps and failing devices."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from pliant.bins.knowledge import Knowledge, Runtime
from pliant.bins.scheduler import BinsScheduler
from pliant.journal import decode, encode
from pliant.protocol import Arrived, Journal, Launch, replay
from pliant.serving.driver import Driver, loop_clock
from tests.fixtures import golden_journals
from tests.fixtures.bins import loads
from tests.test_parity import ShortWorker, first_difference, kinds

NARROW = {"restart_pause": 0.05, "max_waiting": 30, "period": 0.05, "swaps": 0.4}
PLACES = pytest.mark.parametrize(("placement", "workers"), [("shared", 1), ("shared", 3), ("single", 3)])


def scheduler(knowledge: Knowledge, workers: int) -> BinsScheduler:
    """All devices begin with long texts of the streams, so that plans change something."""
    deployed = (3, 5, 5)[:workers] if knowledge.placement == "single" else ()
    return loads.scheduler(knowledge, workers=workers, deployed=deployed, **NARROW)


def launched(journal: Journal) -> set[str]:
    return {action.kind for entry in journal for action in entry.actions if isinstance(action, Launch)}


@PLACES
def test_a_simulated_journal_of_bins_replays_exactly_after_the_way_through_a_file(placement, workers):
    knowledge, load = loads.known(placement, 2, (1, 4)), loads.bursty(20 + workers, 0.1, streams=2)
    world = loads.World(9, failing=0.1, failing_restarts=0.2, failing_loads=0.2, jitter=0.3)
    journal, books = loads.run(load, knowledge, world, workers=workers, **NARROW)
    assert kinds(journal) >= {"Arrived", "Finished", "Failed"}
    assert replay(BinsScheduler(knowledge, books.config), journal) == journal
    assert [decode(encode(entry)) for entry in journal] == journal


class Shapes:
    """Times of shapes in place of a table's."""

    def __init__(self, knowledge: Knowledge) -> None:
        self._runtimes: dict[int, Runtime] = {s: runtime for runtime in knowledge.runtimes for s in runtime.settings}

    def at(self, setting: int, texts: int) -> float:
        return self._runtimes[setting].cost(20, texts)[1]


def live_bins(fresh: BinsScheduler, knowledge: Knowledge, workers: int) -> Journal:
    journal: Journal = []
    load = loads.bursty(2, 0.1, (200, 1000, 300), streams=2)

    async def main() -> None:
        workforce = [ShortWorker(9 + i, Shapes(knowledge)) for i in range(workers)]
        driver = Driver(fresh, workforce, journal.append, loop_clock())
        await driver.start()
        asks = []
        for request in load:
            await asyncio.sleep(max(0.0, request.arrival - driver.now))
            within = request.deadline - request.arrival
            asks.append(asyncio.create_task(driver.submit(request.task, within, 1.0, None, request.length)))
        await asyncio.gather(*asks)
        await driver.stop()

    asyncio.run(main())
    return journal


@PLACES
def test_a_live_journal_of_bins_replays_exactly(placement, workers):
    knowledge = loads.known(placement, 2, (1, 4))
    journal = live_bins(scheduler(knowledge, workers), knowledge, workers)
    assert {"Arrived", "Finished", "Failed"} <= kinds(journal)
    assert launched(journal) == {"run", "restart", *(["load"] if placement == "single" else [])}
    assert replay(scheduler(knowledge, workers), map(decode, map(encode, journal))) == journal


@pytest.mark.parametrize("name", ["bins", "bins_shared"])
def test_the_comparison_fails_for_a_journal_of_bins_with_other_lengths(name):
    fresh, _ = golden_journals.GOLDEN[name]
    assert first_difference(fresh(), [halved(entry) for entry in golden_journals.read(name)]) is not None


def halved(entry):
    if not isinstance(entry.event, Arrived):
        return entry
    request = entry.event.request
    return replace(entry, event=Arrived(replace(request, length=request.length // 2)))
