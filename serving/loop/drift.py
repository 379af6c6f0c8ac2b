"""Counts what a service's answers show, by stream and bin: all that drift detection costs a request."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from pliant.fairness import Groups
from pliant.serving.request_context import EVIDENCE, TO_CHALLENGER, is_copy
from pliant.watch.binning import MAX_BINS, Binning, classes, linear, logarithmic
from pliant.watch.detector import Stream

MAX_STREAMS = 64  # of one service; further ones are not watched
CONFIDENCE = "confidence of "
"""What the names of streams begin with whose numbers are calibrated probabilities of being right."""
LEAST_BURN_IN = 200  # observations


@dataclass(frozen=True, slots=True)
class Kind:
    """How the values of a stream are counted: numbers by `binning`, labels by their place among its labels.

    `burst`: how many in a row may depend on each other. `burn_in`: as a share of the service's setting.
    """

    binning: Binning
    burst: float = 1.0
    burn_in: float = 1.0

    def stream(self, name: str, burn_in: int) -> Stream:
        observations = min(burn_in, max(LEAST_BURN_IN, round(self.burn_in * burn_in)))
        return Stream(name, self.binning, burn_in=observations, burst=self.burst)


CONFIDENCES = Kind(linear(0, 1))
LENGTHS = Kind(logarithmic(1, 100_000))  # tokens, words or characters: an eighth wider from bin to bin


@lru_cache(MAX_STREAMS)
def labels(names: tuple[str, ...]) -> Kind:
    """Return the kind of a stream of labels; a single one, which nothing can change, stands beside `other`."""
    known = tuple(dict.fromkeys(names))[:MAX_BINS]
    return Kind(classes(known if len(known) > 1 else (*known, "other")))


class Reading(NamedTuple):
    """A value of a stream: a number, or the place of a label. A stream is of the kind of its first value."""

    stream: str
    value: float
    kind: Kind


def class_readings(task: str, names: Sequence[str], label: int, confidence: float) -> tuple[Reading, Reading]:
    """Return the readings of a classifier's answer: the class at place `label` of `names`, and how sure it is."""
    return (
        Reading(f"class of {task}", label, labels(tuple(names))),
        Reading(CONFIDENCE + task, confidence, CONFIDENCES),
    )


class DriftCounter:
    """Counts of the block that is under way, by group of tenants. Copies, and what a challenger answers, are not counted.

    `counting`: false where nothing is watched; then nothing is counted at all, and `should_count` says so beforehand.
    `burn_in`: observations from which a stream is learnt.
    """

    def __init__(self, burn_in: int = 5000) -> None:
        self.counting, self.burn_in = True, burn_in
        self.streams: dict[str, Stream] = {}
        self.groups = Groups()
        self._arrivals: Counter[int] = Counter()  # by group, of all that have come
        self._counts: defaultdict[int, dict[str, list[int]]] = defaultdict(dict)

    def should_count(self) -> bool:
        """Whether what is being handled is counted: where it is not, what is costly to compute need not be."""
        return self.counting and not (TO_CHALLENGER.get() or is_copy())

    def arrived(self) -> None:
        """Count a request, whoever answers it; copies are none."""
        self._arrivals[self.groups.of(EVIDENCE.get())] += 1

    def arrivals(self) -> Mapping[int, int]:
        """Return how many requests have come since the process began, by group; empty before the first."""
        return Counter(self._arrivals)

    def count(self, readings: Sequence[Reading]) -> None:
        """Count the readings of an answer to the present request."""
        if not readings or not self.should_count():
            return
        block = self._counts[self.groups.of(EVIDENCE.get())]
        for name, value, kind in readings:
            counts = block.get(name)
            if counts is None:
                if (stream := self._stream(name, kind)) is None:
                    continue
                counts = block[name] = [0] * stream.binning.bins
            place = self.streams[name].binning.bin_of(value) if kind.binning.ordered else int(value)
            if 0 <= place < len(counts):
                counts[place] += 1

    def take(self) -> Mapping[int, Mapping[str, list[int]]]:
        """Return the counts since the last call, by group, of the streams of which it saw anything; begin a new block."""
        taken, self._counts = self._counts, defaultdict(dict)
        return taken

    def forget(self) -> None:
        """Forget all streams, as after a new model."""
        self.streams.clear()
        self._counts.clear()

    def _stream(self, name: str, kind: Kind) -> Stream | None:
        """Return the stream of a name, made when it is seen for the first time; None where there are too many."""
        if name not in self.streams and len(self.streams) < MAX_STREAMS:
            self.streams[name] = kind.stream(name, self.burn_in)
        return self.streams.get(name)
