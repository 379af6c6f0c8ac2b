"""Clients that close their connection while they wait: how much of their work is still done."""

from __future__ import annotations

import http.client
import json
import time

from qa.targets import Targets, exchange, metric
from tests.fixtures.clients import wait_for
from tests.fixtures.live import processes

COUNT = 800
BODY = json.dumps({"inputs": [["the large cats " * 40]] * 16, "truncate": True}).encode()


def test_nothing_is_run_for_clients_that_have_left(service):
    """800 clients ask and leave while the device is held still; what it runs afterwards is the launch in hand."""
    (device,) = processes(service)
    before = metric(service.url, "batch_size_count")
    device.suspend()
    address, connections = service.url.removeprefix("http://"), []
    try:
        for _ in range(COUNT):
            connections.append(http.client.HTTPConnection(address, timeout=30))
            connections[-1].request("POST", "/predict", BODY, {"content-type": "application/json"})
        wait_for(lambda: metric(service.url, "arrivals_total") > 0, 30)
        time.sleep(2)
        for connection in connections:
            connection.close()
        wait_for(lambda: metric(service.url, "cancelled_total") > 0, 30)
        time.sleep(1)
    finally:
        device.resume()
    began = time.monotonic()
    assert exchange(service.url, "POST", "/predict", b'{"inputs": "a dog"}')[0] == 200
    seconds = time.monotonic() - began
    time.sleep(1)
    targets = Targets("10 clients that left")
    launches = metric(service.url, "batch_size_count") - before
    targets.at_most("launches beyond that of the next client", launches - 1, 1)
    targets.at_most("seconds until the next client's answer", seconds, 2.0, " s")
    targets.check()
