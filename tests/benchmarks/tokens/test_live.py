"""The live comparison on small servers that do on purpose what services do; and its figures, from rows that are made up."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from aiohttp import web

from pliant.benchmarks.contenders import Contender
from pliant.benchmarks.load_generator import Example
from pliant.benchmarks.tokens.live import HEADINGS, LIVE, SWEEP, Live, LiveConfig, Row, compare, figure, rows, utility
from pliant.errors import InputError
from pliant.flows.servers import HOST, free_port
from pliant.progress import silent
from pliant.report import summarise
from tests.fixtures.load_samples import LOAD, answered, lost

POOL = {"digit": [Example("AAAA", "3"), Example("CCCC", "3")], "loops": [Example("BBBB", "3")]}
SMALL = LiveConfig(seconds=0.2, probe=0.2, lead=0.0, clients=1, warm=3)
RIGHT, WRONG = ({"label": label, "gamma": 0, "batch_size": 1} for label in ("3", "4"))


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


def contender(name: str, answer: dict = RIGHT, service: bool = False, seen: list | None = None, **setting) -> Contender:
    return Contender(name, setting, lambda _capacity: server(answer, [] if seen is None else seen), service)


def compared(contenders, config: LiveConfig = SMALL, missing=None) -> Live:
    return compare(contenders, POOL, config, quiet_stage, missing or {})


def row(name: str, fate=answered, service: bool = False, share: float = 2.0, seed: int = 0, **setting) -> Row:
    report = summarise(fate(request).observation for request in LOAD.requests)
    return Row(LIVE, name, service, setting, share, seed, report, 0.001, 0, 0.3)


def half(request):
    return answered(request, correct=request.id % 2 == 0)


def live(*some: Row, missing=None) -> Live:
    return Live(100.0, {r.name: 90.0 for r in some if r.service}, some, missing or {})


def test_every_contender_meets_the_same_requests():
    seen = {name: [] for name in ("pets", "default", "ray")}
    live = compared([contender(name, seen=bodies, service=name == "ray") for name, bodies in seen.items()])
    count = live.rows[0].report.requests
    asked = {name: Counter(bodies) for name, bodies in seen.items()}
    assert {r.report.requests for r in live.rows} == {count}
    assert asked["default"].total() == count + SMALL.warm
    for name in ("pets", "ray"):  # which were saturated too
        assert asked["default"] <= asked[name]


def test_the_load_is_a_share_of_what_pets_was_measured_to_serve():
    live = compared([contender("pets")], replace(SMALL, seeds=2, shares=(0.5, 2.0)))
    assert [(r.share, r.seed) for r in live.rows] == [(0.5, 0), (0.5, 1), (2.0, 0), (2.0, 1)]
    for r in live.rows:
        expected = r.share * live.capacity * 0.2
        assert abs(r.report.requests - expected) < 6 * math.sqrt(expected) + 1


def test_the_better_of_two_settings_is_compared():
    both = [contender("pets", WRONG, margin=0.15), contender("pets", RIGHT, margin=0.05)]
    assert compared(both).best()["pets"][0].setting == {"margin": 0.05}


def test_a_sweep_tries_every_setting_and_only_the_best_takes_part_in_the_comparison():
    some = [
        contender("pets"),
        contender("ray", WRONG, True, batch=16),
        contender("ray", RIGHT, True, batch=64),
        contender("ray", WRONG, True, batch=32),
    ]
    live = compared(some, replace(SMALL, sweep=0.1))
    parts = [(r.part, r.name, r.setting.get("batch")) for r in live.rows]
    assert parts == [(SWEEP, "ray", batch) for batch in (16, 64, 32)] + [(LIVE, "pets", None), (LIVE, "ray", 64)]
    assert live.capacities["ray"] > 0


def test_without_pets_there_is_no_load():
    with pytest.raises(InputError, match="pets"):
        compared([contender("default")])


def test_the_ratio_is_the_default_over_the_best_service_and_no_policy_counts_as_one():
    some = [row("default"), row("pets"), row("ray", half, True), row("bentoml", lambda r: lost(r, 503), True)]
    assert live(*some).ratio() == pytest.approx(1 / utility([some[2]]))
    assert live(*some).target().met


def test_with_a_service_missing_nothing_is_claimed():
    some = live(row("default"), row("bentoml", half, True), missing={"ray": "Ray Serve is not installed"})
    assert math.isnan(some.ratio())
    assert not some.target().met


def test_the_plain_form_is_json_and_the_table_ranks_by_utility():
    some = live(row("default"), row("pets", half, margin=0.05), row("ray", half, True), row("default", share=1.0))
    plain = json.loads(json.dumps(some.plain()))
    assert len(plain["rows"]) == 4
    assert plain["best"]["2.0"]["pets"] == {"margin": 0.05}
    table = rows(some)
    assert [line[:2] for line in table[:2]] == [("1x", "default"), ("2x", "default")]
    assert {len(line) for line in table} == {len(HEADINGS)}


@pytest.mark.parametrize("fate", [answered, lambda r: lost(r, 0)], ids=["answered", "lost"])
def test_the_picture_is_drawn_whether_or_not_anything_was_answered(tmp_path, fate):
    path = tmp_path / "live.png"
    figure(live(row("default", fate), row("ray", fate, True))).savefig(path, dpi=40)
    assert path.stat().st_size > 5000
