"""The base of every system's endpoint, which is its service apart from HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, ClassVar, Generic

from typing_extensions import TypeVar  # with defaults, which the standard library has from 3.13 on

from pliant.errors import PliantError
from pliant.serving.client import ANYBODY, Client
from pliant.serving.driver import Clock, Completed, Driver, Rejected
from pliant.serving.http.api_errors import api_error_of_drop
from pliant.serving.http.app import unknown_task
from pliant.serving.lifecycle.catalog import Catalog
from pliant.serving.lifecycle.generation import Running
from pliant.serving.lifecycle.refresh import Refresher
from pliant.serving.loop.observe import AnswerMetrics, Observer
from pliant.serving.loop.outcomes import Outcomes
from pliant.serving.loop.trial import Call, Ended, Trial
from pliant.serving.metrics import Metrics
from pliant.serving.request_context import FrontDoor
from pliant.serving.settings import Settings
from pliant.serving.workers.devices import device_of, devices

A = TypeVar("A")
S = TypeVar("S", bound=Settings)
C = TypeVar("C", bound=Catalog)
Item = TypeVar("Item")
Result = TypeVar("Result")
H = TypeVar("H")
D = TypeVar("D", bound=Running, default=Driver)
M = TypeVar("M", bound=AnswerMetrics, default=Metrics)


class Endpoint(Generic[S, C, H, D, M]):
    """A service apart from HTTP. `S` are its settings, `M` its metrics; `C`, `H` and `D` are those of `Generation`."""

    USUAL_DEADLINE: ClassVar[float] = 0.5  # seconds, until requests have said otherwise

    def __init__(self, settings: S, refresher: Refresher[C, H, D], metrics: M, clock: Clock) -> None:
        self.settings, self.metrics, self._clock = settings, metrics, clock
        self._poller, self._generations = refresher.poller, refresher.generations
        self._refresher = refresher
        self.front_door = FrontDoor(self.USUAL_DEADLINE)
        self.drift = refresher.drift
        self.drift.burn_in = settings.watch_burn_in
        self._observer = Observer(metrics, self.drift)
        self._looking: asyncio.Task[None] | None = None

    @property
    def now(self) -> float:
        """Return the present time in seconds, on the clock that deadlines are on."""
        return self._clock()

    @property
    def ready(self) -> bool:
        """Whether the service can answer requests."""
        return self._generations.present.driver.ready

    @property
    def alive(self) -> bool:
        """Whether the service can recover by itself; if not, its process must be restarted."""
        return self._generations.present.driver.alive

    async def route_trial(self, call: Call[A], arrived: float, deadline: float, ended: Ended[A] | None = None) -> A:
        """Return the answer to a request, by the champion or by a challenger on trial. Raises what that raises.

        `arrived`: when it came to the socket; `deadline`: in seconds from then. `call` answers a request whose deadline
        counts from a time, which is earlier than `arrived` by what its answer will take to be written; it may be called
        again for a copy, and reads `chosen`. `ended` waits for the end of an answer that is returned when it begins.
        """
        self.front_door.note_deadline(deadline)
        arrived -= self.front_door.way_back(asyncio.get_running_loop().time())
        trial = self._trial
        served = await (call(arrived) if trial is None else trial.answer(call, arrived, deadline, ended))
        return served.answer

    @property
    def _trial(self) -> Trial | None:
        return None if self._refresher.trials is None else self._refresher.trials.trial

    def handler(self, task: str, field: str = "task") -> H:
        """Return the handler of a task in the chosen generation. Raises `ApiError` (404) where that does not serve it."""
        handlers = self._generations.chosen.handlers
        if task not in handlers:
            raise unknown_task(task, field, handlers)
        return handlers[task]

    async def run_one(
        self: Endpoint[S, C, H, Driver, Metrics],
        task: str,
        payload: Any,
        deadline: float,
        arrived: float,
        client: Client,
        utility: float = 1.0,
    ) -> tuple[H, Completed]:
        """Return the result of one request, and the handler of its task. Raises `ApiError` for a task that is not served,
        and for a request that is dropped.
        """
        handler, driver = self.handler(task), self._generations.chosen.driver
        result = await driver.submit(task, deadline - (self.now - arrived), utility, payload, client=client)
        if isinstance(result, Rejected):
            self.metrics.dropped(task, result.reason, utility)
            raise api_error_of_drop(result, deadline)
        return handler, result

    def look_soon(self) -> None:
        """Look at the registry without being waited for: it says that something was released."""

        async def look() -> None:
            with suppress(PliantError):  # the poller has recorded and logged it
                await self._poller.poll(retry_held=False)

        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(look())

    async def refresh(self) -> dict[str, Any]:
        """Poll the registry now, and return the outcome. Raises as `Refresher`'s poll."""
        return asdict(await self._poller.poll())

    def status(self) -> Any:
        """Return what GET /status answers, or a coroutine that does."""
        return self.common_status()

    def common_status(self) -> dict[str, Any]:
        """Return the part of the status that all systems have."""
        present = self._generations.present
        return {
            "ready": self.ready,
            "alias": self.settings.alias,
            "release": self._refresher.release,
            "generation": present.number,
            "device": ",".join(devices(self.settings)),
            "leaving": self._generations.draining,
            "standby": standby.number if (standby := self._generations.standby) is not None else None,
            "trial": trials.to_dict() if (trials := self._refresher.trials) is not None else None,
            "watch": watcher.to_dict() if (watcher := self._refresher.watcher) is not None else None,
            "refresh": asdict(self._poller.last),
            "refresh_seconds": self._poller.seconds,
            "waiting": present.driver.waiting,
            "pending": present.driver.pending,
        }


