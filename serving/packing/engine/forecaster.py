"""Forecasts the lengths of outputs within a time limit, by a predictor in a process of its own.

If the prediction is late or fails, the forecast is that of all lengths that the predictor was trained on. Texts that arrive
while the process is busy are predicted together. A process that dies or hangs is restarted; until it is up again nobody
waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from pliant.errors import WorkerError
from pliant.packing.scheduling.forecast import Forecast
from pliant.serving.workers.worker import ModelError, Worker
from pliant.serving.workers.worker_slot import within

MINUTE = 60.0  # seconds that are looked back
MAX_LATE_SHARE = 0.01  # share of late forecasts in the last minute above which the log says so


class RecentForecasts:
    """The forecasts of the last minute, counted by the second: predicted, late or failed. `now` never goes back."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, Counter[str]]] = deque()
        self._judged_at: float | None = None

    def add(self, origin: str, now: float) -> None:
        """Count a forecast."""
        if not self._seconds or self._seconds[-1][0] != int(now):
            self._seconds.append((int(now), Counter()))
        self._seconds[-1][1][origin] += 1

    def counts(self, now: float) -> Counter[str]:
        """Return the counts of the last minute."""
        while self._seconds and self._seconds[0][0] <= now - MINUTE:
            self._seconds.popleft()
        return sum((counts for _, counts in self._seconds), Counter())

    def excess(self, now: float) -> Counter[str] | None:
        """Return the counts of the last minute if too many were late; None where it was called within a minute before."""
        if self._judged_at is not None and now - self._judged_at < MINUTE:
            return None
        first, self._judged_at = self._judged_at is None, now
        counts = self.counts(now)
        return counts if not first and counts["late"] > MAX_LATE_SHARE * counts.total() else None


logger = logging.getLogger("pliant.serving")

MAX_TEXTS = 32  # texts at most in one prediction
READ_CHARACTERS = 8192  # of a text, its last, that are read
RETRY_SECONDS = 1.0  # between two attempts to restart the process
SETTING = 0  # of a launch: the predictor has only one


@dataclass(frozen=True, slots=True)
class ForecastLimits:
    """Time limits in seconds: `wait` for a forecast, and `run` of one prediction, after which the process counts as hung."""

    wait: float
    run: float = 60.0


class ForecastCounter(Protocol):
    """What counts forecasts: the metrics of packing, which read replies and so lie above."""

    def forecast(self, task: str, origin: str, seconds: float) -> None: ...

    def predictor_died(self, task: str) -> None: ...


class Forecaster:
    """Forecasts for one event loop, between `start` and `stop`."""

    def __init__(
        self, name: str, worker: Worker, marginal: tuple[float, ...], limits: ForecastLimits, counter: ForecastCounter
    ) -> None:
        """`name`: of the model. `worker` runs the predictor, not started. `marginal`: quantiles of all lengths."""
        self._name, self._worker, self._marginal = name, worker, marginal
        self._limits, self._counter = limits, counter
        self._requested: dict[asyncio.Future[Forecast | None], str] = {}
        self._working: asyncio.Task[None] | None = None
        self._reviving: asyncio.Task[None] | None = None
        self._recent = RecentForecasts()
        self._up = False

    @property
    def alive(self) -> bool:
        """Whether the predictor's process runs."""
        return self._up

    async def start(self) -> None:
        """Return when the predictor has run. Raises `WorkerError`."""
        self._worker.on_end = lambda: self._lost("it ended")
        await self._worker.start()
        self._up = True

    async def stop(self) -> None:
        self._up = False
        tasks = [task for task in (self._working, self._reviving) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._worker.stop()

    async def forecast(self, texts: Sequence[str]) -> list[Forecast]:
        """Return one forecast per text, within the limit. Never raises.

        The time in which the event loop is held up counts little (see `within`): it is not the predictor's.
        """
        clock = asyncio.get_running_loop().time
        began = clock()
        forecasts = await self._predicted(texts) if self._up else [Forecast(self._marginal, 0, "failed")] * len(texts)
        now = clock()
        for forecast in forecasts:
            self._recent.add(forecast.origin, now)
            self._counter.forecast(self._name, forecast.origin, now - began)
        excess = self._recent.excess(now)
        if excess is not None:
            late, number = excess["late"], excess.total()
            logger.warning(
                "%d of %d forecasts of lengths of %s were late in the last minute (%.1f%%), so these outputs count as of "
                "usual length: the predictor does not keep up",
                *(late, number, self._name, 100 * late / number),
            )
        return forecasts

    def recent(self) -> Counter[str]:
        """Return how many forecasts of the last minute were predicted, late and failed."""
        return self._recent.counts(asyncio.get_running_loop().time())

    async def _predicted(self, texts: Sequence[str]) -> list[Forecast]:
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Forecast | None]] = [loop.create_future() for _ in texts]
        self._requested.update(zip(futures, (text[-READ_CHARACTERS:] for text in texts), strict=True))
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        with suppress(TimeoutError):
            await within(self._limits.wait, asyncio.wait(futures))
        forecasts = []
        for future in futures:
            self._requested.pop(future, None)
            prediction = future.result() if future.done() else None
            forecasts.append(prediction or Forecast(self._marginal, 0, "failed" if future.done() else "late"))
            future.cancel()
        return forecasts

    async def _work(self) -> None:
        while self._requested:
            futures = list(self._requested)[:MAX_TEXTS]
            texts = [self._requested.pop(future) for future in futures]
            for future, prediction in zip(futures, await self._predict(texts), strict=True):
                if not future.done():
                    future.set_result(prediction)

    async def _predict(self, texts: Sequence[str]) -> Sequence[Forecast | None]:
        """Return a prediction for each text, or None for each if they failed: requests are served without them."""
        nothing = [None] * len(texts)
        if not self._up:
            return nothing
        try:
            predictions, _ = await within(self._limits.run, self._worker.run(SETTING, texts))
        except ModelError as error:
            logger.error("lengths of %s could not be predicted: %s", self._name, error)
            return nothing
        except (WorkerError, TimeoutError) as error:
            self._lost(str(error) or f"it was still running after {self._limits.run:g} s")
            return nothing
        except Exception as error:  # a bug, which costs predictions and no request
            logger.error("lengths of %s could not be predicted", self._name, exc_info=error)
            return nothing
        if len(predictions) != len(texts):
            logger.error("%d lengths of %s were predicted for %d prompts", len(predictions), self._name, len(texts))
            return nothing
        return predictions

    def _lost(self, reason: str) -> None:
        """Begin to restart the process, if that has not begun yet."""
        if not self._up:
            return
        self._up = False
        self._worker.kill()
        self._counter.predictor_died(self._name)
        logger.error(
            "the predictor of %s is lost (%s): it is restarted, and every output counts as of usual length meanwhile",
            *(self._name, reason),
        )
        self._reviving = asyncio.create_task(self._revive())

    async def _revive(self) -> None:
        while not self._up:
            try:
                await self._worker.restart()
                self._up = True
                logger.warning("the predictor of %s is up again", self._name)
            except WorkerError as error:
                logger.error("the predictor of %s could not be started: %s", self._name, error)
                await asyncio.sleep(RETRY_SECONDS)
