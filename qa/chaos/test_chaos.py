"""A service at 0.7 of its capacity, to which something happens every ten seconds, for minutes."""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import pytest
from scipy.stats import theilslopes

from pliant.serving.http.bodies import INLINE_BYTES
from qa.chaos.faults import Victim, strike
from qa.chaos.load import DECLARED, Clients
from qa.clients import again_and_again
from qa.targets import MB, metric, say
from qa.worlds import WORLDS, World, served

MINUTES = float(os.environ.get("PLIANT_CHAOS_MINUTES", "30"))
SEED = int(os.environ.get("PLIANT_CHAOS_SEED", "0"))
LONG = 20.0  # minutes from which on a growth of memory is more than a warm-up
SHARE = 0.7  # of the capacity
WARM_UP = 0.2  # share of the time before memory is looked at


def request_of(world: World, blanks: int = 0) -> bytes:
    """Return a request that asks for the connection to be closed. Its body begins with blanks: large, and of one meaning."""
    body = b" " * blanks + world.body
    head = f"POST {world.path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize("system", WORLDS)
def test_every_request_has_exactly_one_answer_whatever_happens(system, tmp_path, targets):
    often = {"refresh_seconds": 2.0, "launch_limit": 5.0}
    with served(system, tmp_path, journal=tmp_path / "journal.jsonl", **often) as service:
        host, port = service.url.removeprefix("http://").split(":")
        clients = Clients((host, int(port)), request_of(WORLDS[system]))
        # Where the process that parses it was killed, a large body may have been too much for that.
        large = Clients(clients.address, request_of(WORLDS[system], INLINE_BYTES), DECLARED | {413})
        victim = Victim(service, tmp_path / "mlflow.db", clients, large)
        best = asyncio.run(clients.capacity())
        say(f"{system}: {best:.0f} answers a second at best; seed {SEED}, {MINUTES:g} minutes")
        memory, main = list[tuple[float, float]](), victim.main
        with (
            again_and_again(lambda: memory.append((time.monotonic(), main.memory_info().rss / MB)), 1.0),
            ThreadPoolExecutor(1) as pool,
        ):
            offering = pool.submit(asyncio.run, clients.offer(SHARE * best, 60 * MINUTES, SEED))
            strikes = strike(victim, SEED, 60 * MINUTES)
            offering.result()
        last = time.monotonic() + 60
        while (left := metric(service.url, "waiting")) and time.monotonic() < last:
            time.sleep(0.5)
    for each, name in ((clients, "requests"), (large, "requests with large bodies")):
        say(f"{name}: answers {dict(each.answers)}; without: {each.unanswered[:3]}")
    say(f"{strikes} faults")
    without = len(clients.unanswered) + len(large.unanswered)
    targets.at_most("accepted requests without exactly one answer", without, 0)
    targets.at_most("requests that still wait a minute after the last", left, 0)
    targets.at_most("5xx other than declared shedding", clients.undeclared + large.undeclared, 0)
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
