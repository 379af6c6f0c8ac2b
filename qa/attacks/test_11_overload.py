"""More requests than HTTP can handle, each on a connection of its own or a kept one: useful answers, and false `on_time`.

The same rate gives answers that differ by a tenth from one minute to the next, so each round offers all rates in turn,
and the median of the rounds is judged.
"""

from __future__ import annotations

import base64
import io
import json
import platform

import numpy as np
from PIL import Image

from qa.attacks.idle_engine import SERVICE, chat
from qa.attacks.overload import Message, leave_a_core, measure, post
from qa.targets import Targets
from tests.fixtures.live import running
from tests.fixtures.packing import published as packing
from tests.fixtures.tokens.published import publish_all, settings_for

DEADLINE, SECONDS = 0.5, 8.0
RATES = (50, 100, 200, 300, 400, 500, 600, 700, 800)  # requests per second, of which one is the most that is borne
TIMES = (2, 4, 8)  # of the most useful answers per second
ROUNDS = 5


def photograph() -> Message:
    """Return a request with an image that is decoded on the event loop, in some milliseconds."""
    pixels, file = np.random.default_rng(0).integers(0, 256, (250, 250, 3), dtype=np.uint8), io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=75)
    image = base64.b64encode(file.getvalue()).decode()
    body = json.dumps({"image": image, "task": "digits", "deadline": DEADLINE}).encode()
    return post("/v1/predict", body, DEADLINE)


def test_useful_answers_stay_beyond_what_http_bears(tmp_path):
    publish_all(tmp_path, f"cpu-{platform.machine()}-1t")
    with running(settings_for(tmp_path), tmp_path) as service:
        result = measure(service.url, photograph(), SECONDS, ROUNDS, TIMES, RATES)
    targets = Targets("11 overload")
    for times in TIMES:
        name = f"useful answers at {times}x, {result.rate(times):.0f}/s, over the best, median of {ROUNDS} rounds"
        targets.at_least(name, result.share(times), 0.9)
    answered, late, false = map(result.total, ("answered", "late", "false"))
    targets.at_most("on_time said of the answers that were late", 100 * false / max(1, late), 0.1, "%")
    targets.at_most("on_time said of late answers, of all answers", 100 * false / answered, 0.1, "%")
    targets.check()


def test_chats_stay_in_time_beyond_what_http_bears(tmp_path):
    """The engine computes nothing: what is full is the event loop, which no scheduler knows of."""
    packing.publish_tiny(packing.MlflowPublisher(tmp_path))
    with running(packing.settings_for(tmp_path), tmp_path, SERVICE) as service:
        leave_a_core(service.process.pid)
        result = measure(service.url, chat(packing.NAME), SECONDS, ROUNDS, TIMES[:2])
    targets = Targets("11 chats over HTTP alone")
    for times in TIMES[:2]:
        targets.at_least(f"answers in time at {times}x over the best rate", result.share(times), 0.9)
    false = result.total("false") / max(result.total("answered"), 1)
    targets.at_most("on_time said of late answers, of all answers", 100 * false, 0.1, "%")
    targets.check()
