"""What the live parts of `pliant bench watch` share: a champion of tokens of their own, further releases, a load.

The champion has the demo's sizes and is kept between runs. A further release has the same artifacts, registered once more:
its answers are equal but for the version that they name.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import aiohttp
import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.load_generator import IMAGES, JSON, Example
from benchmarks.tokens.demo import OVERRIDES
from benchmarks.tokens.endpoint import live_bundle, test_examples
from benchmarks.watch.cost import own_home
from flows.release import open_registry
from flows.run import run_flow
from flows.tokens.champions import load_champion
from pliant.protocol import Request
from registry.mlflow_store import MlflowRegistry
from registry.names import TOKENS_TASK

SYSTEM = "tokens"
DEADLINE = 10.0  # seconds of each request: so long that no request is refused as late
GIVE_UP = 30.0  # seconds after which a client has lost its request

Pool = Mapping[str, Sequence[Example]]


@dataclass(frozen=True, slots=True)
class Ground:
    """The registry of the live parts, and held-out images by task."""

    registry: MlflowRegistry
    pool: Pool

    def versions(self) -> dict[str, int]:
        """Register the artifacts of the champion's tasks once more, and return model -> new version."""
        client, again = self.registry.connect(), {}
        for name, number in self.registry.aliases(TOKENS_TASK).items():
            present = client.get_model_version(name, str(number))
            copy = client.create_model_version(name, present.source, run_id=present.run_id, tags=present.tags)
            again[name] = int(copy.version)
        return again

    def number(self) -> int:
        """Return the number of the release that is served."""
        present = self.registry.release(SYSTEM)
        assert present is not None, "the ground has a champion"
        return present.number

    def task_versions(self, number: int) -> dict[str, int]:
        """Return task -> version in a release."""
        release = self.registry.release(SYSTEM, number)
        assert release is not None, "the release was written before"
        tasks = {name: at for name, at in release.versions.items() if name.startswith(TOKENS_TASK)}
        return {name.removeprefix(TOKENS_TASK): at for name, at in tasks.items()}


@contextmanager
def ground() -> Iterator[Ground]:
    """Give the ground in PLIANT_HOME/bench/watch; trains a champion there in the first run, which takes a minute or two."""
    with own_home(SYSTEM) as project:
        if load_champion(project) is None:
            run_flow("tokens", None, OVERRIDES)
        yield Ground(open_registry(project, SYSTEM), test_examples(live_bundle()))


@dataclass(frozen=True, slots=True)
class Answer:
    """One request as its client saw it. Times are `time.monotonic()` in seconds; `planned`: when it was to be sent."""

    id: str
    said_id: str  # that the answer names; empty without one
    task: str
    planned: float
    ended: float
    status: int  # of HTTP; 0: no answer
    version: int  # of the task's model; 0: not said


