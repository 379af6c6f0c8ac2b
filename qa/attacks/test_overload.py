"""More requests than HTTP can handle, each on a connection of its own or a kept one: useful answers, and false `on_time`.

And clients that close their connection while they wait: how much of their work is still done.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import time

import numpy as np
from PIL import Image

from qa.attacks.load import leave_a_core, measure, post
from qa.grounds import served
from qa.targets import Targets, exchange, metric
from tests.fixtures.clients import wait_for
from tests.fixtures.live import processes, running
from tests.fixtures.packing import published as packing

LEFT = 800  # clients
LONG = json.dumps({"inputs": [["the large cats " * 40]] * 16, "truncate": True}).encode()
SECONDS, ROUNDS = 8.0, 5
RATES = (50, 100, 200, 300, 400, 500, 600, 700, 800)  # requests per second, of which one is the most that is borne
TIMES = (2, 4, 8)  # of the most useful answers per second
PICTURE_DEADLINE, CHAT_DEADLINE = 0.5, 0.25  # seconds
IDLE = "qa.attacks.idle_service:PackingService"


def test_10_nothing_is_run_for_clients_that_have_left(service):
    """800 clients ask and leave while the device is held still; what it runs afterwards is the launch in hand."""
    (device,) = processes(service)
    before = metric(service.url, "batch_size_count")
    device.suspend()
    address, connections = service.url.removeprefix("http://"), []
    try:
        for _ in range(LEFT):
            connections.append(http.client.HTTPConnection(address, timeout=30))
            connections[-1].request("POST", "/predict", LONG, {"content-type": "application/json"})
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


def test_11_useful_answers_stay_beyond_what_http_bears(tmp_path):
    """Each request has an image that is decoded on the event loop, in some milliseconds."""
    pixels, file = np.random.default_rng(0).integers(0, 256, (250, 250, 3), dtype=np.uint8), io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=75)
    image = base64.b64encode(file.getvalue()).decode()
    request = post("/v1/predict", json.dumps({"image": image, "task": "digits", "deadline": PICTURE_DEADLINE}).encode())
    with served("tokens", tmp_path) as service:
        result = measure(service.url, request, PICTURE_DEADLINE, SECONDS, ROUNDS, TIMES, RATES)
    targets = Targets("11 overload")
    for times in TIMES:
        name = f"useful answers at {times}x, {result.rate(times):.0f}/s, over the best, median of {ROUNDS} rounds"
        targets.at_least(name, result.share(times), 0.9)
    answered, useful, false = map(result.total, ("answered", "useful", "false"))
    targets.at_most("on_time said of the answers that were late", 100 * false / max(1, answered - useful), 0.1, "%")
    targets.at_most("on_time said of late answers, of all answers", 100 * false / answered, 0.1, "%")
    targets.check()


def test_11_chats_stay_in_time_beyond_what_http_bears(tmp_path):
    """The engine computes nothing: what is full is the event loop, which no scheduler knows of."""
    messages = [{"role": "user", "content": "How do I sort a list of words by their length, the longest first?"}]
    chat = {"model": packing.NAME, "messages": messages, "max_tokens": 8, "deadline": CHAT_DEADLINE}
    request = post("/v1/chat/completions", json.dumps(chat).encode())
    packing.publish_tiny(packing.MlflowPublisher(tmp_path))
    with running(packing.settings_for(tmp_path), tmp_path, IDLE) as service:
        leave_a_core(service.process.pid)
        result = measure(service.url, request, CHAT_DEADLINE, SECONDS, ROUNDS, TIMES[:2])
    targets = Targets("11 chats over HTTP alone")
    for times in TIMES[:2]:
        targets.at_least(f"answers in time at {times}x over the best rate", result.share(times), 0.9)
    false = result.total("false") / max(result.total("answered"), 1)
    targets.at_most("on_time said of late answers, of all answers", 100 * false, 0.1, "%")
    targets.check()
