"""A device gets its next batch shortly before it is free: nothing is lost, nobody is blamed, and the journal replays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pliant.protocol import Arrived, Changed, Drop, Failed, Finished, Launch, Request, Woke, replay
from pliant.simulator import simulate
from pliant.tokens.policies import make
from pliant.tokens.published import FIGURE_4B, SyntheticConfig, profile, synthetic
from pliant.tokens.scheduler import Options
from pliant.tokens.simulated import SimulatedDevice

KNOWN = profile(FIGURE_4B)
AHEAD = replace(KNOWN, lead=0.005)


def ahead(workers: int = 1):
    """A scheduler whose knowledge, a journal's first entry, lets it decide ahead."""
    scheduler = make("default", KNOWN, workers, options=Options(restart_pause=0.5))
    scheduler.handle(Changed(AHEAD.plain()), 0.0)
    return scheduler


def request(number: int, arrival: float) -> Request:
    return Request(number, arrival, arrival + 5.0, "cifar10")


def test_two_batches_are_in_flight_and_the_journal_replays():
    load = synthetic(2.0, 0, SyntheticConfig(seconds=2.0))
    scheduler = ahead(2)
    device = SimulatedDevice(KNOWN.latency, KNOWN.accuracy, load, np.random.default_rng(0), jitter=0.1)
    in_flight: list[int] = []

    def observe(_entry) -> None:
        scheduler.check()
        in_flight.append(len(scheduler.running))

    journal = simulate(scheduler, load, device, observe)
    assert max(in_flight) == 4, "two a device"
    assert replay(ahead(2), journal) == journal
    ended = {entry.event.launch for entry in journal if isinstance(entry.event, Finished)}
    launched = [action.id for entry in journal for action in entry.actions if isinstance(action, Launch)]
    assert sorted(ended) == launched


def test_without_a_lead_a_device_has_one_batch():
    scheduler = make("default", KNOWN)
    scheduler.handle(Arrived(request(0, 0.0)), 0.0)
    assert scheduler.handle(Arrived(request(1, 0.0)), 0.0) == []
    assert len(scheduler.running) == 1


def test_the_scheduler_wakes_to_decide_the_next_batch_ahead_and_only_where_something_waits():
    scheduler = ahead()
    (first,) = scheduler.handle(Arrived(request(0, 0.0)), 0.0)
    assert scheduler.wake_at() is None
    assert scheduler.handle(Arrived(request(1, 0.0)), 0.0001) == []
    wake = scheduler.wake_at()
    assert 0.0001 < wake < first.expected
    (second,) = scheduler.handle(Woke(), wake)
    assert (second.worker, second.requests) == (0, (1,))
    scheduler.check()


def test_the_requests_behind_a_batch_whose_device_died_wait_again_without_blame():
    scheduler = ahead()
    scheduler.handle(Arrived(request(0, 0.0)), 0.0)
    scheduler.handle(Arrived(request(1, 0.0)), 0.0001)
    scheduler.handle(Woke(), wake := scheduler.wake_at())
    assert scheduler.handle(Failed(0, "it died"), wake) == [], "the restart waits for the second to fail"
    (restart,) = scheduler.handle(Failed(1, "it died"), wake)
    assert restart.kind == "restart"
    scheduler.check()
    actions = scheduler.handle(Finished(restart.id, 0.1), wake + 0.1)
    assert [launch.requests for launch in actions] in ([(0,)], [(1,)]), "the first, which may be to blame, runs alone"
    again = scheduler.handle(Failed(actions[0].id, "again"), wake + 0.2)
    assert Drop(1, "failed") not in again, "it was never to blame before"
    scheduler.check()
