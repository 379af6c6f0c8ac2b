"""More requests than HTTP can handle, each on a connection of its own or a kept one: useful answers, and false `on_time`.

The same rate gives answers that differ by a tenth from one minute to the next, so each round offers all rates in turn,
and the median of the rounds is judged.
"""

from __future__ import annotations

import base64
import io
import json
import platform
import time

import numpy as np
from PIL import Image

from qa.attacks.idle_engine import SERVICE, chat
from qa.attacks.overload import HEADINGS, Message, leave_a_core, measure, offered, post
from qa.targets import Targets, say
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
        host, port = service.url.removeprefix("http://").split(":")
        request, rows = photograph(), {}
        for rate in RATES:
            rows[rate] = offered((host, int(port)), request, rate, SECONDS)
            say(f"{rate}/s: {rows[rate]}")
            time.sleep(1)
        targets, best = Targets("11 overload"), max(row.useful for row in rows.values())
        at_best = max(rows, key=lambda rate: rows[rate].useful)
        rates = {1: float(at_best)} | {times: times * best / SECONDS for times in TIMES}
        useful: dict[int, list[int]] = {times: [] for times in rates}
        for number in range(ROUNDS):
            for times in sorted(rates, reverse=number % 2 == 1):  # so that no rate always follows the same one
                row = offered((host, int(port)), request, rates[times], SECONDS)
                say(f"round {number + 1}, {times}x, {rates[times]:.0f}/s: {row}")
                rows[number, times] = row
                useful[times].append(row.useful)
                time.sleep(1)
        for times in TIMES:
            shares = [here / there for here, there in zip(useful[times], useful[1], strict=True)]
            say(f"{times}x over the best rate in each round: {', '.join(f'{share:.2f}' for share in shares)}")
            say(f"{times}x over the most of any rate in the first pass: {np.median(useful[times]) / best:.2f}")
            name = f"useful answers at {times}x, {rates[times]:.0f}/s, over the best, median of {ROUNDS} rounds"
            targets.at_least(name, float(np.median(shares)), 0.9)
        answered = sum(row.answered for row in rows.values())
        late, false = answered - sum(row.useful for row in rows.values()), sum(row.false for row in rows.values())
        targets.at_most("on_time said of the answers that were late", 100 * false / max(1, late), 0.1, "%")
        targets.at_most("on_time said of late answers, of all answers", 100 * false / answered, 0.1, "%")
        targets.check()


def test_chats_stay_in_time_beyond_what_http_bears(tmp_path):
    """The engine computes nothing: what is full is the event loop, which no scheduler knows of."""
    packing.publish_tiny(packing.MlflowPublisher(tmp_path))
    with running(packing.settings_for(tmp_path), tmp_path, SERVICE) as service:
        leave_a_core(service.process.pid)
        result = measure(service.url, chat(packing.NAME), SECONDS, ROUNDS)
    say("\n".join(" | ".join(row) for row in (HEADINGS, *result.table())))
    targets = Targets("11 chats over HTTP alone")
    for times in TIMES[:2]:
        targets.at_least(f"answers in time at {times}x over the best rate", result.share(times), 0.9)
    targets.at_most("on_time said of late answers, of all answers", 100 * result.false(), 0.1, "%")
    targets.check()
