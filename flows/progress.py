"""Shows how far a stage is: a bar on a terminal, a line per quarter elsewhere, and a progress artifact in Prefect's UI."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.context import FlowRunContext, TaskRunContext
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pliant.progress import Progress as Report


@dataclass(slots=True)
class _Server:
    """The artifact in Prefect's UI, updated at most once a second; absent outside a run."""

    artifact: object | None
    last: float = field(default=0.0)

    def update(self, done: int, total: int) -> None:
        due = done == total or time.monotonic() - self.last > 1.0
        if self.artifact is not None and due:
            self.last = time.monotonic()
            update_progress_artifact(self.artifact, 100.0 * done / max(total, 1))  # type: ignore[arg-type]


@contextmanager
def stage(name: str) -> Iterator[Report]:
    """Give a progress callback for one stage; its bar stays on the screen when the stage is over."""
    inside = TaskRunContext.get() or FlowRunContext.get()
    server = _Server(create_progress_artifact(0.0, description=name) if inside else None)
    terminal = _bar(name) if Console(stderr=True).is_terminal else _lines(name)
    with terminal as show:

        def report(done: int, total: int) -> None:
            show(done, total)
            server.update(done, total)

        yield report


@contextmanager
def _bar(name: str) -> Iterator[Report]:
    columns = (TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        shown = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(shown, completed=done, total=total)


@contextmanager
def _lines(name: str) -> Iterator[Report]:
    start, quarter = time.monotonic(), [0]

    def show(done: int, total: int) -> None:
        reached = 4 * done // max(total, 1)
        if reached > quarter[0]:
            quarter[0] = reached
            print(f"{name}: {25 * reached}% ({time.monotonic() - start:.0f} s)", file=sys.stderr, flush=True)  # noqa: T201

    print(f"{name}: started", file=sys.stderr, flush=True)  # noqa: T201
    yield show
