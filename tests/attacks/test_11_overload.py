"""More requests than HTTP bears, each on a connection of its own or a kept one: useful answers, and false `on_time`."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import platform
import time
from dataclasses import dataclass

import numpy as np
import pytest
from PIL import Image

from tests.fixtures.attacks import Targets, say
from tests.fixtures.live import running
from tests.fixtures.tokens.published import publish_all, settings_for

pytestmark = pytest.mark.attack
DEADLINE, SECONDS = 0.5, 8.0
RATES = (50, 100, 150, 200, 300, 400, 800, 1600, 2400)  # requests per second


def photograph() -> bytes:
    """Return a request with an image that is decoded on the event loop, in some milliseconds."""
    pixels, file = np.random.default_rng(0).integers(0, 256, (250, 250, 3), dtype=np.uint8), io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=75)
    image = base64.b64encode(file.getvalue()).decode()
    return json.dumps({"image": image, "task": "digits", "deadline": DEADLINE}).encode()


@dataclass
class Answers:
    """Of one rate: how many were useful, and how many said `on_time` although the client had them too late."""

    asked: int = 0
    useful: int = 0
    answered: int = 0
    false: int = 0


async def ask(reader_pool: list, address: tuple[str, int], request: bytes, answers: Answers) -> None:
    began = time.monotonic()
    reader, writer = reader_pool.pop() if reader_pool else await asyncio.open_connection(*address)
    try:
        writer.write(request)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        length = next(
            int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
        )
        body = await asyncio.wait_for(reader.readexactly(length), 10)
    except (OSError, asyncio.IncompleteReadError, TimeoutError):
        writer.close()
        return
    seconds = time.monotonic() - began
    reader_pool.append((reader, writer))
    if head.startswith(b"HTTP/1.1 200"):
        answers.answered += 1
        answers.useful += seconds <= DEADLINE
        answers.false += json.loads(body)["on_time"] and seconds > DEADLINE


async def offer(address: tuple[str, int], request: bytes, rate: float, answers: Answers) -> None:
    """Ask at times of a Poisson process."""
    draw, pool, tasks = np.random.default_rng(int(rate)), [], set()
    due = time.monotonic()
    end = due + SECONDS
    while due < end:
        due += draw.exponential(1 / rate)
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        tasks.add(asyncio.create_task(ask(pool, address, request, answers)))
        answers.asked += 1
    await asyncio.gather(*tasks)
    for _, writer in pool:
        writer.close()


def test_useful_answers_stay_beyond_what_http_bears(tmp_path):
    publish_all(tmp_path, f"cpu-{platform.machine()}-1t")
    with running(settings_for(tmp_path), tmp_path) as service:
        host, port = service.url.removeprefix("http://").split(":")
        body = photograph()
        lines = [
            "POST /v1/predict HTTP/1.1",
            "host: localhost",
            "content-type: application/json",
            f"content-length: {len(body)}",
        ]
        head = "\r\n".join([*lines, "", ""])
        rows: dict[int, Answers] = {}
        for rate in RATES:
            rows[rate] = Answers()
            asyncio.run(offer((host, int(port)), head.encode() + body, rate, rows[rate]))
            say(f"{rate}/s: {rows[rate]}")
            time.sleep(1)
        targets, best = Targets("11 overload"), max(row.useful for row in rows.values())
        for rate in RATES[RATES.index(max(rows, key=lambda rate: rows[rate].useful)) :]:
            targets.at_least(f"useful answers at {rate}/s over the best", rows[rate].useful / best, 0.9)
        answered = sum(row.answered for row in rows.values())
        late, false = answered - sum(row.useful for row in rows.values()), sum(row.false for row in rows.values())
        targets.at_most("on_time said of the answers that were late", 100 * false / max(1, late), 0.1, "%")
        targets.at_most("on_time said of late answers, of all answers", 100 * false / answered, 0.1, "%")
        targets.check()
