"""Device processes that hang or are killed, with and without a spare, and requests that make a model fail."""

from __future__ import annotations

import json
import time
import urllib.request
from itertools import pairwise

import pytest

from tests.fixtures.attacks import Targets, honest, say
from tests.fixtures.bins.published import MlflowPublisher, publish_tiny, settings_for
from tests.fixtures.clients import wait_for
from tests.fixtures.live import processes, running

pytestmark = pytest.mark.attack
REQUEST = ("POST", "/predict", json.dumps({"inputs": "a dog", "deadline": 20.0}).encode())


@pytest.fixture(scope="module", params=[0, 1], ids=["no spare", "a spare"])
def serving(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("devices")
    publish_tiny(MlflowPublisher(folder), "colours")
    with running(settings_for(folder, spare=request.param), folder) as service:
        wait_for(lambda: len(processes(service)) == 1 + request.param, 120)
        time.sleep(15 * request.param)  # until the spare has loaded its models
        yield service, bool(request.param)


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
                harm(processes(service)[0])
    return gap([*moments, time.monotonic()]), others.success


@pytest.mark.parametrize("signal", ["kill", "suspend"])
def test_a_device_process_that_is_killed_or_stands_still(serving, signal):
    service, spared = serving
    subject = f"14 {signal} {'with' if spared else 'without'} a spare"
    seconds, success = outage(service, lambda process: getattr(process, signal)())
    targets = Targets(subject)
    noticed = 2.0 if signal == "suspend" else 0.0  # the floor of a launch's limit
    targets.at_most("longest time without an answer", seconds, noticed + (2.0 if spared else 30.0), " s")
    targets.at_least("share of requests answered, with a deadline of 20 s", success, 0.99)
    targets.check()
    wait_for(lambda: len(processes(service)) == 1 + spared, 120)
    time.sleep(15 * spared)
    with urllib.request.urlopen(f"{service.url}/metrics", timeout=30) as response:
        lines = response.read().decode().splitlines()
    say("\n".join(line for line in lines if line.startswith("pliant_worker_failures_total")))
