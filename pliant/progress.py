"""How long work tells how far it is: called with (done, total) in the work's own steps."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]


def silent(done: int, total: int) -> None:
    """For callers that do not want to know."""
    del done, total
