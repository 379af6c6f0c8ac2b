"""The live comparison on small servers that do on purpose what services do; and its figures, from rows that are made up."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from aiohttp import web

from pliant.benchmarks.load_generator import Example
from pliant.benchmarks.tokens.live import LIVE, Live, LiveConfig, Row, compare, utility
from pliant.flows.servers import HOST, free_port
from pliant.progress import silent
from pliant.report import summarise
from tests.fixtures.load_samples import LOAD, answered, lost

POOL = {"digit": [Example("AAAA", "3"), Example("CCCC", "3")], "loops": [Example("BBBB", "3")]}
SMALL = LiveConfig(seconds=0.2, probe=0.2, lead=0.0, clients=1, warm=3)


@contextmanager
def server(answer: dict, seen: list[bytes]) -> Iterator[str]:
    """Answers everything alike, on a loop of its own, and takes its time, so that few requests are more than it bears."""

    async def handler(request: web.Request) -> web.Response:
        seen.append(await request.read())
        await asyncio.sleep(0.005)
        return web.json_response(answer)

    async def started() -> tuple[web.AppRunner, str]:
        app = web.Application()
        app.router.add_post("/v1/predict", handler)
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


def compared(contenders, config: LiveConfig = SMALL, missing=None) -> Live:
    return compare(contenders, POOL, config, quiet_stage, missing or {})


def row(name: str, fate=answered, service: bool = False, share: float = 2.0, seed: int = 0, **setting) -> Row:
    report = summarise(fate(request).observation for request in LOAD.requests)
    return Row(LIVE, name, service, setting, share, seed, report, 0.001, 0, 0.3)


def half(request):
    return answered(request, correct=request.id % 2 == 0)


def live(*some: Row, missing=None) -> Live:
    return Live(100.0, {r.name: 90.0 for r in some if r.service}, some, missing or {})


def test_the_ratio_is_the_default_over_the_best_service_and_no_policy_counts_as_one():
    some = [row("default"), row("pets"), row("ray", half, True), row("bentoml", lambda r: lost(r, 503), True)]
    assert live(*some).ratio() == pytest.approx(1 / utility([some[2]]))
    assert live(*some).target().met


def test_with_a_service_missing_nothing_is_claimed():
    some = live(row("default"), row("bentoml", half, True), missing={"ray": "Ray Serve is not installed"})
    assert math.isnan(some.ratio())
    assert not some.target().met
