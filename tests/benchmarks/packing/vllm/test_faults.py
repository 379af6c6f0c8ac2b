"""Faults of a service are counted from its streams; the service and its engine's process are stand-ins."""

from __future__ import annotations

import asyncio
import json
import math
import resource
import subprocess
import sys
import time
from contextlib import contextmanager
from types import SimpleNamespace

import psutil
import pytest
from aiohttp import web

from benchmarks.packing.vllm import faults
from benchmarks.packing.vllm.faults import FAULTS, FaultsConfig, FaultsResult, Struck
from pliant.errors import PliantError


@pytest.fixture
def sleeper():
    with subprocess.Popen(
        [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"], stdout=-1
    ) as process:
        process.stdout.readline()
        yield psutil.Process(process.pid)
        process.kill()


def test_each_fault_does_what_it_is_called(sleeper):
    FAULTS["out of memory"](sleeper)
    assert sleeper.rlimit(resource.RLIMIT_AS)[0] == sleeper.memory_info().vms
    FAULTS["frozen"](sleeper)
    until = time.monotonic() + 10
    while sleeper.status() != psutil.STATUS_STOPPED:
        assert time.monotonic() < until, sleeper.status()
        time.sleep(0.01)
    FAULTS["killed"](sleeper)
    sleeper.wait(10)


class Service:
    """Answers each chat with its own text. `broken` ones get an error, end early, or come twice after a strike."""

    def __init__(self) -> None:
        self.struck, self.tags = 0, ["one"]

    async def chat(self, request: web.Request) -> web.StreamResponse:
        text = (await request.json())["messages"][0]["content"]
        response = web.StreamResponse()
        await response.prepare(request)
        words = [f"{text} ", "twice"] + (["twice"] if self.struck == 1 and text == "b" else [])
        for word in words:
            chunk = {"choices": [{"delta": {"content": word}}]}
            await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        if self.struck == 2 and text == "c":
            await response.write(b'data: {"error": {"message": "gone"}}\n\n')
        elif not (self.struck == 2 and text == "d"):
            await response.write(b"data: [DONE]\n\n")
        return response


@pytest.fixture
def service(monkeypatch):
    """The service under `measure`, with an engine that is another process after each strike but the last."""
    service = Service()

    @contextmanager
    def serving(_system, **options):
        assert options["engine"] == "vllm"
        yield "url"

    async def ask_all(_url, _name, texts, _tokens, after=0.0, strike=None):
        app = web.Application()
        app.router.add_post("/v1/chat/completions", service.chat)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        try:
            return await original(f"http://127.0.0.1:{port}", "m", texts, 4, after, strike)
        finally:
            await runner.cleanup()

    def strike(process):
        service.struck += 1
        if service.struck < 3:
            service.tags = [*process.tags, f"after {service.struck}"][-1:]

    original = faults._ask_all
    monkeypatch.setattr(faults, "serving", serving)
    monkeypatch.setattr(faults, "_ask_all", ask_all)
    monkeypatch.setattr(faults, "FAULTS", dict.fromkeys(("killed", "frozen", "out of memory"), strike))
    monkeypatch.setattr(faults, "_engines", lambda: [Tagged(tuple(service.tags))])
    monkeypatch.setattr(faults.prompts, "load", lambda _address: (None, ["a", "b", "c", "d"]))
    return service


class Tagged(SimpleNamespace):
    def __init__(self, tags) -> None:
        super().__init__(tags=tags)


def test_what_is_lost_or_comes_twice_is_counted_by_fault(service):
    result = faults.measure("m", config=FaultsConfig(chats=4, after=0.0))
    by_fault = {each.fault: (each.lost, each.differing, each.processes) for each in result.struck}
    assert by_fault["undisturbed"] == (0, 0, 1)
    assert by_fault["killed"] == (0, 1, 2), "one text came twice"
    assert by_fault["frozen"] == (2, 0, 2), "one ended with an error, one without an end"
    assert by_fault["out of memory"] == (0, 0, 1)
    lost = {target.name.rsplit(" ", 1)[-1]: target.measured for target in result.targets()}
    assert (lost["killed"], lost["frozen"]) == (1, 2)
    assert math.isnan(lost["memory"]), "the engine went on: the fault did not strike it"


def test_a_service_that_is_not_there_loses_all():
    answers, _ = asyncio.run(faults._ask_all("http://127.0.0.1:9", "m", ["a", "b"], 4))
    assert all(answer.how for answer in answers)


def test_without_an_engine_nothing_is_measured(service, monkeypatch):
    monkeypatch.setattr(faults, "_engines", list)
    with pytest.raises(PliantError, match="no process of an engine"):
        faults.measure("m", config=FaultsConfig(chats=4))


def test_the_table_has_a_row_for_each():
    struck = Struck("killed", 500, 0, 0, 40.0, 2)
    assert len(struck.row()) == len(faults.HEADINGS)
    assert FaultsResult((struck, struck)).targets()[0].met
