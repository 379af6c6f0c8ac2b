"""The load generator against a server that does on purpose what a real one does under load."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import pytest
from aiohttp import web

from pliant.benchmarks.load_generator import Example, Reply, capacity, replay
from pliant.flows.servers import HOST, free_port
from pliant.protocol import Request

Handler = Callable[[web.Request], Awaitable[web.Response]]
POOL = {"digit": [Example("AAAA", "3")], "loops": [Example("BBBB", "one")]}
ANSWER = {"label": "3", "gamma": -5, "batch_size": 4, "queue_seconds": 0.0, "run_seconds": 0.0}


def burst(count: int, task: str = "digit", apart: float = 0.0) -> list[Request]:
    return [Request(i, apart * i, apart * i + 5.0, task, 0.5) for i in range(count)]


def against(handler: Handler, drive: Callable[[str], Awaitable]):
    """Run `drive` with the address of a server that answers with `handler`, both on one loop."""

    async def both():
        app = web.Application()
        app.router.add_post("/v1/predict", handler)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, HOST, free_port())
        await site.start()
        try:
            return await drive(site.name)
        finally:
            await runner.cleanup()

    return asyncio.run(both())


def replayed(handler: Handler, requests: Sequence[Request], seed: int = 0) -> list[Reply]:
    return against(handler, lambda address: replay(address, requests, POOL, seed))


async def at_once(_request: web.Request) -> web.Response:
    return web.json_response(ANSWER)


async def overloaded(_request: web.Request) -> web.Response:
    return web.json_response({"error": {"message": "full"}}, status=503)


def test_requests_are_sent_whether_or_not_others_were_answered():
    """Nobody gets an answer before all have asked: a generator that waits for answers would wait for ever."""
    asked, all_asked = [], asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        asked.append(request)
        if len(asked) == 50:
            all_asked.set()
        await all_asked.wait()
        return web.json_response(ANSWER)

    assert [reply.status for reply in replayed(handler, burst(50))] == [200] * 50


def test_latency_counts_from_the_planned_time_and_the_delay_of_the_generator_is_told():
    """The handler blocks the loop that it shares with the generator, which so sends the second request too late."""

    async def handler(_request: web.Request) -> web.Response:
        time.sleep(0.6)
        return web.json_response(ANSWER)

    first, second = replayed(handler, burst(2, apart=0.2))
    assert second.sent_late > 0.2
    latency = second.observation.answered - second.observation.request.arrival
    assert latency > second.sent_late
    assert latency == pytest.approx(second.sent_late + second.overhead, abs=1e-6)
    assert first.sent_late < second.sent_late


def test_capacity_counts_answers_and_no_refusals():
    turns = []

    async def only_the_first_of_ten(request: web.Request) -> web.Response:
        turns.append(request)
        return await (at_once(request) if len(turns) % 10 == 1 else overloaded(request))

    seconds = 0.2
    rate = against(only_the_first_of_ten, lambda address: capacity(address, POOL, seconds, clients=4, lead=0.0))
    assert 0 < rate * seconds <= len(turns) / 10 + 1
