"""Independent jobs of a study, in several processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from typing import Any, TypeVar

from pliant.progress import Progress, silent

Job = TypeVar("Job")
Result = TypeVar("Result")


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
