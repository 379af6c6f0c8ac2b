"""Streams that several systems watch: what they count, and how finely."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pliant.serving.watch.watcher import CONFIDENCE
from pliant.watch.binning import Binning, classes, linear, logarithmic
from pliant.watch.detector import Stream

CONFIDENCES = linear(0, 1)
LENGTHS = logarithmic(1, 100_000)  # tokens, words or characters: an eighth wider from bin to bin
FACTORS = logarithmic(0.1, 10)  # a duration over what the profile holds


def confidence_of(task: str) -> str:
    """Return the name of the stream of a task's calibrated confidences."""
    return f"{CONFIDENCE}{task}"


def numbers(binning: Binning, burn_in: int, burst: float = 1.0) -> Callable[[str], Stream]:
    """Return what makes a stream of numbers. `burst`: how many in a row may depend on each other."""
    return lambda name: Stream(name, binning, burn_in=burn_in, burst=burst)


def labels(names: Sequence[str], burn_in: int) -> Callable[[str], Stream]:
    """Return what makes a stream of labels; a single one, which nothing can change, stands beside `other`."""
    known = tuple(dict.fromkeys(names))[:256]
    return lambda name: Stream(name, classes(known if len(known) > 1 else (*known, "other")), burn_in=burn_in)
