"""Many mixed requests to a real endpoint of packing: whole answers, streams, clients that go, and questions that are wrong.

Each has an end that it should come to; and when all have, the engine holds no page and its books balance. Knows HTTP by
its bytes, since a client that misbehaves is not to be had from a library.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from pliant.progress import Progress, silent

SETTLE_SECONDS = 60.0  # in which everything that was given up is to be gone
REQUEST_SECONDS = 120.0
AT_ONCE = 48  # connections
PROMPTS = ("Return the", "Summarise: Raised when a file is lost.", "a", "What kind of thing is it? The array, sorted.")
GONE = -1  # the status of who did not wait for one


@dataclass(frozen=True, slots=True)
class Kind:
    """How a request of the soak is made, and the statuses that are well."""

    name: str
    share: float
    fields: Mapping[str, Any]
    well: tuple[int, ...] = (200,)
    reads: int | None = None  # bytes before the client goes; None: all
    path: str = "/v1/completions"
    raw: bytes | None = None


KINDS = (
    Kind("short", 0.3, {}),
    Kind("greedy", 0.08, {"temperature": 0}),
    Kind("streamed", 0.15, {"stream": True, "stream_options": {"include_usage": True}}),
    Kind("chat", 0.08, {}, path="/v1/chat/completions"),
    Kind("gone in the stream", 0.1, {"stream": True, "max_tokens": 64}, (GONE,), reads=200),
    Kind("gone at once", 0.08, {"max_tokens": 64}, (GONE,), reads=0),
    Kind("several", 0.05, {"n": 3}),
    Kind("stopped", 0.04, {"stop": ["e", " a"]}),
    Kind("offline", 0.03, {"offline": True}),
    Kind("in a hurry", 0.04, {"deadline": 0.05}, (200, 503)),
    Kind("no tokens", 0.02, {"max_tokens": 0}, (400,)),
    Kind("no model", 0.02, {"model": "none"}, (404,)),
    Kind("no JSON", 0.01, {}, (400,), raw=b"{"),
)


@dataclass(frozen=True, slots=True)
class Ended:
    kind: str
    status: int
    well: bool


@dataclass(frozen=True, slots=True)
class Books:
    """An engine's, when nothing was on its way any more: or the time to wait for that was over."""

    pending: int
    pages_used: int
    said: str

    @property
    def well(self) -> bool:
        return (self.pending, self.pages_used, self.said) == (0, 0, "balanced")


@dataclass(frozen=True, slots=True)
class Soaked:
    ended: Sequence[Ended]
    books: Books
    seconds: float

    @property
    def well(self) -> int:
        return sum(request.well for request in self.ended)

    def plain(self) -> dict[str, Any]:
        """Return what the results' file holds: how the requests of each kind ended, and the books."""
        kinds = []
        for kind in KINDS:
            ended = [request for request in self.ended if request.kind == kind.name]
            statuses = Counter("gone" if request.status == GONE else str(request.status) for request in ended)
            counts = ", ".join(f"{status} {count}x" for status, count in sorted(statuses.items()))
            well = str(sum(request.well for request in ended))
            kinds.append({"kind": kind.name, "requests": str(len(ended)), "ended": counts, "well": well})
        return {"kinds": kinds, "seconds": self.seconds, "pages_used": self.books.pages_used, "books": self.books.said}


def soak(url: str, model: str, count: int, seed: int = 0, progress: Progress = silent) -> Soaked:
    return asyncio.run(_soak(url, model, count, seed, progress))


async def _soak(url: str, model: str, count: int, seed: int, progress: Progress) -> Soaked:
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(KINDS), count, p=[kind.share for kind in KINDS])
    requests = [(KINDS[kind], _body(KINDS[kind], model, rng)) for kind in chosen]
    turns, ended, began = asyncio.Semaphore(AT_ONCE), [], time.monotonic()

    async def send(kind: Kind, body: bytes) -> None:
        async with turns:
            ended.append(await _end_of(url, kind, body))
            progress(len(ended), count)

    await asyncio.gather(*(send(kind, body) for kind, body in requests))
    seconds = time.monotonic() - began
    return Soaked(ended, await settled(url), seconds)


async def settled(url: str) -> Books:
    """Return the books as soon as nothing is on its way."""
    until = time.monotonic() + SETTLE_SECONDS
    while True:
        books = await asyncio.to_thread(books_of, url)
        if books.well or time.monotonic() > until:
            return books
        await asyncio.sleep(0.1)


def books_of(url: str) -> Books:
    """Return the books of all models' engines."""
    status = status_of(url)
    engines = [model["engine"] for model in status["models"]]
    wrong = [engine["books"] for engine in engines if engine["books"] != "balanced"]
    return Books(status["pending"], sum(engine["pages_used"] for engine in engines), (wrong or ["balanced"])[0])


def status_of(url: str) -> Any:
    with urllib.request.urlopen(f"{url}/v1/status", timeout=SETTLE_SECONDS) as response:
        return json.load(response)


async def exchange(url: str, path: str, body: bytes, reads: int | None = None) -> tuple[int, bytes]:
    """Send one request on a connection of its own; return the status (GONE after `reads` bytes) and what came."""
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    head = f"POST {path} HTTP/1.1\r\nhost: {where.netloc}\r\ncontent-type: application/json\r\n"
    try:
        writer.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        if reads is not None:
            return GONE, await reader.read(reads) if reads else b""
        answer = await reader.read()
        return int(answer.split(b" ", 2)[1]), answer
    finally:
        writer.close()


async def _end_of(url: str, kind: Kind, body: bytes) -> Ended:
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            status, answer = await exchange(url, kind.path, body, kind.reads)
    except (OSError, ValueError, IndexError, TimeoutError):
        return Ended(kind.name, 0, False)
    whole = status != 200 or not kind.fields.get("stream") or answer.rstrip(b"\r\n0").endswith(b"data: [DONE]")
    return Ended(kind.name, status, status in kind.well and whole)


def _body(kind: Kind, model: str, rng: np.random.Generator) -> bytes:
    if kind.raw is not None:
        return kind.raw
    text = PROMPTS[rng.integers(len(PROMPTS))]
    chat = {"messages": [{"role": "user", "content": text}]} if kind.path.endswith("chat/completions") else {}
    fields = {"model": model, "max_tokens": int(rng.integers(1, 17)), "seed": int(rng.integers(1 << 31))}
    return json.dumps({**fields, **(chat or {"prompt": text}), **kind.fields}).encode()
