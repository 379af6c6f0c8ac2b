"""An open-loop HTTP load: every request is sent at its planned time whether or not others were answered.

Latency counts from the planned send time, so a generator that falls behind cannot flatter the server; how far it fell
behind is reported too. What bodies and answers hold a `Form` knows: that of images is here.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import io
import json
import math
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import numpy as np

from pliant.progress import Progress, silent
from pliant.protocol import Request
from pliant.report import Observation
from training.data import ImageData


@dataclass(frozen=True, slots=True)
class Example:
    """An image as a client would send it (base64 of a PNG), and its true label."""

    encoded: str
    label: str


@dataclass(frozen=True, slots=True)
class Told:
    """What an answer says. `seconds`: in the queue and on the device; NaN where the service does not tell."""

    correct: bool
    setting: int
    batch: int | None
    seconds: float


def any_of(_request: Request, examples: Sequence[Any], rng: np.random.Generator) -> Any:
    return examples[int(rng.integers(len(examples)))]


@dataclass(frozen=True, slots=True)
class Form:
    """How a service is asked and answers at `path`, and which of a task's examples a request asks about."""

    body: Callable[[Request, Any], bytes]  # of a request and its example
    read: Callable[[Any, Any], Told]  # of the answer's JSON and the example
    path: str = "/v1/predict"
    choose: Callable[[Request, Sequence[Any], np.random.Generator], Any] = any_of


@dataclass(frozen=True, slots=True)
class Reply:
    """One request as the client saw it. Times in seconds from the start of the load."""

    observation: Observation
    status: int  # HTTP status; 0 if the connection failed
    sent_late: float  # behind the plan
    overhead: float  # time at the client minus queue and run time; NaN if not answered


def examples(data: ImageData, index: Sequence[int]) -> list[Example]:
    """Test images as PNG at their original size."""
    made = []
    for i in index:
        buffer = io.BytesIO()
        data.images.original(int(i)).save(buffer, format="PNG")
        made.append(Example(base64.b64encode(buffer.getvalue()).decode(), data.classes[data.labels[int(i)]]))
    return made


def allow_many_connections() -> None:
    """Raise this process's limit of open files (and its children's) as far as the system lets it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def replay(
    address: str,
    requests: Sequence[Request],
    pool: Mapping[str, Sequence[Any]],
    seed: int = 0,
    progress: Progress = silent,
    form: Form | None = None,
) -> list[Reply]:
    """Send every request at its arrival time to `address` and gather the replies, in the requests' order."""
    rng = np.random.default_rng(seed)
    form = form or IMAGES
    chosen = [form.choose(r, pool[r.task], rng) for r in requests]
    bodies = [form.body(r, example) for r, example in zip(requests, chosen, strict=True)]
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
    with _no_collection():
        return await _replay(connector, f"{address}{form.path}", requests, bodies, chosen, progress, form)


@contextmanager
def _no_collection() -> Iterator[None]:
    """The instrument must not pause: a collection over all that is pending would count as the endpoint's time."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def _replay(
    connector: aiohttp.BaseConnector,
    url: str,
    requests: Sequence[Request],
    bodies: Sequence[bytes],
    chosen: Sequence[Any],
    progress: Progress,
    form: Form,
) -> list[Reply]:
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=30)) as session:
        start = time.perf_counter() + 0.2
        sending = []
        for i, (request, body, example) in enumerate(zip(requests, bodies, chosen, strict=True)):
            delay = start + request.arrival - time.perf_counter()
            if delay > 0:
                await asyncio.sleep(delay)
            sending.append(asyncio.create_task(_send(session, url, request, body, example, start, form)))
            if i % 100 == 0:
                progress(i, len(requests))
        replies = await asyncio.gather(*sending)
        progress(len(requests), len(requests))
    return list(replies)


async def one_by_one(
    address: str,
    requests: Sequence[Request],
    pool: Mapping[str, Sequence[Any]],
    progress: Progress = silent,
    form: Form | None = None,
) -> list[Reply]:
    """The same requests on one connection, each sent when the one before it was answered; arrival times do not count."""
    return (await in_turns([address], requests, pool, progress, form))[0]


async def in_turns(
    addresses: Sequence[str],
    requests: Sequence[Request],
    pool: Mapping[str, Sequence[Any]],
    progress: Progress = silent,
    form: Form | None = None,
) -> list[list[Reply]]:
    """As `one_by_one`, each request to every address before the next one, every time another address first.

    Replies by address: what else the machine does falls on all of them alike.
    """
    replies: list[list[Reply]] = [[] for _ in addresses]
    form, places = form or IMAGES, range(len(addresses))
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session:
        for i, request in enumerate(requests):
            example = pool[request.task][i % len(pool[request.task])]
            body = form.body(request, example)
            for place in (*places[i % len(places) :], *places[: i % len(places)]):
                start, url = time.perf_counter() - request.arrival, f"{addresses[place]}{form.path}"
                replies[place].append(await _send(session, url, request, body, example, start, form))
            progress(i + 1, len(requests))
    return replies


def _body(request: Request, example: Example) -> bytes:
    seconds = request.deadline - request.arrival
    fields = {"image": example.encoded, "task": request.task, "deadline": seconds, "utility": request.utility}
    return json.dumps(fields).encode()


def _read(answer: Any, example: Example) -> Told:
    seconds = answer.get("queue_seconds", math.nan) + answer.get(
        "run_seconds", math.nan
    )  # not every service tells them
    return Told(answer["label"] == example.label, answer["gamma"], answer["batch_size"], seconds)


IMAGES = Form(_body, _read)


async def _send(
    session: aiohttp.ClientSession, url: str, request: Request, body: bytes, example: Any, start: float, form: Form
) -> Reply:
    sent = time.perf_counter()
    late = sent - start - request.arrival
    try:
        async with session.post(url, data=body, headers={"content-type": "application/json"}) as response:
            content = await response.read()
    except (TimeoutError, aiohttp.ClientError) as error:
        return Reply(Observation(request, dropped=type(error).__name__), 0, late, float("nan"))
    end = time.perf_counter()
    if response.status != 200:
        return Reply(Observation(request, dropped=str(response.status)), response.status, late, float("nan"))
    told = form.read(json.loads(content), example)
    observation = Observation(request, end - start, told.correct, told.setting, told.batch)
    return Reply(observation, 200, late, end - sent - told.seconds)


async def capacity(
    address: str,
    pool: Mapping[str, Sequence[Any]],
    seconds: float,
    clients: int = 256,
    form: Form = IMAGES,
    lead: float = 1.0,
) -> float:
    """Answers per second that the endpoint gives to `clients` that always have one request each in flight.

    What comes in the first `lead` seconds does not count.
    """
    counted = [0]
    bodies = [
        form.body(Request(i, 0.0, 20.0, task), example)
        for task, some in pool.items()
        for i, example in enumerate(some[:32])
    ]
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        warm = time.perf_counter() + lead
        clients_running = [
            _closed_loop(session, f"{address}{form.path}", bodies[i % len(bodies) :], warm, seconds, counted)
            for i in range(clients)
        ]
        await asyncio.gather(*clients_running)
    return counted[0] / seconds


async def _closed_loop(
    session: aiohttp.ClientSession, url: str, bodies: Sequence[bytes], warm: float, seconds: float, counted: list[int]
) -> None:
    turn = 0
    while (now := time.perf_counter()) < warm + seconds:
        async with session.post(
            url, data=bodies[turn % len(bodies)], headers={"content-type": "application/json"}
        ) as response:
            await response.read()
        turn += 1
        if response.status == 200 and now >= warm:
            counted[0] += 1
