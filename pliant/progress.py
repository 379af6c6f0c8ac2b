"""Reports the progress of long work: a callback that takes (done, total) in the work's own steps."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]


def share(progress: Progress, start: int, end: int) -> Progress:
    """Return a callback for one part of longer work, which moves `progress` from `start` to `end` percent."""
    return lambda done, total: progress(start + (end - start) * done // max(total, 1), 100)


def silent(done: int, total: int) -> None:
    """Report nothing."""
    del done, total
