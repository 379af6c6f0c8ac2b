"""How long work tells how far it is: called with (done, total) in the work's own steps."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]


def share(progress: Progress, start: int, end: int) -> Progress:
    """One part of a longer piece of work: it moves `progress` from `start` to `end` percent."""
    return lambda done, total: progress(start + (end - start) * done // max(total, 1), 100)


def silent(done: int, total: int) -> None:
    """For callers that do not want to know."""
    del done, total
