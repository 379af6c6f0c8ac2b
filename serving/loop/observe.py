"""One `Observation` an answer: what metrics, drift detection, trials and the labels that come later know of it.

An endpoint makes it once for each text, picture or output that it answers, and gives it to its `Observer`. A trial compares
those of a whole request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from pliant.outcomes.answered import Answered
from pliant.serving.loop.drift import DriftCounter, Reading
from pliant.serving.loop.outcomes import Outcomes
from pliant.serving.request_context import is_copy

A = TypeVar("A")
SAME = 0.98  # cosine of two embeddings that say the same
MAX_KINDS = 4096  # of answers, whose shared part is kept at hand


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
    label: Any = None
    confidence: float | None = None
    late: bool | None = None  # None: it had no deadline, or its latency decides
    models: Collection[tuple[str, int]] = ()  # with versions: those whose confidence `version` calibrates
    readings: Sequence[Reading] = ()  # what drift detection counts
    id: str = ""  # under which its label may be reported; empty: it may not be
    kind: Answered | None = None  # what it shares with answers like it, for the label
    former: tuple[float, ...] = ()  # see `pliant.outcomes.answered.Row`


@dataclass(frozen=True, slots=True)
class Served(Generic[A]):
    """The answer to a whole request, and what was observed of each part: None for a text without an answer.

    The observations of an answer that goes on after it has begun are complete at its end.
    """

    answer: A
    observations: Sequence[Observation | None]

    @property
    def confidence(self) -> float | None:
        """Return the mean confidence of its parts; None where it is not known."""
        known = [each.confidence for each in self.observations if each is not None and each.confidence is not None]
        return sum(known) / len(known) if known else None

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


def comparable(champion: Served[Any], challenger: Served[Any]) -> bool:
    """Return whether the confidences of two answers were measured alike: no model is one that was calibrated anew.

    Its confidence then says how well it is calibrated, and not how often it is right: a challenger whose only merit is an
    honest confidence would be taken back for it. Labels are not concerned.
    """
    pairs = zip(champion.observations, challenger.observations, strict=True)
    return not any(
        first is not None
        and second is not None
        and first.version != second.version
        and not set(first.models).isdisjoint(second.models)
        for first, second in pairs
    )


def _same(first: Any, second: Any) -> bool | None:
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return None if first.shape != second.shape else _cosine(first, second) >= SAME
    if type(first) is not type(second) or first is None or isinstance(first, float):
        return None
    return bool(first == second)


def _cosine(first: NDArray[Any], second: NDArray[Any]) -> float:
    return float(np.dot(first.ravel(), second.ravel()) / (np.linalg.norm(first) * np.linalg.norm(second) + 1e-12))


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
            self._outcomes.remember(observation.id, kind, observation.label, confidence, observation.former)
            if content is not None and self._outcomes.keeps_inputs:
                self._outcomes.keep_input(observation.id, observation.task, *content())
        return observation
