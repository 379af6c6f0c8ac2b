"""An open-loop HTTP load: every request is sent at its planned time whether or not others were answered.

Latency counts from the planned send time, so a generator that falls behind cannot flatter the server; how far it fell
behind is reported too. A `Form` knows what bodies and answers hold: that of images is here.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import math
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import aiohttp
import numpy as np

from pliant.errors import PliantError
from pliant.progress import Progress, share, silent
from pliant.protocol import Request
from pliant.report import Observation
from pliant.training.data import ImageData

JSON = {"content-type": "application/json"}
TIMEOUT = aiohttp.ClientTimeout(total=30)


@dataclass(frozen=True, slots=True)
class Example:
    """An image as a client would send it (base64 of a PNG), and its true label."""

    encoded: str
    label: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """What an answer says. `seconds`: in the queue and on the device; NaN where the service does not say."""

    correct: bool
    setting: int
    batch: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Form:
    """The bodies and answers of a service at `path`, which of a task's examples a request carries, and further headers."""

    body: Callable[[Request, Any], bytes]  # of a request and its example
    read: Callable[[Any, Any], Parsed]  # of the answer's JSON and the example
    path: str = "/v1/predict"
    choose: Callable[[Request, Sequence[Any], np.random.Generator], Any] = lambda _request, examples, rng: examples[
        int(rng.integers(len(examples)))
    ]
    headers: Callable[[Request], Mapping[str, str]] = lambda _request: {}


def _body(request: Request, example: Example) -> bytes:
    seconds = request.deadline - request.arrival
    fields = {"image": example.encoded, "task": request.task, "deadline": seconds, "utility": request.utility}
    return json.dumps(fields).encode()


def _read(answer: Any, example: Example) -> Parsed:
    seconds = [answer.get(name, math.nan) for name in ("queue_seconds", "run_seconds")]  # not every service says them
    return Parsed(answer["label"] == example.label, answer["gamma"], answer["batch_size"], sum(seconds))


IMAGES = Form(_body, _read)


@dataclass(frozen=True, slots=True)
class Reply:
    """One request as the client saw it. Times in seconds from the start of the load."""

    observation: Observation
    status: int  # HTTP status; 0 if the connection failed
    sent_late: float  # behind the plan
    overhead: float  # time at the client minus queue and run time; NaN if not answered

    @property
    def seconds(self) -> float:
        """Return the time from the plan to the answer; without one, to the deadline."""
        seen = self.observation
        return (seen.request.deadline if seen.answered is None else seen.answered) - seen.request.arrival


def examples(data: ImageData, index: Sequence[int]) -> list[Example]:
    """Return the files of test images."""
    files = ((int(i), base64.b64encode(data.images.file(int(i))).decode()) for i in index)
    return [Example(file, data.classes[data.labels[i]]) for i, file in files]


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
    form: Form = IMAGES,
) -> list[Reply]:
    """Send every request at its arrival time to `address` and gather the replies, in the requests' order."""
    rng = np.random.default_rng(seed)
    chosen = [form.choose(r, pool[r.task], rng) for r in requests]
    bodies = [form.body(r, example) for r, example in zip(requests, chosen, strict=True)]
    connector, url, sending = aiohttp.TCPConnector(limit=0, keepalive_timeout=60), f"{address}{form.path}", []
    gc.collect()
    gc.disable()  # one collection over all that is pending would count as the endpoint's time
    try:
        async with aiohttp.ClientSession(connector=connector, timeout=TIMEOUT) as session:
            start = time.perf_counter() + 0.2
            for i, (request, body, example) in enumerate(zip(requests, bodies, chosen, strict=True)):
                delay = start + request.arrival - time.perf_counter()
                if delay > 0:
                    await asyncio.sleep(delay)
                sending.append(asyncio.create_task(_send(session, url, request, body, example, start, form)))
                if i % 100 == 0:
                    progress(i, len(requests))
            replies = await asyncio.gather(*sending)
            progress(len(requests), len(requests))
    finally:
        gc.enable()
    return list(replies)


