"""Predicted lengths of outputs before a time limit: by the predictor in a thread of its own, or else by what is usual.

A prediction that is late, or that fails, is replaced by the quantiles of all lengths that the predictor was trained on:
nobody waits longer for it than the limit. What gathers while the thread is busy is predicted together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

Told = tuple[tuple[float, ...], int]
Predict = Callable[[Sequence[str]], list[Told]]

logger = logging.getLogger("pliant.serving")

TOGETHER = 32  # texts that are predicted at once, at most
READ_CHARACTERS = 8192  # of a text, its last


@dataclass(frozen=True, slots=True)
class Forecast:
    """`tokens` at `forecast.LEVELS`; `bucket` 0: not predicted. `origin`: predicted, late or failed."""

    tokens: tuple[float, ...]
    bucket: int
    origin: str


class Forecaster:
    """For one event loop, between `start` and `stop`."""

    def __init__(self, load: Callable[[], Predict], marginal: tuple[float, ...], limit: float) -> None:
        """`load` gives the predictor, in the thread. `limit`: seconds from asking to a forecast."""
        self._load, self._marginal, self._limit = load, marginal, limit
        self._thread = ThreadPoolExecutor(1, "predictor")
        self._predict: Predict | None = None
        self._asked: dict[asyncio.Future[Told], str] = {}
        self._working: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises what `load` raises."""
        self._predict = await asyncio.get_running_loop().run_in_executor(self._thread, self._load)

    async def stop(self) -> None:
        if self._working is not None:
            self._working.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def forecast(self, texts: Sequence[str]) -> list[Forecast]:
        """One a text. Never raises, and never takes longer than the limit."""
        futures = [self._ask(text) for text in texts]
        await asyncio.wait(futures, timeout=self._limit)
        for future in futures:
            self._asked.pop(future, None)
        return [self._forecast(future) for future in futures]

    def _ask(self, text: str) -> asyncio.Future[Told]:
        future: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
        self._asked[future] = text[-READ_CHARACTERS:]
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        return future

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._asked:
            futures = list(self._asked)[:TOGETHER]
            texts = [self._asked.pop(future) for future in futures]
            try:
                assert self._predict is not None, "start comes first"
                told = await loop.run_in_executor(self._thread, self._predict, texts)
                for future, one in zip(futures, told, strict=True):
                    if not future.done():
                        future.set_result(one)
            except Exception as error:  # whatever it is: a request is served without a prediction
                logger.error("lengths could not be predicted", exc_info=error)
                for future in futures:
                    if not future.done():
                        future.set_exception(error)

    def _forecast(self, future: asyncio.Future[Told]) -> Forecast:
        if not future.done():
            future.cancel()
            return Forecast(self._marginal, 0, "late")
        if future.cancelled() or future.exception() is not None:
            return Forecast(self._marginal, 0, "failed")
        return Forecast(*future.result(), "predicted")
