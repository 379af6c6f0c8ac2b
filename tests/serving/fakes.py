"""Stand-ins at the two seams of the driver: a first-come-first-served scheduler, workers, and a loop in virtual time."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from pliant.errors import InputError, WorkerError
from pliant.protocol import Action, Answer, Arrived, Changed, Drop, Event, Failed, Finished, Launch, Request


class FifoScheduler:
    """Launches up to `most` requests on a free worker, drops what is late, and restarts what failed."""

    def __init__(self, workers: int = 1, most: int = 4) -> None:
        self._most = most
        self._free = list(range(workers))
        self._waiting: list[Request] = []
        self._running: dict[int, tuple[Launch, list[Request]]] = {}
        self._launches = 0
        self.facts: list[Any] = []
        self.refuses: str | None = None  # a word that facts must not hold

    def handle(self, event: Event, now: float) -> list[Action]:
        actions: list[Action] = []
        match event:
            case Arrived(request):
                self._waiting.append(request)
            case Changed(facts):
                if self.refuses and self.refuses in str(facts):
                    raise InputError("facts", self.refuses, "something else")
                self.facts.append(facts)
            case Finished(launch):
                done, requests = self._running.pop(launch)
                self._free.append(done.worker)
                actions += [Answer(request.id, launch) for request in requests]
            case Failed(launch):
                failed, requests = self._running.pop(launch)
                self._waiting = requests + self._waiting
                actions.append(self._launch(failed.worker, [], kind="restart"))
        late = [request for request in self._waiting if request.deadline <= now]
        self._waiting = [request for request in self._waiting if request.deadline > now]
        actions += [Drop(request.id, "late") for request in late]
        while self._free and self._waiting:
            batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
            actions.append(self._launch(self._free.pop(0), batch))
        return actions

    def _launch(self, worker: int, requests: list[Request], kind: str = "run") -> Launch:
        launch = Launch(self._launches, worker, tuple(request.id for request in requests), kind=kind)
        self._running[launch.id] = (launch, requests)
        self._launches += 1
        return launch

    def wake_at(self) -> float | None:
        return min((request.deadline for request in self._waiting), default=None)

    def check(self) -> None:
        assert not (self._free and self._waiting)


@dataclass
class FakeWorker:
    """Takes `seconds` a launch and gives payloads back; a payload "crash" kills it, "hang" never ends."""

    seconds: float = 0.02
    refuses: str | None = None  # an update
    calls: list[Any] = field(default_factory=list)
    dead: bool = True
    failing_restarts: int = 0
    ended: Callable[[], None] | None = None
    build: Any = None

    async def start(self) -> None:
        self.calls.append("start")
        self.dead = False

    async def restart(self) -> None:
        self.calls.append("restart")
        await asyncio.sleep(0.5)
        if self.failing_restarts:
            self.failing_restarts -= 1
            raise WorkerError("it does not start")
        self.dead = False

    async def run(self, setting: int, payloads: Sequence[Any]) -> tuple[Sequence[Any], float]:
        self.calls.append(tuple(payloads))
        await asyncio.sleep(1e6 if "hang" in payloads else self.seconds)
        if self.dead or "crash" in payloads:
            raise WorkerError("the device process ended during run")
        return list(payloads), self.seconds

    async def update(self, value: Any, build: Any) -> None:
        if self.refuses and self.refuses in str(value):
            raise WorkerError("the device refuses it")
        self.calls.append(("update", value))

    def remember(self, build: Any) -> None:
        self.build = build

    async def load(self, number: int) -> float:
        self.calls.append(("load", number))
        await asyncio.sleep(0.5)
        return 0.5

    def die(self) -> None:
        """As a killed process does."""
        self.dead = True
        if self.ended is not None:
            self.ended()

    def kill(self) -> None:
        self.calls.append("kill")
        self.dead = True

    async def stop(self) -> None:
        self.calls.append("stop")


class _SkippingSelector(selectors.DefaultSelector):
    """Instead of waiting for the next timer, moves the clock to it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "nothing is left to happen: a test would wait for ever"
        self.now += max(0.0, timeout)
        return super().select(0)


def run_virtually(main: Coroutine[Any, Any, Any]) -> Any:
    """`asyncio.run` in virtual time, for code that needs no sockets or threads."""
    selector = _SkippingSelector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main)


class EchoModel:
    """Runs in a device process: gives (payload, setting, updates so far); some payloads misbehave."""

    def __init__(self, updates: tuple[Any, ...] = ()) -> None:
        self.updates: list[Any] = list(updates)

    def run(self, setting: int, payloads: Sequence[Any]) -> tuple[Sequence[Any], float]:
        words = [payload for payload in payloads if isinstance(payload, str)]
        if "raise" in words:
            raise ValueError("no such payload")
        if "hang" in words:
            time.sleep(60)
        return [(payload, setting, tuple(self.updates)) for payload in payloads], 0.001

    def update(self, value: Any) -> None:
        if value == "bad":
            raise ValueError("a bad update")
        self.updates.append(value)

    def load(self, number: int) -> None:
        time.sleep(0.01)
        self.updates = [f"model {number}"]


def refuse_to_build() -> EchoModel:
    raise WorkerError("the weights are missing")