async def in_turns(
    addresses: Sequence[str],
    requests: Sequence[Request],
    pool: Mapping[str, Sequence[Any]],
    progress: Progress = silent,
    form: Form = IMAGES,
) -> list[list[Reply]]:
    """Send one request after the other, each when the one before it was answered; return the replies by address.

    Each goes to every address before the next one, every time another address first: what else the machine does falls on
    all of them alike. Arrival times do not count.
    """
    replies: list[list[Reply]] = [[] for _ in addresses]
    places = range(len(addresses))
    async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
        for i, request in enumerate(requests):
            example = pool[request.task][i % len(pool[request.task])]
            body = form.body(request, example)
            for place in (*places[i % len(places) :], *places[: i % len(places)]):
                start, url = time.perf_counter() - request.arrival, f"{addresses[place]}{form.path}"
                replies[place].append(await _send(session, url, request, body, example, start, form))
            progress(i + 1, len(requests))
    return replies


async def _send(
    session: aiohttp.ClientSession, url: str, request: Request, body: bytes, example: Any, start: float, form: Form
) -> Reply:
    sent = time.perf_counter()
    late = sent - start - request.arrival
    try:
        async with session.post(url, data=body, headers={**JSON, **form.headers(request)}) as response:
            content = await response.read()
    except (TimeoutError, aiohttp.ClientError) as error:
        return Reply(Observation(request, dropped=type(error).__name__), 0, late, float("nan"))
    end = time.perf_counter()
    if response.status != 200:
        return Reply(Observation(request, dropped=str(response.status)), response.status, late, float("nan"))
    parsed = form.read(json.loads(content), example)
    observation = Observation(request, end - start, parsed.correct, parsed.setting, parsed.batch)
    return Reply(observation, 200, late, end - sent - parsed.seconds)


def warm(
    address: str, pool: Mapping[str, Sequence[Any]], count: int, form: Form = IMAGES, deadline: float = 30.0
) -> None:
    """Send so many requests one after the other, of the pool's tasks in turn."""
    tasks = list(pool)
    requests = [Request(i, 0.0, deadline, tasks[i % len(tasks)]) for i in range(count)]
    asyncio.run(in_turns([address], requests, pool, form=form))


def turns(count: int, names: Sequence[str], progress: Progress = silent) -> Iterator[tuple[int, str, Progress]]:
    """Give each name once a turn, with the turn's number and its share of the progress.

    Every other turn goes in the opposite order, so that what else the machine does falls on all alike.
    """
    total = count * len(names)
    for place in range(total):
        number, at = divmod(place, len(names))
        name = names[at] if number % 2 == 0 else names[-1 - at]
        yield number, name, share(progress, 100 * place // total, 100 * (place + 1) // total)


async def capacity(
    address: str,
    pool: Mapping[str, Sequence[Any]],
    seconds: float,
    clients: int = 256,
    form: Form = IMAGES,
    lead: float = 1.0,
    most: int = 32,
) -> float:
    """Return the answers per second that the endpoint gives to `clients` that always have one request each in flight.

    What comes in the first `lead` seconds does not count. `most`: examples of each task that are sent, the first ones.
    Raises `PliantError` where nothing was answered: a load of so many times nothing says nothing.
    """
    counted = 0
    bodies = [
        form.body(Request(i, 0.0, 20.0, task), example)
        for task, some in pool.items()
        for i, example in enumerate(some[:most])
    ]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        start, url = time.perf_counter() + lead, f"{address}{form.path}"

        async def ask_on(bodies: Iterator[bytes]) -> None:
            nonlocal counted
            while (now := time.perf_counter()) < start + seconds:
                async with session.post(url, data=next(bodies), headers=JSON) as response:
                    await response.read()
                if response.status == 200 and now >= start:
                    counted += 1

        await asyncio.gather(*(ask_on(cycle(bodies[i % len(bodies) :])) for i in range(clients)))
    if not counted:
        raise PliantError(
            f"the endpoint answered none of {clients} clients within {seconds:g} s, so there is no capacity to compare at: "
            "try again when less else runs on this machine"
        )
    return counted / seconds
