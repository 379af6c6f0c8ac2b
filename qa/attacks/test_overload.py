"""More requests than HTTP can handle, each on a connection of its own or a kept one: useful answers, and false `on_time`.

And clients that close their connection while they wait: how much of their work is still done.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import time
from contextlib import ExitStack, closing

import numpy as np
from PIL import Image

from qa.attacks.overload import leave_a_core, overloaded
from qa.targets import exchange, metric
from qa.worlds import served
from tests.fixtures.clients import wait_for
from tests.fixtures.live import processes
from tests.fixtures.packing import published as packing

LEFT = 800  # clients
LONG = json.dumps({"inputs": [["the large cats " * 40]] * 16, "truncate": True}).encode()
RATES = (50, 100, 200, 300, 400, 500, 600, 700, 800)  # requests per second, of which one is the most that is borne
TIMES = (2, 4, 8)  # of the most useful answers per second
PICTURE_DEADLINE, CHAT_DEADLINE = 0.5, 0.25  # seconds
IDLE = "qa.attacks.idle_service:PackingService"


def test_10_nothing_is_run_for_clients_that_have_left(service, targets):
    """800 clients ask and leave while the device is held still; what it runs afterwards is the launch in hand."""
    (device,) = processes(service)
    before = metric(service.url, "batch_size_count")
    device.suspend()
    try:
        with ExitStack() as connections:
            for _ in range(LEFT):
                connection = connections.enter_context(closing(http.client.HTTPConnection(service.url[7:], timeout=30)))
                connection.request("POST", "/predict", LONG, {"content-type": "application/json"})
            wait_for(lambda: metric(service.url, "arrivals_total") > 0, 30)
            time.sleep(2)
        wait_for(lambda: metric(service.url, "cancelled_total") > 0, 30)
        time.sleep(1)
    finally:
        device.resume()
    began = time.monotonic()
    assert exchange(service.url, "POST", "/predict", b'{"inputs": "a dog"}')[0] == 200
    seconds = time.monotonic() - began
    time.sleep(1)
    launches = metric(service.url, "batch_size_count") - before
    targets.at_most("launches beyond that of the next client", launches - 1, 1)
    targets.at_most("seconds until the next client's answer", seconds, 2.0, " s")


def test_11_useful_answers_stay_beyond_what_http_bears(tmp_path, targets):
    """Each request has an image that is decoded on the event loop, in some milliseconds."""
    pixels, file = np.random.default_rng(0).integers(0, 256, (250, 250, 3), dtype=np.uint8), io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=75)
    image = base64.b64encode(file.getvalue()).decode()
    body = json.dumps({"image": image, "task": "digits", "deadline": PICTURE_DEADLINE}).encode()
    with served("tokens", tmp_path) as service:
        result = overloaded(service.url, "/v1/predict", body, PICTURE_DEADLINE, TIMES, RATES)
    result.judge(targets, TIMES)
    late = max(1, result.total("answered") - result.total("useful"))
    targets.at_most("on_time said of the answers that were late", 100 * result.total("false") / late, 0.1, "%")


def test_11_chats_stay_in_time_beyond_what_http_bears(tmp_path, targets):
    """The engine computes nothing: what is full is the event loop, which no scheduler knows of."""
    messages = [{"role": "user", "content": "How do I sort a list of words by their length, the longest first?"}]
    chat = {"model": packing.NAME, "messages": messages, "max_tokens": 8, "deadline": CHAT_DEADLINE}
    with served("packing", tmp_path, IDLE) as service:
        leave_a_core(service.process.pid)
        body = json.dumps(chat).encode()
        result = overloaded(service.url, "/v1/chat/completions", body, CHAT_DEADLINE, TIMES[:2])
    result.judge(targets, TIMES[:2])
