"""Curves of training: loops note what they see by step, and whoever keeps the result keeps these, too. Knows no system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor

POINTS = 100
"""Of a curve, about."""

Curve = list[tuple[int, float]]
_NOTED: ContextVar[dict[str, Curve] | None] = ContextVar("curves of the training under way", default=None)


@contextmanager
def noted() -> Iterator[Mapping[str, Curve]]:
    """Give the curves that are noted while the context lasts: name -> (step, value)."""
    curves: dict[str, Curve] = {}
    token = _NOTED.set(curves)
    try:
        yield curves
    finally:
        _NOTED.reset(token)


def note(name: str, step: int, steps: int, value: float | Tensor) -> None:
    """Note a value at one of so many steps, counted from 0; of many steps only about `POINTS`, as a GPU waits for each."""
    curves = _NOTED.get()
    if curves is not None and (step % max(1, steps // POINTS) == 0 or step == steps - 1):
        curves.setdefault(name, []).append((step, float(value)))
