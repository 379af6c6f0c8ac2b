"""The live comparison on small servers that answer as embedding services do, each after a time of its own."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from pliant.benchmarks.baselines.text_services import BENTOML, DYNAMIC, PADDED, SENTENCE
from pliant.benchmarks.bins.live import (
    LOADED,
    LOW,
    LOW_LIMIT,
    OURS,
    Live,
    LiveConfig,
    Row,
    compare,
)
from pliant.benchmarks.bins.requests import Texts
from pliant.benchmarks.contenders import Contender
from pliant.flows.servers import HOST, free_port
from pliant.progress import silent

SMALL = LiveConfig(seconds=0.3, rounds=2, low=4, loaded=0.2, sweep=0.2, probe=0.2, lead=0.0, clients=2, warm=3)
TEXTS = Texts(((), (), (), ("a", "b"), ("a b",)), ("a", "a b"))


@contextmanager
def server(seconds: float, seen: list, status: int = 200) -> Iterator[str]:
    async def handler(request: web.Request) -> web.Response:
        seen.append(json.loads(await request.read())["inputs"][0])
        await asyncio.sleep(seconds)
        return web.json_response([[0.6, 0.8]], status=status)

    async def started() -> tuple[web.AppRunner, str]:
        app = web.Application()
        app.router.add_post("/embed", handler)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, HOST, free_port())
        await site.start()
        return runner, site.name

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    runner, address = asyncio.run_coroutine_threadsafe(started(), loop).result()
    try:
        yield address
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def quiet_stage(_name: str):
    yield silent


def compared(*contenders: Contender, config: LiveConfig = SMALL) -> Live:
    return compare(contenders, TEXTS, 3, config, quiet_stage, {})


def row(load: str, name: str, *latencies: float) -> Row:
    return Row(load, name, {}, latencies, len(latencies), 0, 0.001, 0.2)


def test_the_bars_are_ratios_of_means_over_all_turns():
    rows = [row(LOADED, OURS, 1.0), row(LOADED, OURS, 2.0), row(LOW, OURS, 1.0)]
    rows += [row(LOADED, name, 4.0) for name in (PADDED, BENTOML, SENTENCE)]
    rows += [row(LOW, DYNAMIC, 0.5)]
    targets = Live(10.0, tuple(rows), {}).targets()
    assert [bar.measured for bar in targets] == [0.375, 0.375, 0.375, 2.0]
    assert [bar.met for bar in targets] == [True, True, True, False]
    assert targets[-1].limit == LOW_LIMIT
