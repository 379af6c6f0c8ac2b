"""Forecasts the lengths of outputs within a time limit, with a predictor in a thread of its own.

If the prediction is late or fails, the forecast is that of all lengths that the predictor was trained on. Texts that arrive
while the thread is busy are predicted together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

Prediction = tuple[tuple[float, ...], int]
"""Quantiles in tokens, and the upper bound of the predicted class of lengths in tokens."""
Predict = Callable[[Sequence[str]], list[Prediction]]

logger = logging.getLogger("pliant.serving")

MAX_TEXTS = 32  # texts at most in one prediction
READ_CHARACTERS = 8192  # of a text, its last, that are read


@dataclass(frozen=True, slots=True)
class Forecast:
    """Quantiles of an output's length in tokens, at `forecast.QUANTILES` of pliant/packing/scheduling.

    `bucket`: upper bound of the predicted class, in tokens; 0: not predicted. `origin`: predicted, late or failed.
    """

    tokens: tuple[float, ...]
    bucket: int
    origin: str


class Forecaster:
    """Forecasts for one event loop, between `start` and `stop`."""

    def __init__(self, load: Callable[[], Predict], marginal: tuple[float, ...], limit: float) -> None:
        """`load` returns the predictor, in the thread. `marginal`: quantiles of all lengths. `limit`: seconds."""
        self._load, self._marginal, self._limit = load, marginal, limit
        self._thread = ThreadPoolExecutor(1, "predictor")
        self._predict: Predict | None = None
        self._requested: dict[asyncio.Future[Prediction], str] = {}
        self._working: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load the predictor. Raises what `load` raises."""
        self._predict = await asyncio.get_running_loop().run_in_executor(self._thread, self._load)

    async def stop(self) -> None:
        if self._working is not None:
            self._working.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def forecast(self, texts: Sequence[str]) -> list[Forecast]:
        """Return one forecast per text, within the limit. Never raises."""
        futures = [self._request(text) for text in texts]
        await asyncio.wait(futures, timeout=self._limit)
        for future in futures:
            self._requested.pop(future, None)
        return [self._forecast(future) for future in futures]

    def _request(self, text: str) -> asyncio.Future[Prediction]:
        future: asyncio.Future[Prediction] = asyncio.get_running_loop().create_future()
        self._requested[future] = text[-READ_CHARACTERS:]
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        return future

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._requested:
            futures = list(self._requested)[:MAX_TEXTS]
            texts = [self._requested.pop(future) for future in futures]
            try:
                assert self._predict is not None, "start comes first"
                predictions = await loop.run_in_executor(self._thread, self._predict, texts)
                for future, prediction in zip(futures, predictions, strict=True):
                    if not future.done():
                        future.set_result(prediction)
            except Exception as error:  # whatever it is, requests are served without a prediction
                logger.error("lengths could not be predicted", exc_info=error)
                for future in futures:
                    if not future.done():
                        future.set_exception(error)

    def _forecast(self, future: asyncio.Future[Prediction]) -> Forecast:
        if not future.done():
            future.cancel()
            return Forecast(self._marginal, 0, "late")
        if future.cancelled() or future.exception() is not None:
            return Forecast(self._marginal, 0, "failed")
        return Forecast(*future.result(), "predicted")
