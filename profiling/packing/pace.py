"""Measures how many prompts a second a length predictor forecasts on its device, in one thread, as it is served."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pliant.device import threads
from pliant.errors import InputError
from pliant.packing.artifact import Predictor
from pliant.packing.engine.model import load

TOGETHER = 32  # prompts in one prediction of the service, at most
WARMUP = 2  # predictions that are not measured
SECONDS = 0.3  # for which each is measured


@dataclass(frozen=True, slots=True)
class PredictorPace:
    """`alone`: seconds until one prompt is forecast. `prompts_per_second`: where as many as may be wait for it."""

    alone: float
    prompts_per_second: float


def measure(predictor: Predictor, prompts: Sequence[str], device: str, seconds: float = SECONDS) -> PredictorPace:
    """Measure on these prompts, over and over. Raises `InputError` without one."""
    if not prompts:
        raise InputError("prompts", 0, "at least one")
    model, rows = load(predictor, device), itertools.cycle(prompts)

    def usual_seconds(count: int) -> float:
        """Return the median seconds of a prediction of so many prompts."""
        taken: list[float] = []
        for _ in range(WARMUP):
            model.predict(list(itertools.islice(rows, count)))
        began = time.perf_counter()
        while not taken or time.perf_counter() - began < seconds:
            texts, started = list(itertools.islice(rows, count)), time.perf_counter()
            model.predict(texts)
            taken.append(time.perf_counter() - started)
        return float(np.median(taken))

    with threads(1):
        return PredictorPace(usual_seconds(1), TOGETHER / usual_seconds(TOGETHER))
