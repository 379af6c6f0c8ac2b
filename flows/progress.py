"""Shows how far a stage is: a bar on a terminal, lines elsewhere, and a progress artifact in the UI of Prefect.

A bar shows the share done and the time left. Where there is no terminal (a log, a pipe, a scheduled run) a line says the
same at least every `EVERY` seconds, whether or not the work has reported since.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from pliant.progress import Progress as Report
from pliant.progress import share
from pliant.redaction import redact
from pliant.training.groups import Repeats

EVERY = 10.0  # seconds between two lines; a reader is promised one every 15
ARTIFACT_EVERY = 1.0  # seconds between two updates of Prefect's artifact

T = TypeVar("T")
Observer = Callable[[str, float], None]
_OBSERVERS: ContextVar[tuple[Observer, ...]] = ContextVar("observers of stages", default=())


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Call `observer(name, seconds)` at the end of every stage while the context lasts."""
    token = _OBSERVERS.set((*_OBSERVERS.get(), observer))
    try:
        yield
    finally:
        _OBSERVERS.reset(token)


@contextmanager
def stage(name: str) -> Iterator[Report]:
    """Give a progress callback for one stage; its bar stays on the screen when the stage is over."""
    start, artifact = time.monotonic(), _artifact(name)
    display = _bar(name) if Console(stderr=True).is_terminal else _lines(name)
    log(f"{name}: started")
    with display as show:

        def report(done: int, total: int) -> None:
            show(done, total)
            if artifact is not None:
                artifact(done, total)

        yield report
    log(f"{name}: done after {time.monotonic() - start:.1f} s")
    for observer in _OBSERVERS.get():
        observer(name, time.monotonic() - start)


def shares(progress: Report, items: Collection[T]) -> Iterator[tuple[T, Report]]:
    """Yield every item with its share of the progress, all alike."""
    for number, item in enumerate(items):
        yield item, share(progress, 100 * number // len(items), 100 * (number + 1) // len(items))


def tell(name: str, repeats: Repeats | None) -> None:
    """Say how many rows of a data set repeat, if any does."""
    if repeats is not None and repeats.rows > repeats.inputs:
        say(f"{name}: {repeats}.")


def say(sentence: str) -> None:
    """Say something to whoever runs the flow."""
    print(sentence, file=sys.stderr)  # noqa: T201
    log(sentence)


def log(sentence: str) -> None:
    """Write a sentence to the log of Prefect's run that this code is in, if it is in one."""
    if _in_run():
        from prefect import get_run_logger

        get_run_logger().info(redact(sentence))


def _in_run() -> bool:
    """Whether this is a run of Prefect, which may not even be imported elsewhere."""
    contexts: Any = sys.modules.get("prefect.context")
    return contexts is not None and bool(contexts.TaskRunContext.get() or contexts.FlowRunContext.get())


def _artifact(name: str) -> Report | None:
    """Return what updates a progress artifact in the UI of Prefect, at most once in `ARTIFACT_EVERY` seconds, for a stage
    inside of one of its runs; None elsewhere."""
    if not _in_run():
        return None
    from prefect.artifacts import create_progress_artifact, update_progress_artifact

    identity: Any = create_progress_artifact(0.0, description=name)
    last = 0.0

    def update(done: int, total: int) -> None:
        nonlocal last
        if done == total or time.monotonic() - last > ARTIFACT_EVERY:
            last = time.monotonic()
            update_progress_artifact(identity, 100.0 * done / max(total, 1))

    return update


@contextmanager
def _bar(name: str) -> Iterator[Report]:
    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)


@contextmanager
def _lines(name: str) -> Iterator[Report]:
    start, ended = time.monotonic(), threading.Event()
    done_of = 0, 0  # done, and of how much

    def say(text: str) -> None:
        print(f"{name}: {text}", file=sys.stderr, flush=True)  # noqa: T201

    def report(done: int, total: int) -> None:
        nonlocal done_of
        done_of = done, total

    def repeat() -> None:
        """Say the share done, the seconds so far and, where the share allows it, the seconds left."""
        while not ended.wait(EVERY):
            so_far, (done, total) = time.monotonic() - start, done_of
            if done <= 0 or total <= 0:
                say(f"{so_far:.0f} s so far")
            else:
                share = min(done / total, 1.0)
                say(f"{share:.0%} after {so_far:.0f} s, about {so_far * (1 - share) / share:.0f} s left")

    ticker = threading.Thread(target=repeat, name=f"progress of {name}", daemon=True)
    say("started")
    ticker.start()
    try:
        yield report
    finally:
        ended.set()
        ticker.join()
    say(f"done after {time.monotonic() - start:.0f} s")
