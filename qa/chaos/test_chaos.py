"""A service at 0.7 of its capacity, to which something happens every ten seconds, for minutes."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median

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


@pytest.mark.parametrize("system", GROUNDS)
def test_every_request_has_exactly_one_answer_whatever_happens(system, tmp_path):
    ground, targets = GROUNDS[system], Targets(f"chaos, {system}")
    with served(system, tmp_path, journal=tmp_path / "journal.jsonl", **OFTEN) as service:
        victim = Victim(service, tmp_path / "mlflow.db", ground.request(), ground.request(INLINE_BYTES))
        best = asyncio.run(capacity(victim.address, victim.request))
        say(f"{system}: {best:.0f} answers a second at best; seed {SEED}, {MINUTES:g} minutes")
        counts, memory, main, ended = Counts(), list[tuple[float, float]](), victim.main, threading.Event()

        def watch() -> None:
            """Note the memory of the event loop's process in MB, once a second."""
            while not ended.wait(1.0):
                memory.append((time.monotonic(), main.memory_info().rss / MB))

        load = offer(victim.address, victim.request, SHARE * best, 60 * MINUTES, SEED, counts)
        with ThreadPoolExecutor(2) as pool:
            watching, offering = pool.submit(watch), pool.submit(asyncio.run, load)
            try:
                strikes = strike(victim, SEED, 60 * MINUTES)
                offering.result()
            finally:
                ended.set()
        watching.result()
        last = time.monotonic() + 60
        while (left := metric(service.url, "waiting")) and time.monotonic() < last:
            time.sleep(0.5)
    for asked, name in ((counts, "requests"), (victim.counts, "requests with large bodies")):
        say(f"{asked.asked} {name}; answers: {dict(asked.answers)}; without: {asked.unanswered[:3]}")
    say(f"{strikes} faults")
    without = len(counts.unanswered) + len(victim.counts.unanswered)
    targets.at_most("accepted requests without exactly one answer", without, 0)
    targets.at_most("requests that still wait a minute after the last", left, 0)
    targets.at_most("5xx other than declared shedding", counts.undeclared + victim.counts.undeclared, 0)
    seconds, megabytes = zip(*memory, strict=True)
    tenth = max(1, len(memory) // 10)
    course = " ".join(f"{median(megabytes[at : at + tenth]):.1f}" for at in range(0, len(memory), tenth))
    say(f"memory of the event loop's process, from tenth to tenth of the time: {course} MB")
    first, step = int(WARM_UP * len(memory)), max(1, len(memory) // 600)
    growth = 3600 * float(theilslopes(megabytes[first::step], seconds[first::step])[0])  # median of all pairs' slopes
    if MINUTES >= LONG:
        targets.at_most("growth of memory after warm-up", growth, 1.0, " MB/h")
    else:
        say(f"memory grows by {growth:.0f} MB/h, which is not judged within {LONG} minutes")
    targets.check()
