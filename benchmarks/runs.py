"""How calls are timed, in turns, and how independent jobs of a study run in several processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from statistics import median
from typing import Any, TypeVar

from pliant.progress import Progress, silent

Job = TypeVar("Job")
Result = TypeVar("Result")


def seconds_of(call: Callable[[], object]) -> float:
    """Return the wall seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def medians_in_turns(calls: Sequence[Callable[[], object]], rounds: int, warmup: int = 2) -> list[float]:
    """Return the median wall seconds of each call over `rounds` rounds, in each of which every call runs once.

    So whatever slows the machine for a while slows all alike. `warmup` rounds before them do not count.
    """
    seconds = [[seconds_of(call) for call in calls] for _ in range(warmup + rounds)]
    return [median(column) for column in zip(*seconds[warmup:], strict=True)]


def run_all(
    work: Callable[[Job], Result], jobs: Sequence[Job], processes: int, progress: Progress = silent
) -> list[Result]:
    """Return what `work` gives for each job, in the order of the jobs; with one process it is this one."""
    results: list[Result] = []
    with ExitStack() as stack:
        apply: Callable[..., Iterable[Any]] = map
        if processes > 1:
            apply = stack.enter_context(ProcessPoolExecutor(processes, get_context("spawn"))).map
        for result in apply(work, jobs):
            results.append(result)
            progress(len(results), len(jobs))
    return results