class LabelledEndpoint(Endpoint[S, C, H, D, M]):
    """An endpoint whose answers may be labelled later."""

    def __init__(
        self, settings: S, refresher: Refresher[C, H, D], metrics: M, clock: Clock, outcomes: Outcomes
    ) -> None:
        super().__init__(settings, refresher, metrics, clock)
        self.outcomes, self._observer = outcomes, Observer(metrics, self.drift, outcomes)
        outcomes.on_broken = lambda event: refresher.tell("promise", event)

    def outcome(self, id: str, label: str | float, client: Client = ANYBODY, declared: str = "") -> dict[str, Any]:
        """Record the right label of an earlier answer, and its slice, also for a trial. Raises as `Outcomes.take`."""
        taken, trial = self.outcomes.take(id, label, client, declared), self._trial
        if trial is not None and self.outcomes.teaches(client):
            trial.label(id, label, declared)
        return taken


def described_devices(settings: Settings, driver: Driver) -> list[dict[str, Any]]:
    """Return what a status says of the device of each worker."""
    return [
        {
            "name": device_of(settings, worker),
            "up": up,
            "fallbacks": [{"kind": fallback.kind, "reason": fallback.reason} for fallback in fallbacks],
        }
        for worker, (up, fallbacks) in enumerate(zip(driver.up, driver.fallbacks, strict=True))
    ]


AT_ONCE = 16  # coroutines that are started before others on the event loop have a turn: some milliseconds
AHEAD = 2  # launches of the largest batch for each device: one that runs and one that waits


def width(devices: int, largest_batch: int) -> int:
    """Return how many texts of one request may run at a time."""
    return max(AT_ONCE, AHEAD * devices * largest_batch)


async def run_each(
    items: Sequence[Item],
    run: Callable[[Item], Awaitable[Result]],
    width: int,
    goes_on: Callable[[], bool] = lambda: True,
) -> list[Result | None]:
    """Return what `run` gives for each item, in order.

    At most `width` run at a time. If `goes_on` is false before all are started, None stands for each without a result. An
    error of `run` is raised. In both cases, and if this is cancelled, those that run are cancelled.
    """
    if len(items) == 1:  # as most requests have it: a task would take a turn of the event loop to begin, and one to end
        return [await run(items[0]) if goes_on() else None]
    results: list[Result | None] = [None] * len(items)
    coming = iter(enumerate(items))

    async def run_one_after_the_other() -> None:
        for place, item in coming:
            if not goes_on():
                raise _EndedError
            results[place] = await run(item)

    tasks: list[asyncio.Task[None]] = []
    try:
        for start in range(0, min(width, len(items)), AT_ONCE):
            count = min(AT_ONCE, width - start, len(items) - start)
            tasks += [asyncio.create_task(run_one_after_the_other()) for _ in range(count)]
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
    except _EndedError:
        pass
    finally:
        for task in tasks:
            task.cancel()
    return results


class _EndedError(Exception):
    """It does not go on."""
