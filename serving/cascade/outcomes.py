"""Takes the right labels of earlier answers, and reports whether the promised accuracy holds.

Everything is in memory only: after a restart, earlier answers can no longer be labelled, and the figures start anew.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter as Tally
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

from pliant.cascade.answered import Answered, Label
from pliant.cascade.outcomes import CONFIDENCE, Alarm, Figures, LabelResult, Report, Tracker
from pliant.errors import InputError, PliantError
from serving.client import ANYBODY, Client
from serving.http.access.limits import TokenBucket
from serving.http.api_errors import ApiError, api_error_of, error_content
from serving.http.json_body import SHOWN, check_names, number, shorten, text

FIELDS = ("id", "label")
MEMORY = 100_000  # answers that can still be labelled: 7 MB from the start on
MEMORY_SECONDS = 30 * 86_400.0  # that an answer can be labelled
MAX_LABELS = 1_000  # labels in one request
RATE = 100.0  # labels a second of one tenant; MAX_LABELS of them at once

logger = logging.getLogger("pliant.serving")


class Outcomes:
    """Remembers answers, takes their labels, and finds promises of accuracy that are broken."""

    def __init__(
        self,
        registry: CollectorRegistry = REGISTRY,
        memory: int = MEMORY,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock` gives seconds since 1970."""

        def gauge(name: str, meaning: str, *labels: str) -> Gauge:
            return Gauge(f"pliant_{name}", meaning, labels, registry=registry, multiprocess_mode="livemax")

        self._tracker, self._clock = Tracker(memory, MEMORY_SECONDS), clock
        self._buckets: dict[str, TokenBucket] = {}  # by tenant
        by_level, by_candidate = ("task", "candidate", "level"), ("task", "version", "candidate")
        # The name pliant_outcomes is taken: it counts how requests ended.
        meaning = "Labels that were reported, by whether the answer was correct"
        self._labels = Counter("pliant_labels", meaning, (*by_level, "correct"), registry=registry)
        meaning = "Expected calibration error of labelled answers, in 15 bins"
        self._error = gauge("calibration_error", meaning, *by_candidate, "level")
        self._broken = gauge("promise_broken", "1 if the accuracy is below the promised one, else 0", *by_candidate)
        meaning = "Alarms over broken promises: raised or taken_back"
        self._alarms = Counter("pliant_alarms", meaning, ("task", "event"), registry=registry)

    def remember(self, id: str, answered: Answered) -> None:
        """Keep an answer, whose tenant may report its label from now on."""
        self._tracker.remember(id, answered, self._clock())

    def take(self, id: str, label: Label, client: Client = ANYBODY) -> dict[str, Any]:
        """Count the label of an answer that the client got; an administrator may report any.

        The same label may come again, and counts once. Raises `ApiError` for an unknown id or one of another tenant (404),
        for another label than before (409) and for too many a second (429), `InputError` for a label that the task does
        not have.
        """
        now = self._clock()
        self._check_rate(client.tenant, now)
        answered = self._tracker.answered(id, now)
        if answered is None or (answered.tenant != client.tenant and "admin" not in client.roles):
            message = f"id is {shorten(id)}, but must be of a recent answer to you, given since the service started"
            raise ApiError(404, "unknown_id", message, "id")
        taken = self._tracker.take(id, label, Report(client.tenant, client.key, now))
        assert taken.answered is not None
        if taken.status == "contradicted":
            message = f"label is {shorten(label)}, but must be the one reported before: a label cannot be changed"
            raise ApiError(409, "other_label", message, "label")
        figures = self._tracker.figures_of(taken.answered)
        if taken.status == "counted":
            self._observe(taken.answered, taken, figures)
        return _taken(id, taken.answered, taken, figures)

    def alarms(self) -> list[dict[str, Any]]:
        """Return the latest alarms with the labels that led to them, as JSON values."""
        return [_alarm(alarm) for alarm in self._tracker.alarms()]

    def take_back(self, id: str, client: Client) -> dict[str, Any]:
        """Take back an alarm, whose candidate is tested anew, and return it. Raises `ApiError` (404) for an unknown id."""
        known = {str(alarm.id): alarm for alarm in self._tracker.alarms()}
        if id not in known:
            raise ApiError(404, "unknown_id", f"id is {shorten(id)}, but must be that of an alarm", "id")
        alarm = self._tracker.take_back(known[id].id, Report(client.tenant, client.key, self._clock()))
        assert alarm is not None
        if known[id].taken_back is None:
            figures = alarm.figures
            self._alarms.labels(figures.task, "taken_back").inc()
            self._broken.labels(figures.task, str(figures.version), figures.candidate).set(0)
            by = f"key {client.key} of {client.tenant}" if client.key else "an administrator without a key"
            logger.warning("alarm %d is taken back by %s: %s", alarm.id, by, promise_sentence(figures))
        return _alarm(alarm)

    def _check_rate(self, tenant: str, now: float) -> None:
        seconds = self._buckets.setdefault(tenant, TokenBucket(RATE, MAX_LABELS)).take(now)
        if seconds:
            message = f"at most {RATE:g} labels a second can be reported"
            raise ApiError(429, "rate_limited", message, retry_after=seconds)

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
            self._alarms.labels(answered.task, "raised").inc()
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


def _alarm(alarm: Alarm) -> dict[str, Any]:
    """Return an alarm as JSON values, with a count of its labels by tenant: false ones often come from one."""
    tenants = Tally((entry.report.tenant, entry.correct) for entry in alarm.labels)
    names = dict.fromkeys(entry.report.tenant for entry in alarm.labels)
    return {
        "id": str(alarm.id),
        "at": alarm.at,
        **_finite(asdict(alarm.figures)),
        "labels_by_tenant": {name: {"correct": tenants[name, True], "wrong": tenants[name, False]} for name in names},
        "latest_labels": [
            {"id": entry.id, "label": entry.label, "correct": entry.correct, **asdict(entry.report)}
            for entry in alarm.labels
        ],
        "taken_back": asdict(alarm.taken_back) if alarm.taken_back else None,
    }


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
