"""Times a callable on a device: warm-up, synchronisation, medians and spread. Knows no model."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from pliant.errors import InputError


def check_ascending(**settings: tuple[int, ...]) -> None:
    """Raise `InputError` for sizes to be measured that do not ascend, or are none."""
    for name, values in settings.items():
        if sorted(set(values)) != list(values) or min(values, default=0) < 1:
            raise InputError(name, values, "ascending, without repeats, at least 1 each and at least one")


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds: median and interquartile range. `memory`: peak bytes beyond what was in use before; 0 where unmeasured."""

    median: float
    spread: float
    memory: int


@dataclass(frozen=True, slots=True)
class TimerConfig:
    warmup: int = 2
    least: int = 5  # repetitions
    most: int = 30
    budget: float = 0.2  # seconds of repetitions per measurement, once `least` is reached


def measure(
    call: Callable[[], object],
    config: TimerConfig,
    device: str = "cpu",
    clock: Callable[[], float] = time.perf_counter,
    prepare: Callable[[], object] = lambda: None,
) -> Timing:
    """Time `call`, which must wait for all work that it starts on the device. `clock` is used on a CPU.

    `prepare` runs before each call, untimed; the peak of memory is of both.
    """
    if torch.device(device).type == "cuda":
        with torch.cuda.device(device):  # whose stream the events are recorded on
            return _measured(call, config, device, clock, prepare)
    return _measured(call, config, device, clock, prepare)


def _measured(
    call: Callable[[], object],
    config: TimerConfig,
    device: str,
    clock: Callable[[], float],
    prepare: Callable[[], object],
) -> Timing:
    for _ in range(config.warmup):
        prepare()
        call()
    cuda, before = torch.device(device).type == "cuda", 0
    if cuda:
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = int(torch.cuda.memory_allocated(device))
    samples: list[float] = []
    while len(samples) < config.least or (sum(samples) < config.budget and len(samples) < config.most):
        prepare()
        if cuda:
            torch.cuda.synchronize(device)
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            call()
            end.record()
            end.synchronize()
            samples.append(float(begin.elapsed_time(end)) / 1000)
        else:
            start = clock()
            call()
            samples.append(clock() - start)
    peak = torch.cuda.max_memory_allocated(device) - before if cuda else 0
    low, middle, high = np.quantile(samples, [0.25, 0.5, 0.75])
    return Timing(float(middle), float(high - low), peak)


def monotonic(seconds_LB: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return for every length and batch the least seconds of all that are at least as long and as many."""
    backwards = seconds_LB[::-1, ::-1]
    lowest = np.minimum.accumulate(np.minimum.accumulate(backwards, axis=0), axis=1)
    return lowest[::-1, ::-1]
