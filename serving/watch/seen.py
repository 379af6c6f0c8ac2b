"""Counts what a service sees, by stream and bin: all that the watch costs a request."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping

from pliant.serving.arms import evidence_tenant, goes_to_challenger, is_copy
from pliant.tenants import Groups
from pliant.watch.detector import Stream

MAX_STREAMS = 64  # of one service; further ones are not watched
Make = Callable[[str], Stream]
"""Makes the stream of a name when it is seen for the first time."""


class Seen:
    """Counts of the block that is under way, by group of tenants. Copies, and what a challenger answers, are not counted.

    `counting`: false where nothing is watched; then nothing is counted at all, and `takes` says so beforehand.
    """

    def __init__(self) -> None:
        self.counting = True
        self.streams: dict[str, Stream] = {}
        self.groups = Groups()
        self._arrivals: Counter[int] = Counter()  # by group, of all that have come
        self._counts: defaultdict[int, dict[str, list[int]]] = defaultdict(dict)

    def takes(self) -> bool:
        """Whether what is being handled is counted: where it is not, what is costly to compute need not be."""
        return self.counting and not (goes_to_challenger() or is_copy())

    def arrived(self) -> None:
        """Count a request, whoever answers it; copies are none."""
        self._arrivals[self.groups.of(evidence_tenant())] += 1

    def arrivals(self) -> Mapping[int, int]:
        """Return how many requests have come since the process began, by group; empty before the first."""
        return Counter(self._arrivals)

    def number(self, name: str, value: float, make: Make) -> None:
        """Count a number of the stream `name`."""
        counts = self._of(name, make)
        if counts is not None:
            counts[self.streams[name].binning.bin_of(value)] += 1

    def label(self, name: str, index: int, make: Make) -> None:
        """Count a label of the stream `name` by its number."""
        counts = self._of(name, make)
        if counts is not None and 0 <= index < len(counts):
            counts[index] += 1

    def take(self) -> Mapping[int, Mapping[str, list[int]]]:
        """Return the counts since the last call, by group, of the streams of which it saw anything; begin a new block."""
        taken, self._counts = self._counts, defaultdict(dict)
        return taken

    def forget(self) -> None:
        """Forget all streams, as after a new model."""
        self.streams.clear()
        self._counts.clear()

    def _of(self, name: str, make: Make) -> list[int] | None:
        """Return the counts of a stream for the present request's group; None for what is not watched."""
        if not self.takes():
            return None
        group = self._counts[self.groups.of(evidence_tenant())]
        counts = group.get(name)
        if counts is None:
            stream = self.streams.get(name)
            if stream is None and len(self.streams) < MAX_STREAMS:
                stream = self.streams[name] = make(name)
            if stream is not None:
                counts = group[name] = [0] * stream.binning.bins
        return counts
