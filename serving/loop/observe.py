"""What is known of an answer: one `Observation`, for metrics, drift detection, trials and the labels that come later.

An endpoint makes it once for each text, picture or output that it answers, and gives it to its `Observer`. A trial compares
those of a whole request. `DriftCounter` counts what they show by stream and bin: all that drift detection costs a request.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from pliant.fairness import Groups
from pliant.outcomes.tracker import Answered
from pliant.serving.request_context import EVIDENCE, TO_CHALLENGER, is_copy
from pliant.watch.binning import MAX_BINS, Binning, classes, linear, logarithmic
from pliant.watch.detector import Stream

if TYPE_CHECKING:
    from pliant.serving.loop.outcomes import Outcomes

A = TypeVar("A")
SAME = 0.98  # cosine of two embeddings that say the same
MAX_KINDS = 4096  # of answers, whose shared part is kept at hand
MAX_STREAMS = 64  # of one service; further ones are not watched
CONFIDENCE = "confidence of "
"""What the names of streams begin with whose numbers are calibrated probabilities of being right."""
LEAST_BURN_IN = 200  # observations


@dataclass(frozen=True, slots=True)
class Kind:
    """How the values of a stream are counted: numbers by `binning`, labels by their place among its labels.

    `burn_in`: as a share of the service's setting.
    """

    binning: Binning
    burn_in: float = 1.0


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
        self._counts: defaultdict[int, dict[str, list[int]]] = defaultdict(dict)

    def should_count(self) -> bool:
        """Whether what is being handled is counted: where it is not, what is costly to compute need not be."""
        return self.counting and not (TO_CHALLENGER.get() or is_copy())

    def count(self, readings: Sequence[Reading]) -> None:
        """Count the readings of an answer to the present request."""
        if not readings or not self.should_count():
            return
        block = self._counts[self.groups.of(EVIDENCE.get())]
        for name, value, kind in readings:
            stream = self.streams.get(name)
            if stream is None:
                if len(self.streams) >= MAX_STREAMS:
                    continue
                burn_in = min(self.burn_in, max(LEAST_BURN_IN, round(kind.burn_in * self.burn_in)))
                stream = self.streams[name] = Stream(name, kind.binning, burn_in=burn_in)
            counts = block.get(name)
            if counts is None:
                counts = block[name] = [0] * (len(stream.binning.labels) or len(stream.binning.edges) + 1)
            place = bisect_right(stream.binning.edges, value) if kind.binning.edges else int(value)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is known of an answer when it is given.

    `label`: what it says: a class, the number of a regression, an embedding, or tokens; None where that was drawn at random.
    `confidence`: the probability that it is right, as far as it is known without its label; of packing, how near the
    forecast was to the length.
    """

    task: str
    version: str | int  # of what is served for the task
    outcome: str  # label of pliant_outcomes
    origin: Mapping[str, object]  # labels of pliant_answers beside the task: versions, and the operating point
    measured: Mapping[str, float]  # values of histograms, by their names without pliant_
    utility: float = 1.0  # of the request, if it is answered in time
    label: Any = None
    confidence: float | None = None
    late: bool | None = None  # None: it had no deadline, or its latency decides
    readings: Sequence[Reading] = ()  # what drift detection counts
    id: str = ""  # under which its label may be reported; empty: it may not be
    kind: Answered | None = None  # what it shares with answers like it, for the label
    former: tuple[float, ...] = ()  # see `pliant.outcomes.tracker.Row`


@dataclass(frozen=True, slots=True)
class Served(Generic[A]):
    """The answer to a whole request, and what was observed of each part: None for a text without an answer.

    The observations of an answer that goes on after it has begun are complete at its end.
    """

    answer: A
    observations: Sequence[Observation | None]

    @property
    def late(self) -> bool | None:
        """Return whether any part missed its deadline; None where there was none."""
        known = [each.late for each in self.observations if each is not None and each.late is not None]
        return any(known) if known else None


def agree(champion: Served[Any], challenger: Served[Any]) -> bool | None:
    """Return whether two answers to a request say the same; None: it cannot be said."""
    pairs = zip(champion.observations, challenger.observations, strict=True)
    said = [None if first is None or second is None else _same(first.label, second.label) for first, second in pairs]
    return None if not said or None in said else all(said)


def _same(first: Any, second: Any) -> bool | None:
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        norms = np.linalg.norm(first) * np.linalg.norm(second) + 1e-12
        return None if first.shape != second.shape else bool(np.dot(first.ravel(), second.ravel()) / norms >= SAME)
    if type(first) is not type(second) or first is None or isinstance(first, float):
        return None
    return bool(first == second)


class AnswerMetrics(Protocol):
    """Counts answers for Prometheus."""

    def answered(self, observation: Observation) -> None: ...


class Observer:
    """Passes each observation of a service on. Of a copy, and of a challenger's answer, each takes what it counts."""

    def __init__(self, metrics: AnswerMetrics, drift: DriftCounter, outcomes: Outcomes | None = None) -> None:
        self._metrics, self._drift, self._outcomes = metrics, drift, outcomes
        self._kinds: dict[Hashable, Answered] = {}

    def kind(self, key: Hashable, make: Callable[[], Answered]) -> Answered:
        """Return what the answers with this key share: looked up, not built, which costs 14 microseconds a request instead
        of 53."""
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= MAX_KINDS:
                self._kinds.clear()
            kind = self._kinds[key] = make()
        return kind

    def observe(self, observation: Observation, content: Callable[[], tuple[str, bytes]] | None = None) -> Observation:
        """Count an answer, remember it for its label, and return what was observed.

        `content`: gives form and bytes of what was sent, for where the settings say that it is kept.
        """
        self._drift.count(observation.readings)
        if is_copy():
            return observation
        self._metrics.answered(observation)
        kind, confidence = observation.kind, observation.confidence
        if self._outcomes is not None and observation.id and kind is not None and confidence is not None:
            outcomes, id = self._outcomes, observation.id
            outcomes.tracker.remember(id, kind, observation.label, confidence, outcomes.clock(), observation.former)
            if content is not None and outcomes.inputs is not None:
                outcomes.inputs.keep(id, observation.task, *content())
        return observation