@dataclass(slots=True)
class Load:
    """Poisson arrivals at `rate` requests/s until `stop` is set; each request has an id of its own and is sent once."""

    address: str
    pool: Pool
    rate: float
    name: str
    seed: int = 0
    sent: int = 0
    answers: list[Answer] = field(default_factory=list)
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Send until stopped, then wait for every answer."""
        rng, running = np.random.default_rng(self.seed), set()
        bodies = cycle(bodies_of(self.pool))
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=GIVE_UP)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            planned = time.monotonic()
            while not self.stop.is_set():
                planned += float(rng.exponential(1 / self.rate))
                await asyncio.sleep(max(0.0, planned - time.monotonic()))
                task, body = next(bodies)
                sending = asyncio.create_task(self._send(session, f"{self.name}-{self.sent}", task, body, planned))
                self.sent += 1
                running.add(sending)
                sending.add_done_callback(running.discard)
            await asyncio.gather(*running)

    async def _send(self, session: aiohttp.ClientSession, id: str, task: str, body: bytes, planned: float) -> None:
        status, said, version = 0, "", 0
        try:
            async with session.post(
                f"{self.address}{IMAGES.path}", data=body, headers={**JSON, "x-request-id": id}
            ) as response:
                content = await response.read()
            status, said = response.status, response.headers.get("x-request-id", "")
            if status == 200:
                version = version_of(json.loads(content), task)
        except (TimeoutError, aiohttp.ClientError):
            pass  # status 0
        self.answers.append(Answer(id, said, task, planned, time.monotonic(), status, version))


def bodies_of(pool: Pool) -> list[tuple[str, bytes]]:
    """Return requests about the pool's tasks in turn, each with its task."""
    tasks = list(pool)
    count = 32 * len(tasks)
    requests = [Request(i, 0.0, DEADLINE, tasks[i % len(tasks)]) for i in range(count)]
    return [(request.task, IMAGES.body(request, pool[request.task][request.id // len(tasks)])) for request in requests]


def version_of(answer: Mapping[str, Any], task: str) -> int:
    """Return the version of the task's model that an answer names; 0 if it names none."""
    versions = answer.get("versions", {})
    return int(versions.get(f"{TOKENS_TASK}{task}", versions.get("task", versions.get(task, 0))))


@dataclass(frozen=True, slots=True)
class Fates:
    """What became of the requests, as their clients saw it. `foreign`: answers that name another request."""

    sent: int
    failed: int
    foreign: int


def fates(sent: int, answers: Sequence[Answer]) -> Fates:
    """Count the requests without an answer of status 200, and the answers that name a wrong request."""
    good = [answer for answer in answers if answer.status == 200]
    return Fates(sent, sent - len(good), sum(answer.said_id != answer.id for answer in good))


@dataclass(frozen=True, slots=True)
class Counts:
    """Real requests as they were counted on one side: copies, whose answers nobody gets, are in none of them.

    HTTP gives a client one answer a request whatever a service does, so that a request that is answered twice shows in
    the service's own counts alone.
    """

    answers: Counter[tuple[str, int]]  # by task and the version of its model
    ended: Counter[str]  # by task: requests that were answered, in time or late
    arrivals: Counter[str]  # by task: requests that reached a scheduler; a service's alone

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.answers + other.answers, self.ended + other.ended, self.arrivals + other.arrivals)

    def since(self, before: Counts) -> Counts:
        """Return what was counted after `before`."""
        return Counts(
            self.answers - before.answers, self.ended - before.ended, self.arrivals - before.arrivals
        )  # counters only grow

    def answered_again(self, clients: Counts) -> int:
        """Return how many more answers a service counted than its clients got, by task and version, or by task."""
        return max((self.answers - clients.answers).total(), (self.ended - clients.ended).total())

    def not_counted(self, clients: Counts) -> int:
        """Return how many answers clients got that the service did not count: then its counts show nothing."""
        return max((clients.answers - self.answers).total(), (clients.ended - self.ended).total())


def no_counts() -> Counts:
    return Counts(Counter(), Counter(), Counter())


def counts_of(answers: Sequence[Answer]) -> Counts:
    """Return what clients count: the answers of status 200."""
    good = [answer for answer in answers if answer.status == 200]
    versions = Counter((answer.task, answer.version) for answer in good)
    return Counts(versions, Counter(answer.task for answer in good), Counter())


def scraped(metrics: str) -> Counts:
    """Return what a service has counted since its start, from the text of its /metrics."""
    counts = no_counts()
    for family in text_string_to_metric_families(metrics):
        for name, labels, value, *_ in family.samples:
            task, number = labels.get("task", ""), round(value)
            if name == "pliant_answers_total":
                counts.answers[task, int(labels["task_version"] or 0)] += number
            elif name == "pliant_outcomes_total" and labels["outcome"] in ("on_time", "late"):
                counts.ended[task] += number
            elif name == "pliant_arrivals_total":
                counts.arrivals[task] += number
    return counts


def first_from(answers: Sequence[Answer], since: float, versions: Mapping[str, int]) -> float:
    """Return the seconds from `since` to the first answer by one of task -> version; NaN if there is none."""
    ended = [a.ended for a in answers if a.ended >= since and a.version and a.version == versions.get(a.task)]
    return min(ended) - since if ended else math.nan


def p99(answers: Sequence[Answer]) -> float:
    """Return the 99th percentile of the latencies in seconds; a request without an answer counts GIVE_UP seconds."""
    latencies = [a.ended - a.planned if a.status == 200 else GIVE_UP for a in answers]
    return float(np.quantile(latencies, 0.99)) if latencies else math.nan
