"""Takes the right labels of earlier answers, and reports whether the promised accuracy holds.

Everything is in memory only: after a restart, earlier answers can no longer be labelled, and the figures start anew.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

from pliant.cascade.outcomes import CONFIDENCE, Answered, Figures, Label, LabelResult, Tracker
from pliant.errors import InputError, PliantError
from serving.http.api_errors import ApiError, api_error_of, error_content
from serving.http.json_body import SHOWN, check_names, number, shorten, text

FIELDS = ("id", "label")
MEMORY = 100_000  # answers that can still be labelled, about 40 MB
MAX_LABELS = 1_000  # labels in one request

logger = logging.getLogger("pliant.serving")


class Outcomes:
    """Remembers answers, takes their labels, and finds promises of accuracy that are broken."""

    def __init__(self, registry: CollectorRegistry = REGISTRY, memory: int = MEMORY) -> None:
        def gauge(name: str, meaning: str, *labels: str) -> Gauge:
            return Gauge(f"pliant_{name}", meaning, labels, registry=registry, multiprocess_mode="livemax")

        self._tracker = Tracker(memory)
        by_level, by_candidate = ("task", "candidate", "level"), ("task", "version", "candidate")
        # The name pliant_outcomes is taken: it counts how requests ended.
        meaning = "Labels that were reported, by whether the answer was correct"
        self._labels = Counter("pliant_labels", meaning, (*by_level, "correct"), registry=registry)
        meaning = "Expected calibration error of labelled answers, in 15 bins"
        self._error = gauge("calibration_error", meaning, *by_candidate, "level")
        self._broken = gauge("promise_broken", "1 if the accuracy is below the promised one, else 0", *by_candidate)

    def remember(self, id: str, answered: Answered) -> None:
        self._tracker.remember(id, answered)

    def take(self, id: str, label: Label) -> dict[str, Any]:
        """Count the label of an answer.

        The same label may come again, and counts once. Raises `ApiError` for an unknown id (404) and for another label
        than before (409), `InputError` for a label that the task does not have.
        """
        taken = self._tracker.take(id, label)
        if taken.answered is None:
            message = f"id is {shorten(id)}, but must be of a recent answer, given since the service started"
            raise ApiError(404, "unknown_id", message, "id")
        if taken.status == "contradicted":
            message = f"label is {shorten(label)}, but must be the one reported before: a label cannot be changed"
            raise ApiError(409, "other_label", message, "label")
        figures = self._tracker.figures_of(taken.answered)
        if taken.status == "counted":
            self._observe(taken.answered, taken, figures)
        return _taken(id, taken.answered, taken, figures)

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the figures of every candidate with labels, as JSON values."""
        return [_finite(asdict(figures)) for figures in self._tracker.figures()]

    def _observe(self, answered: Answered, taken: LabelResult, figures: Figures) -> None:
        self._labels.labels(answered.task, answered.candidate, answered.level, str(taken.correct).lower()).inc()
        names = (answered.task, str(answered.version), answered.candidate)
        level = next(level for level in figures.levels if level.level == answered.level)
        self._error.labels(*names, answered.level).set(level.error)
        self._broken.labels(*names).set(figures.broken)
        if taken.broke:
            logger.error(promise_sentence(figures))


def promise_sentence(figures: Figures) -> str:
    """Return a sentence that explains a broken promise."""
    return (
        f"the promise of {figures.candidate} for {figures.task} (version {figures.version}) is broken: of "
        f"{figures.labels} labelled answers {figures.accuracy:.1%} are correct, but {figures.promised:.1%} were promised; "
        f"by chance this happens in at most {1 - CONFIDENCE:.0%} of all services"
    )


def read_outcome(value: object) -> tuple[str, Label]:
    """Return the id and the label in a report. Raises `InputError`."""
    if not isinstance(value, dict):
        raise InputError("outcome", shorten(value), "an object with id and label")
    check_names(value, FIELDS, FIELDS)
    label = value["label"]
    return text(value, "id"), label if isinstance(label, str) else number("label", label)


def take_all(outcomes: list[Any], take: Callable[[str, Label], dict[str, Any]]) -> tuple[int, dict[str, Any]]:
    """Return status and answer for a list of labels, each of which succeeds or fails by itself.

    Raises `InputError` for an empty list and for one of more than `MAX_LABELS`.
    """
    if not 0 < len(outcomes) <= MAX_LABELS:
        raise InputError("outcomes", f"a list of {len(outcomes)}", f"a list of 1 to {MAX_LABELS}")
    results, api_errors = [], []
    for value in outcomes:
        try:
            results.append(take(*read_outcome(value)))
        except (ApiError, PliantError) as error:
            api_errors.append(api_error_of(error))
            results.append({"id": _id(value), **error_content(api_errors[-1])})
    status = api_errors[0].status if len(api_errors) == len(outcomes) else 200
    return status, {"taken": len(outcomes) - len(api_errors), "refused": len(api_errors), "outcomes": results}


def _id(value: object) -> str | None:
    """Return the id in an invalid report, if it has one."""
    id = value.get("id") if isinstance(value, dict) else None
    return id[:SHOWN] if isinstance(id, str) else None


def _taken(id: str, answered: Answered, taken: LabelResult, figures: Figures) -> dict[str, Any]:
    promise = {
        "promised": figures.promised,
        "accuracy": figures.accuracy,
        "labels": figures.labels,
        "evidence": figures.evidence,
        "broken": figures.broken,
    }
    return {
        "id": id,
        "task": answered.task,
        "version": answered.version,
        "candidate": answered.candidate,
        "level": answered.level,
        "correct": taken.correct,
        "repeated": taken.status == "repeated",
        "promise": _finite(promise),
    }


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """Replace NaN by None, since JSON has no NaN."""
    return {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in values.items()}
