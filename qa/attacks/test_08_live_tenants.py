"""A real service of bins: one of ten tenants sends ten times its share, the others 0.8 of theirs, and must not notice.

Each round offers the same arrivals three times: without the tenant that floods, with it, and with it to a service that
knows no tenants. The encoder is so large that the device is the limit and not HTTP; a share is a tenth of the requests a
second that the device answers when the service is never without some. Clients are processes of their own.
"""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest

from qa.targets import Targets, make_keys, metric, say
from tests.fixtures.bins.published import TEXT, MlflowPublisher, publish_tiny, settings_for
from tests.fixtures.live import running
from tests.fixtures.tenants import FLOOD, OTHERS, arrivals

SIZES = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 6, "num_attention_heads": 4}
PLANNED = {"seconds": (2e-3, 8e-3, 1e-2)}  # in the ratio of an encoder for which a batch is no quicker than its texts
DEADLINE, SECONDS, WARM, ROUNDS = 0.5, 20.0, 2.0, 3
CLOSED = 16  # requests on their way while the capacity is measured
BODY = json.dumps({"inputs": TEXT, "deadline": DEADLINE}).encode()
SHED = r'refusals_total\{code="busy"\}'  # since the event loop had no time for them


@dataclass(frozen=True)
class Reached:
    """What became of a request. `seconds` are from the time at which it was to be sent to its answer."""

    tenant: str
    at: float
    status: int
    seconds: float


class Client:
    """Connections to a service that are kept and used again."""

    def __init__(self, address: str) -> None:
        self._host, port = address.split(":")
        self._port = int(port)
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, key: str) -> int:
        """Return the status of an answer; 0: none came."""
        try:
            reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection(self._host, self._port)
            authorization = f"authorization: Bearer {key}\r\n" if key else ""
            head = f"POST /predict HTTP/1.1\r\nhost: localhost\r\n{authorization}content-type: application/json\r\n"
            writer.write(f"{head}content-length: {len(BODY)}\r\n\r\n".encode() + BODY)
            answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
            (length,) = re.findall(rb"content-length: *(\d+)", answer.lower())
            await asyncio.wait_for(reader.readexactly(int(length)), 10)
        except (OSError, ValueError, asyncio.IncompleteReadError, TimeoutError):
            return 0
        self._idle.append((reader, writer))
        return int(answer.split()[1])


def offer(address: str, load: Sequence[tuple[float, str]], keys: Mapping[str, str], begin: float) -> list[Reached]:
    """Send requests at their times after `begin`, on the machine's monotonic clock; run in a process of its own."""

    async def send_all() -> list[Reached]:
        client, tasks = Client(address), []

        async def ask(tenant: str, at: float) -> Reached:
            status = await client.ask(keys.get(tenant, ""))
            return Reached(tenant, at, status, time.monotonic() - begin - at)

        for at, tenant in load:
            await asyncio.sleep(max(0.0, begin + at - time.monotonic()))
            tasks.append(asyncio.create_task(ask(tenant, at)))
        return list(await asyncio.gather(*tasks))

    gc.disable()
    try:
        return asyncio.run(send_all())
    finally:
        gc.enable()


def saturate(address: str, seconds: float) -> float:
    """Return the answers a second while `CLOSED` requests are always on their way."""

    async def ask_all() -> int:
        client, end = Client(address), time.monotonic() + seconds

        async def ask_on() -> int:
            count = 0
            while time.monotonic() < end:
                count += await client.ask("") == 200
            return count

        return sum(await asyncio.gather(*(ask_on() for _ in range(CLOSED))))

    return asyncio.run(ask_all()) / seconds


def reach(
    pool: ProcessPoolExecutor, service, load: Sequence[tuple[float, str]], keys: Mapping[str, str]
) -> list[Reached]:
    """Offer a load, the tenant that floods from a process of its own; what became of it after the first seconds."""
    address, begin = service.url.removeprefix("http://"), time.monotonic() + 1
    parts = [[pair for pair in load if (pair[1] == FLOOD) == flooding] for flooding in (False, True)]
    futures = [pool.submit(offer, address, part, keys, begin) for part in parts]
    return [reached for future in futures for reached in future.result() if reached.at >= WARM]


def p99(reached: Sequence[Reached]) -> float:
    """Return the 99th percentile of the seconds of the others' answers."""
    return float(np.quantile([r.seconds for r in reached if r.tenant != FLOOD and r.status == 200], 0.99))


def in_time(reached: Sequence[Reached], flooding: bool = True) -> int:
    """Return the number of answers in time on the client's clock."""
    return sum(r.status == 200 and r.seconds <= DEADLINE and (flooding or r.tenant != FLOOD) for r in reached)


@pytest.fixture(scope="module")
def services(tmp_path_factory):
    """A service with a key of each tenant, these keys, and a service without tenants."""
    folder = tmp_path_factory.mktemp("tenants")
    publish_tiny(MlflowPublisher(folder), "colours", head={"sizes": SIZES}, **PLANNED)
    keys = make_keys(folder / "keys.json", {**dict.fromkeys((*OTHERS, FLOOD), "use"), "operators": "monitor"})
    other = tmp_path_factory.mktemp("nobody")
    with (
        running(settings_for(folder, keys_file=folder / "keys.json"), folder) as shared,
        running(settings_for(folder, home=other / "home"), other) as nameless,
    ):
        yield shared, keys, nameless


def test_the_others_do_not_notice_a_tenant_at_ten_times_its_share(services):
    shared, keys, nameless = services
    rows = []
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(time.sleep, (2.0, 2.0)))  # both processes have imported everything
        address = nameless.url.removeprefix("http://")
        capacity = max(pool.submit(saturate, address, 5.0).result() for _ in range(2))
        say(f"the device answers {capacity:.0f} requests a second")
        for seed in range(ROUNDS):
            load = arrivals(capacity, SECONDS, np.random.default_rng(seed))
            alone = reach(pool, shared, [pair for pair in load if pair[1] != FLOOD], keys)
            beside = reach(pool, shared, load, keys)
            nobody = reach(pool, nameless, load, {})
            rows.append((p99(beside) / p99(alone), in_time(beside) / in_time(nobody)))
            kept = in_time(beside, flooding=False) / in_time(alone)
            say(
                f"seed {seed}: others' p99 {1000 * p99(alone):.1f} ms alone, {1000 * p99(beside):.1f} ms beside the flood "
                f"({rows[-1][0]:.3f}x), {1000 * p99(nobody):.1f} ms with nobody named; their answers in time over alone "
                f"{kept:.3f}; all answers in time {in_time(beside)} over {in_time(nobody)} ({rows[-1][1]:.3f}x)"
            )
    shed = metric(shared.url, SHED, keys["operators"]) + metric(nameless.url, SHED)
    p99s, throughputs = zip(*rows, strict=True)
    targets = Targets("08 tenants, live bins")
    say(f"the worst: p99 {max(p99s):.3f}x, throughput {min(throughputs):.3f}x")
    targets.at_most("others' p99 over alone (median of the rounds)", float(np.median(p99s)), 1.15, "x")
    targets.at_least("all answers in time over nobody named (median)", float(np.median(throughputs)), 0.97, "x")
    assert not shed, f"{shed:.0f} requests were shed at the door: HTTP was the limit, not the device"
    targets.check()
