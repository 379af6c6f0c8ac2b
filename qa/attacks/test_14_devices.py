"""Device processes that hang or are killed, with and without a spare, and requests that make a model fail."""

from __future__ import annotations

import asyncio
import json
import os
import time
import urllib.request
from itertools import pairwise

import pytest

from pliant.protocol import Failed
from pliant.serving.driver import Driver, Rejected, loop_clock
from pliant.serving.workers.worker import ProcessWorker
from qa.targets import Targets, honest, say
from tests.fixtures.bins.published import MlflowPublisher, publish_tiny, settings_for
from tests.fixtures.clients import wait_for
from tests.fixtures.fakes import EchoModel
from tests.fixtures.live import processes, running
from tests.fixtures.tokens import loads

REQUEST = ("POST", "/predict", json.dumps({"inputs": "a dog", "deadline": 20.0}).encode())


@pytest.fixture(scope="module", params=[0, 1], ids=["no spare", "a spare"])
def serving(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("devices")
    publish_tiny(MlflowPublisher(folder), "colours")
    with running(settings_for(folder, spare=request.param), folder) as service:
        wait_for(lambda: standing_by(service) == request.param, 300)
        yield service, bool(request.param)


def standing_by(service) -> int:
    """Return how often a spare has begun to stand by."""
    return service.log.read_text().count("a spare worker stands by")


def device(service):
    """Return the device process that serves now: the one that works."""
    before = {process: sum(process.cpu_times()[:2]) for process in processes(service)}
    time.sleep(0.5)
    return max(before, key=lambda process: sum(process.cpu_times()[:2]) - before[process])


def gap(seconds: list[float]) -> float:
    """Return the longest time between two of these moments."""
    return max(later - former for former, later in pairwise(seconds))


def outage(service, harm) -> tuple[float, float]:
    """Return the longest time without an answer, and the share of answers, while `harm` befalls the device."""
    moments = [time.monotonic()]
    with honest(service, REQUEST, clients=2) as others:
        seen = 0
        until = time.monotonic() + 5
        harmed = False
        while time.monotonic() < until:
            time.sleep(0.02)
            answered = sum(one is not None for one in others.seconds)
            if answered > seen:
                seen = answered
                moments.append(time.monotonic())
            if not harmed and answered > 20:
                harmed, until = True, time.monotonic() + 40
                harm(device(service))
                moments.append(time.monotonic())
    return gap([*moments, time.monotonic()]), others.success


@pytest.mark.parametrize("signal", ["kill", "suspend"])
def test_a_device_process_that_is_killed_or_stands_still(serving, signal):
    service, spared = serving
    subject = f"14 {signal} {'with' if spared else 'without'} a spare"
    ready = standing_by(service)
    seconds, success = outage(service, lambda process: getattr(process, signal)())
    targets = Targets(subject)
    noticed = 2.0 if signal == "suspend" else 0.0  # the floor of a launch's limit
    targets.at_most("longest time without an answer", seconds, noticed + (2.0 if spared else 30.0), " s")
    targets.at_least("share of requests answered, with a deadline of 20 s", success, 0.99)
    targets.check()
    wait_for(lambda: len(processes(service)) == 1 + spared, 120)
    wait_for(lambda: standing_by(service) > ready or not spared, 300)
    with urllib.request.urlopen(f"{service.url}/metrics", timeout=30) as response:
        lines = response.read().decode().splitlines()
    say("\n".join(line for line in lines if line.startswith("pliant_worker_failures_total")))


class Exits(EchoModel):
    """Its process ends with the payload "exit"."""

    def run(self, setting, payloads):
        if "exit" in payloads:
            os._exit(3)
        return super().run(setting, payloads)


@pytest.mark.parametrize("poison, lost", [("raise", 0), ("exit", 2)])
def test_one_bad_request_of_forty_fails_alone(poison, lost):
    """In real device processes, under the scheduler of tokens."""

    async def main():
        journal = []
        driver = Driver(loads.scheduler(), [ProcessWorker(Exits)], journal.append, loop_clock(), spares=[])
        await driver.start()
        payloads = [poison if number == 17 else number for number in range(40)]
        asks = [driver.submit("easy", 300.0, 1.0, payload) for payload in payloads]
        answers = await asyncio.gather(*asks)
        await driver.stop()
        return answers, [e.event.lost for e in journal if isinstance(e.event, Failed)].count(True)

    answers, processes_lost = asyncio.run(main())
    targets = Targets(f"14 a request that makes the model {poison}")
    targets.at_most("requests of 40 that failed", sum(isinstance(answer, Rejected) for answer in answers), 1)
    targets.at_most("device processes lost", processes_lost, lost)
    targets.check()
    assert isinstance(answers[17], Rejected) and answers[17].reason == "failed"
