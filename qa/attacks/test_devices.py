"""Device processes that hang, are killed or grow, with and without a spare, and requests that make a model fail."""

from __future__ import annotations

import asyncio
import json
import os
import time
from itertools import pairwise

import numpy as np
import psutil
import pytest

from pliant.models.artifact import Classifier
from pliant.models.classifier import module, weights
from pliant.protocol import Failed
from pliant.registry import codec
from pliant.serving.cascade.messages import SHAPE_CACHES, CascadeBuild, ModelBuild
from pliant.serving.driver import Driver, Rejected, loop_clock
from pliant.serving.workers.devices import DevicePlan
from pliant.serving.workers.worker import ProcessWorker
from qa.clients import asking
from qa.targets import MB, exchange, say
from tests.fixtures.clients import wait_for
from tests.fixtures.fakes import EchoModel
from tests.fixtures.live import processes
from tests.fixtures.tokens import loads

REQUEST = ("POST", "/predict", json.dumps({"inputs": "a dog", "deadline": 20.0}).encode())
VOCABULARY, LONGEST, BATCHES = 1000, 100, (1, 2, 3, 4, 5, 6, 8, 12, 16)
BEGINNING, LAUNCHES, EACH = 300, 900, 150


@pytest.fixture(scope="module", params=[0, 1], ids=["no spare", "a spare"])
def serving(request, serve):
    service, _ = serve("bins", spare=request.param)
    wait_for(lambda: standing_by(service) == request.param, 300)
    return service, bool(request.param)


def standing_by(service) -> int:
    """Return how often a spare has begun to stand by."""
    return service.log.read_text().count("a spare worker stands by")


def outage(service, harm) -> tuple[float, float]:
    """Return the longest time without an answer, and the share of answers, while `harm` befalls the device that works."""
    moments, seen, harmed = [time.monotonic()], 0, False
    with asking(service.url, REQUEST, clients=2) as others:
        until = time.monotonic() + 5
        while time.monotonic() < until:
            time.sleep(0.02)
            answered = sum(one is not None for one in others.seconds)
            if answered > seen:
                seen = answered
                moments.append(time.monotonic())
            if not harmed and answered > 20:
                harmed, until = True, time.monotonic() + 40
                before = {process: sum(process.cpu_times()[:2]) for process in processes(service)}
                time.sleep(0.5)
                harm(max(before, key=lambda process: sum(process.cpu_times()[:2]) - before[process]))
                moments.append(time.monotonic())
    return max(later - former for former, later in pairwise([*moments, time.monotonic()])), others.success


@pytest.mark.parametrize("signal", ["kill", "suspend"])
def test_14_a_device_process_that_is_killed_or_stands_still(serving, signal, targets):
    service, spared = serving
    ready = standing_by(service)
    seconds, success = outage(service, lambda process: getattr(process, signal)())
    noticed = 2.0 if signal == "suspend" else 0.0  # the floor of a launch's limit
    targets.at_most("longest time without an answer", seconds, noticed + (2.0 if spared else 30.0), " s")
    targets.at_least("share of requests answered, with a deadline of 20 s", success, 0.99)
    wait_for(lambda: len(processes(service)) == 1 + spared, 120)
    wait_for(lambda: standing_by(service) > ready or not spared, 300)
    lines = exchange(service.url, "GET", "/metrics")[2].decode().splitlines()
    say("\n".join(line for line in lines if line.startswith("pliant_worker_failures_total")))


class Exits(EchoModel):
    """Its process ends with the payload "exit"."""

    def run(self, setting, payloads):
        if "exit" in payloads:
            os._exit(3)
        return super().run(setting, payloads)


@pytest.mark.parametrize("poison, lost", [("raise", 0), ("exit", 2)])
def test_14_one_bad_request_of_forty_fails_alone(poison, lost, targets):
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
    targets.at_most("requests of 40 that failed", sum(isinstance(answer, Rejected) for answer in answers), 1)
    targets.at_most("device processes lost", processes_lost, lost)
    assert isinstance(answers[17], Rejected) and answers[17].reason == "failed"


def test_15_a_device_process_stops_growing(tmp_path, monkeypatch, targets):
    """Over texts and batches of all lengths, with its bounds."""
    for name in SHAPE_CACHES:
        monkeypatch.delenv(name, raising=False)  # so that it bounds them itself
    config = {"model_type": "bert", "vocab_size": VOCABULARY, "hidden_size": 384, "num_hidden_layers": 1}
    config |= {"num_attention_heads": 12, "intermediate_size": 1536, "id2label": {"0": "a", "1": "b"}}
    labels, values = ("a", "b"), weights(module(config))
    wide = Classifier("wide", "grow", labels, json.dumps(config), "{}", LONGEST, "random", values)
    models = (ModelBuild(0, tmp_path / "model", codec.save(wide, tmp_path / "model"), False),)

    async def megabytes() -> list[float]:
        """Return the process's memory after every `EACH` launches."""
        rng, sizes = np.random.default_rng(0), list[float]()
        worker = ProcessWorker(CascadeBuild(models, DevicePlan("cpu", 1, None, (1,))))
        await worker.start()
        try:
            process = psutil.Process(worker.pid)
            for launch in range(1, LAUNCHES + 1):
                lengths = rng.integers(4, LONGEST, int(rng.choice(BATCHES)))
                texts = [(rng.integers(0, VOCABULARY, n).astype(np.int32), np.zeros(n, np.int8)) for n in lengths]
                await worker.run(0, texts)
                if launch % EACH == 0:
                    sizes.append(process.memory_info().rss / MB)
        finally:
            await worker.stop()
        return sizes

    began, sizes = time.monotonic(), asyncio.run(megabytes())
    shown = ", ".join(f"{size:.0f}" for size in sizes)
    say(f"after each {EACH} launches: {shown} MB ({time.monotonic() - began:.0f} s)")
    grown = sizes[-1] - sizes[BEGINNING // EACH - 1]
    targets.at_most(f"growth after the first {BEGINNING} of {LAUNCHES} launches", grown, 40, " MB")
