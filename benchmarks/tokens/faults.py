"""What must not go wrong: bad input over HTTP, SIGTERM with requests in flight, an altered artifact.

Each function counts what held; nothing here is simulated.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import signal
import struct
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
from PIL import Image

from benchmarks.load_generator import Example
from benchmarks.tokens.endpoint import serving
from benchmarks.tokens.replay import FIXED
from flows.tokens.stages import Bundle
from pliant.errors import DigestError
from pliant.tokens.artifact import Task
from registry import codec

Pool = Mapping[str, Sequence[Example]]

FAULTS: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "not an image": ({"image": base64.b64encode(b"GIF89a, or so it says").decode()}, "image"),
    "100 megapixels": ({"image": "@huge"}, "image"),
    "not base64": ({"image": "§§§"}, "image"),
    "unknown task": ({"task": "chess"}, "task"),
    "a deadline in the past": ({"deadline": -1.0}, "deadline"),
    "a deadline that is no number": ({"deadline": float("nan")}, "deadline"),
    "negative utility": ({"utility": -0.5}, "utility"),
    "a body over the limit": ({"image": "@long"}, "body"),
    "an unknown field": ({"colour": "red"}, "colour"),
}
"""What is wrong with a request, and the field that the answer must name."""


def bad_inputs(url: str, pool: Pool) -> int:
    """How many faults got a 4xx whose sentence names field and limit, each followed by a good request that was served."""
    return asyncio.run(_bad_inputs(url, pool))


async def _bad_inputs(url: str, pool: Pool) -> int:
    held = 0
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session:
        for fault, field in FAULTS.values():
            status, answer = await _post(session, url, {**_good(pool), **_expanded(fault)})
            message = str(answer.get("error", {}).get("message", ""))
            told = 400 <= status < 500 and field in message and len(message) > len(field) + 10
            after, _ = await _post(session, url, _good(pool))
            held += told and after == 200
    return held


async def _post(session: aiohttp.ClientSession, url: str, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    async with session.post(
        f"{url}/v1/predict", data=json.dumps(body), headers={"content-type": "application/json"}
    ) as response:
        return response.status, json.loads(await response.read())


def _good(pool: Pool) -> dict[str, Any]:
    task = next(iter(pool))
    return {"image": pool[task][0].encoded, "task": task, "deadline": 20.0, "utility": 1.0}


def _expanded(fault: Mapping[str, Any]) -> dict[str, Any]:
    large = {"@huge": lambda: base64.b64encode(_huge_png()).decode(), "@long": lambda: "A" * 12_000_000}
    return {
        name: large[value]() if isinstance(value, str) and value in large else value for name, value in fault.items()
    }


def _huge_png(side: int = 10_000) -> bytes:
    """A valid PNG header that announces side x side pixels, in a few hundred bytes."""
    buffer = io.BytesIO()
    Image.new("L", (8, 8)).save(buffer, format="PNG")
    header = struct.pack(">II", side, side) + buffer.getvalue()[24:29]
    checksum = struct.pack(">I", zlib.crc32(b"IHDR" + header))
    return buffer.getvalue()[:16] + header + checksum + buffer.getvalue()[33:]


def terminated(pool: Pool, count: int) -> tuple[int, int]:
    """Send `count` requests at once, SIGTERM while they are in flight: how many were answered, and the exit status."""
    with serving(FIXED) as service:
        answered = asyncio.run(_terminated(service.url, pool, count, service.process.send_signal))
        status = service.process.wait(60)
    return answered, status


async def _terminated(url: str, pool: Pool, count: int, send: Any) -> int:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        waiting = [asyncio.create_task(_post(session, url, _good(pool))) for _ in range(count)]
        # All connections must be made: one that comes after the signal is refused, which is not what is measured.
        await asyncio.sleep(0.05)
        send(signal.SIGTERM)
        done = await asyncio.gather(*waiting, return_exceptions=True)
    return sum(not isinstance(one, BaseException) and one[0] == 200 for one in done)


def altered_artifact(bundle: Bundle) -> int:
    """Flip one byte of a stored task, then cut one short: how many were refused with file name and both digests."""
    held = 0
    for spoil in (_flip_last_bit, _cut_in_half):
        with tempfile.TemporaryDirectory() as folder:
            codec.save(bundle.tasks[0], Path(folder, "task"))
            file = Path(folder, "task", codec.TENSORS)
            file.write_bytes(spoil(file.read_bytes()))
            try:
                codec.load(Task, Path(folder, "task"))
            except DigestError as error:
                held += codec.TENSORS in str(error) and error.expected in str(error) and error.found in str(error)
    return held


def _flip_last_bit(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def _cut_in_half(data: bytes) -> bytes:
    return data[: len(data) // 2]
