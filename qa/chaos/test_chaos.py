"""A service at 0.7 of its capacity, to which something happens every ten seconds, for minutes."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from dataclasses import dataclass, field
from statistics import median

import psutil
import pytest
from scipy.stats import theilslopes

from pliant.serving.http.bodies import INLINE_BYTES
from qa.chaos.faults import Victim, strike
from qa.chaos.load import Counts, capacity, offer
from qa.grounds import GROUNDS, OFTEN, served
from qa.targets import MB, Targets, metric, say

MINUTES = float(os.environ.get("PLIANT_CHAOS_MINUTES", "30"))
SEED = int(os.environ.get("PLIANT_CHAOS_SEED", "0"))
LONG = 20.0  # minutes from which on a growth of memory is more than a warm-up
SHARE = 0.7  # of the capacity
WARM_UP = 0.2  # share of the time before memory is looked at


@dataclass
class MemoryLog:
    """The resident memory of one process in MB, once a second."""

    process: psutil.Process
    seconds: list[float] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def keep(self) -> None:
        while not self._stopped.wait(1.0):
            self.seconds.append(time.monotonic())
            self.megabytes.append(self.process.memory_info().rss / MB)

    def stop(self) -> None:
        self._stopped.set()

    def course(self, parts: int = 10) -> str:
        """Return the median of each of so many parts of the time."""
        count = max(1, len(self.megabytes) // parts)
        pieces = [self.megabytes[at : at + count] for at in range(0, len(self.megabytes), count)]
        return " ".join(f"{median(piece):.1f}" for piece in pieces)

    def slope(self) -> float:
        """Return the growth after the warm-up in MB/h: the median of the slopes between all pairs (Theil and Sen)."""
        first = int(WARM_UP * len(self.seconds))
        step = max(1, len(self.seconds) // 600)
        return float(3600 * theilslopes(self.megabytes[first::step], self.seconds[first::step])[0])


@pytest.mark.parametrize("system", GROUNDS)
def test_every_request_has_exactly_one_answer_whatever_happens(system, tmp_path):
    ground = GROUNDS[system]
    with served(system, tmp_path, journal=tmp_path / "journal.jsonl", **OFTEN) as service:
        victim = Victim(service, tmp_path / "mlflow.db", ground.request(), ground.request(INLINE_BYTES))
        best = asyncio.run(capacity(victim.address, victim.request))
        say(f"{system}: {best:.0f} answers a second at best; seed {SEED}, {MINUTES:g} minutes")
        counts, log = Counts(), MemoryLog(victim.main)
        watching = threading.Thread(target=log.keep)
        watching.start()
        load = threading.Thread(
            target=lambda: asyncio.run(offer(victim.address, victim.request, SHARE * best, 60 * MINUTES, SEED, counts))
        )
        load.start()
        strikes = strike(victim, SEED, 60 * MINUTES)
        load.join()
        log.stop()
        watching.join()
        left = left_after(service, 60)
    say(f"{counts.asked} requests, {strikes} faults; answers: {dict(counts.answers)}; without: {counts.unanswered[:3]}")
    large = victim.counts
    say(f"{large.asked} requests with large bodies; answers: {dict(large.answers)}; without: {large.unanswered[:3]}")
    say(f"memory of the event loop's process: {min(log.megabytes):.0f} to {max(log.megabytes):.0f} MB")
    say(f"its course, from tenth to tenth of the time: {log.course()}")
    targets = Targets(f"chaos, {system}")
    without = len(counts.unanswered) + len(large.unanswered)
    targets.at_most("accepted requests without exactly one answer", without, 0)
    targets.at_most("requests that still wait a minute after the last", left, 0)
    targets.at_most("5xx other than declared shedding", counts.undeclared + large.undeclared, 0)
    if MINUTES >= LONG:
        targets.at_most("growth of memory after warm-up", log.slope(), 1.0, " MB/h")
    else:
        say(f"memory grows by {log.slope():.0f} MB/h, which is not judged within {LONG} minutes")
    targets.check()


def left_after(service, seconds: float) -> float:
    """Return how many requests still wait for a launch after so many seconds without any load."""
    end = time.monotonic() + seconds
    while (left := metric(service.url, "waiting")) and time.monotonic() < end:
        time.sleep(0.5)
    return left
