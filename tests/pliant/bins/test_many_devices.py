"""Many devices: decisions stay those of plain rules that look at every device, and cost no more than with a few."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.bins.knowledge import Config, Scaling
from pliant.bins.scheduler import BinsScheduler
from pliant.bins.shared import SharedPool
from pliant.protocol import Event, Failed, Finished, Journal, replay
from tests.fixtures.bins.loads import World, bursty, known, run
from tests.fixtures.devices.counting import lines

SCALING = Scaling(min_devices=1, window=0.06, pause=0.02, high=0.6, low=0.4)


class PlainPool(SharedPool):
    """Looks at every device for the first free one, and lets every free one look for work after a failure."""

    def _first_free(self) -> int | None:
        return next((worker for worker in self._devices.free if worker in self._active), None)

    def lost(self, _worker: int, _now: float) -> Iterator[int]:
        return iter(list(self._devices.free))


def plain(config: Config, streams: int) -> BinsScheduler:
    """A scheduler with a plain pool."""
    knowledge = known("shared", streams)
    books = BinsScheduler(knowledge, config)
    books._pool = PlainPool(knowledge, config, books._devices, books._fairness, books._retries)
    return books


@settings(max_examples=40, deadline=None)
@given(
    st.builds(
        World,
        seed=st.integers(0, 1000),
        slow=st.sampled_from([0.5, 2.0]),
        failing=st.sampled_from([0.0, 0.2]),
        failing_restarts=st.sampled_from([0.0, 0.4]),
    ),
    st.sampled_from([2, 5, 12]),
    st.booleans(),
    st.sampled_from([None, SCALING]),
    st.sampled_from([1, 2]),
)
def test_the_free_device_that_is_kept_at_hand_is_the_one_that_a_search_finds(world, workers, drop, scaling, streams):
    leaving = [(0.03 * n, 7 * n) for n in range(5)]
    load = bursty(world.seed, 0.05, streams=streams)
    journal, books = run(
        load, known("shared", streams), world, leaving, workers=workers, drop_late=drop, scaling=scaling
    )
    assert replay(plain(books.config, streams), journal) == journal


def lines_each(journal: Journal, scheduler: BinsScheduler, kinds: tuple[type[Event], ...]) -> float:
    """Return the mean lines of Python of handling an event of these kinds and of asking when to wake, once under way."""
    counted = []
    for number, entry in enumerate(journal):
        took = lines(lambda: (scheduler.handle(entry.event, entry.now), scheduler.wake_at()))  # noqa: B023  used at once
        counted += [took] * (2 * number >= len(journal) and isinstance(entry.event, kinds))
    return sum(counted) / len(counted)


@pytest.mark.parametrize("placement", ["shared", "single"])
def test_an_event_costs_no_more_of_five_hundred_devices_than_of_eight(placement):
    """The load per device is the same; with the most devices hardly any work waits, so an event may well cost less."""
    costs: dict[int, list[float]] = {}
    for workers in (8, 512):
        load = bursty(0, 40 / (100 * workers), (80 * workers, 120 * workers))
        leaving = [(request.arrival + 0.001, request.id) for request in load[::9]]
        world, knowledge = World(3, failing=0.1, failing_restarts=0.2), known(placement)
        journal, books = run(load, knowledge, world, leaving, workers=workers, period=1e3)
        costs[workers] = [
            lines_each(journal, BinsScheduler(knowledge, books.config), kinds)
            for kinds in ((object,), (Finished,), (Failed,))
        ]
    assert all(many <= 1.5 * few for few, many in zip(costs[8], costs[512], strict=True)), costs
