"""The clients of `pliant demo --story`: some requests a second, over HTTP, for as long as the story lasts.

They run in a thread of their own. Each request is sent at its time, whether or not others were answered; one without a right
status, or without an answer within its deadline, has failed, and is never sent again.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import aiohttp
import numpy as np

from pliant.errors import PliantError

CLIENTS = 1000
"""Each has a key, so that it stays with one release while another is tried. Of a key the first request says who is late."""
SPARE_SECONDS = 5.0  # beyond the deadline, until a client gives up


@dataclass(frozen=True, slots=True)
class Answer:
    """A request that ended at second `at` of the story, `seconds` after it was sent; `failure`: empty for an answer."""

    at: float
    seconds: float
    version: int  # of the model that answered; 0: none
    correct: bool
    confidence: float
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Mix:
    """What the clients send: examples, each equally often."""

    name: str
    examples: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Said:
    """What an answer said: by which version of the model, whether it is right, and how sure it is, from 0 to 1."""

    version: int
    correct: bool
    confidence: float


@dataclass(frozen=True, slots=True)
class Speech:
    """How a system is asked: the path, the JSON of an example with a deadline in seconds, and how an answer is read.

    `label`: the report of an answer's label for POST /v1/outcomes, or None where the client reports none.
    """

    path: str
    body: Callable[[Any, float], Mapping[str, Any]]
    read: Callable[[Mapping[str, Any], Any], Said]
    label: Callable[[Mapping[str, Any], Any], Mapping[str, Any] | None] = lambda _answer, _example: None


class Clients:
    """Sends `rate` requests a second of the present `mix`; `answers` grows by one for each that ends."""

    def __init__(
        self,
        address: str,
        speech: Speech,
        mix: Mix,
        rate: float,
        deadline: float,
        start: float,
        labelled: float = 1.0,
    ) -> None:
        """`start`: the `time.monotonic()` from which times count; `labelled`: share of the answers that are."""
        self.mix = mix
        self.answers: list[Answer] = []
        self.labels, self.refused_labels = 0, 0
        self._address, self._url, self._speech, self._rate = address, address + speech.path, speech, rate
        self._deadline, self._start, self._labelled = deadline, start, labelled
        self._ended = threading.Event()
        self._trouble: BaseException | None = None

    @property
    def failures(self) -> list[Answer]:
        """Return the requests that failed."""
        return [answer for answer in list(self.answers) if answer.failure]

    def time_of(self, answer: Answer) -> float:
        """Return the `time.monotonic()` at which a request ended."""
        return self._start + answer.at

    def check(self) -> None:
        """Raise `PliantError` where the clients themselves have stopped."""
        if self._trouble is not None:
            raise PliantError(f"the story's clients stopped: {self._trouble}")

    @contextmanager
    def running(self) -> Iterator[Clients]:
        """Send requests while the context lasts; at its end wait for those that are under way."""
        thread = threading.Thread(target=self._run, name="clients of the story", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            thread.join(self._deadline + SPARE_SECONDS)

    def _run(self) -> None:
        try:
            asyncio.run(self._send_all())
        except Exception as error:  # of the clients, not of a request: `check` reports it
            self._trouble = error

    async def _send_all(self) -> None:
        rng, sending = np.random.default_rng(0), set[asyncio.Task[None]]()
        timeout = aiohttp.ClientTimeout(total=self._deadline + SPARE_SECONDS)
        # The service closes a connection that has been idle for 5 s; a request at that very moment would be lost.
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=3)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            due = time.monotonic()
            while not self._ended.is_set():
                example = self.mix.examples[int(rng.integers(len(self.mix.examples)))]
                key, labelled = f"client {rng.integers(CLIENTS)}", bool(rng.random() < self._labelled)
                task = asyncio.create_task(self._send(session, example, key, labelled))
                sending.add(task)
                task.add_done_callback(sending.discard)
                due += rng.exponential(1 / self._rate)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            await asyncio.gather(*sending)

    async def _send(self, session: aiohttp.ClientSession, example: Any, key: str, labelled: bool) -> None:
        content = json.dumps(self._speech.body(example, self._deadline))
        headers = {"content-type": "application/json", "x-pliant-key": key}
        sent, failure, said, answer = time.monotonic(), "", Said(0, False, 0.0), None
        try:
            async with session.post(self._url, data=content, headers=headers) as response:
                text = await response.text()
                if response.status == 200:
                    answer = json.loads(text)
                    said = self._speech.read(answer, example)
                else:
                    failure = f"status {response.status}: {text[:200]}"
        except (TimeoutError, aiohttp.ClientError, ValueError, KeyError) as error:
            failure = f"{type(error).__name__}: {error}"
        end = time.monotonic()
        at = end - self._start
        self.answers.append(Answer(at, end - sent, said.version, said.correct, said.confidence, failure))
        if labelled and answer is not None and (label := self._speech.label(answer, example)) is not None:
            taken = False
            with suppress(TimeoutError, aiohttp.ClientError):
                async with session.post(f"{self._address}/v1/outcomes", json=label) as response:
                    taken = response.status == 200
            self.labels += taken
            self.refused_labels += not taken
