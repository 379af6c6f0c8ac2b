"""What is measured of the cost of watching, with a small HTTP server in place of a service."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from benchmarks.watch.cost import (
    CostConfig,
    Timed,
    Turn,
    Watched,
    slope,
    throughput,
    time_counting,
)
from benchmarks.watch.paired import PairsConfig
from pliant.errors import PliantError
from serving.watch.seen import Seen
from serving.watch.streams import CONFIDENCES, numbers


def counting(seen: Seen, burn_in: int):
    make = numbers(CONFIDENCES, burn_in)
    return lambda number: seen.number("confidence of mails", number % 7 / 7, make)


def loaded(answer, status=None, seconds: float = 1.0) -> Turn:
    """Return the throughput of a server whose handlers of requests and of its status are these."""
    total = (lambda content: content["made"]) if status else None
    watched = Watched("tokens", "/say", [b"1", b"2", b"3"], "tokens", counting, total)

    async def main() -> Turn:
        application = web.Application()
        application.router.add_post("/say", answer)
        if status:
            application.router.add_get("/v1/status", status)
        async with TestServer(application) as server:
            config = CostConfig(PairsConfig(1.0), lead=0.05, clients=4)
            return await throughput(f"http://{server.host}:{server.port}", watched, config, seconds)

    return asyncio.run(main())


async def soon(_request: web.Request) -> web.Response:
    await asyncio.sleep(0.005)
    return web.Response()


async def never(_request: web.Request) -> web.Response:
    await asyncio.sleep(30)
    return web.Response()


def test_answers_are_counted_over_the_time_between_them():
    turn = loaded(soon)
    assert 0.5 * turn.answers < turn.rate < 2 * turn.answers


def test_what_a_service_says_it_has_done_is_counted_in_place_of_answers():
    async def status(_request: web.Request) -> web.Response:
        return web.json_response({"made": 1000 * time.perf_counter()})

    turn = loaded(never, status)
    assert turn.rate == pytest.approx(1000, rel=0.2) and turn.answers == 0


def test_a_service_that_does_nothing_measures_nothing():
    async def status(_request: web.Request) -> web.Response:
        return web.json_response({"made": 7})

    with pytest.raises(PliantError, match="only 0 answers"):
        loaded(never, status)
    with pytest.raises(PliantError, match="only 0 answers"):
        loaded(never, seconds=0.1)


def test_a_request_that_fails_ends_the_measurement():
    async def answer(_request: web.Request) -> web.Response:
        await asyncio.sleep(0.005)
        return web.Response(status=503)

    with pytest.raises(PliantError, match="failed at full load: status 503"):
        loaded(answer)


def test_batches_at_the_ends_of_a_turn_do_not_change_the_slope():
    times = np.repeat(np.arange(0, 2, 0.1), 16)  # batches of 16 every tenth of a second
    for first in (0, 5, 15):
        totals = [(float(at), float(number)) for number, at in enumerate(times[first:])]
        assert slope(totals) == pytest.approx(160, rel=0.02)


def test_counting_is_timed_by_itself():
    timed = time_counting(counting)
    assert timed.answer >= 0 and timed.look > 0


def test_the_share_of_a_core_is_that_of_the_answers_and_of_the_looks():
    assert Timed(20e-6, 5e-3).share(200) == pytest.approx(0.004 + 0.001)
