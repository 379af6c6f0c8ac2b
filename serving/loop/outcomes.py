"""Takes the right labels of earlier answers, and reports whether the promised accuracy holds.

With an `OutcomeWriter` answers, figures and alarms survive a restart; without one they are in memory only. What is kept by
default holds nothing that people wrote or sent: ids, versions, classes, confidences, tenants and times alone.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter as Tally
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry

from pliant.fairness import trusted_tenants
from pliant.outcomes.answered import Answered, Label, number_of
from pliant.outcomes.betting import CONFIDENCE
from pliant.outcomes.figures import Alarm, Figures, LabelResult, Report
from pliant.outcomes.files import folder_of
from pliant.outcomes.tracker import Changes, Tracker
from pliant.serving.client import ANYBODY, Client
from pliant.serving.driver import PatientClock
from pliant.serving.http.access.access import TokenBucket
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.bodies import shorten
from pliant.serving.loop.outcome_writer import OutcomeWriter, open_writer
from pliant.serving.loop.settings import OutcomeSettings
from pliant.serving.monitoring.metric_list import labelled, register
from pliant.serving.request_context import EVIDENCE

MAX_LABELS = 1_000  # in one request, and at once
RATE = 100.0  # labels a second of one tenant
MEMORY = 100_000  # answers that can still be labelled: 8 MB from the start on
DAYS = 30.0  # that an answer can be labelled, where nothing is kept on disk
DAY = 86_400.0  # seconds
RETRY = 10.0  # seconds until a label that could not be written is worth another attempt
logger = logging.getLogger("pliant.serving")


@dataclass(frozen=True, slots=True)
class Names:
    """How a system calls a candidate, and the level that answered; None: each candidate has one level, not named.

    The names stand in answers and are labels of metrics.
    """

    candidate: str
    level: str | None

    @property
    def how(self) -> tuple[str, ...]:
        """Return the names of what says how an answer came about."""
        return (self.candidate,) if self.level is None else (self.candidate, self.level)

    def how_of(self, candidate: str, level: str) -> tuple[str, ...]:
        """Return the values for `how`."""
        return (candidate,) if self.level is None else (candidate, level)


LEVELS = Names("candidate", "level")


def taken_written(names: Names, id: str, answered: Answered, taken: LabelResult, figures: Figures) -> dict[str, Any]:
    """Return the answer to a label."""
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
        **dict(zip(names.how, names.how_of(answered.candidate, answered.level), strict=True)),
        "correct": taken.correct,
        "repeated": taken.status == "repeated",
        "promise": _finite(promise),
    }


def figures_written(names: Names, figures: Figures) -> dict[str, Any]:
    """Return the figures of a candidate. Where levels are not named, those of its one level stand beside the others."""
    values = {names.candidate if name == "candidate" else name: value for name, value in asdict(figures).items()}
    if names.level is None:
        levels = values.pop("levels")
        values["confidence"] = levels[0]["confidence"] if levels else None
        values["calibration_error"] = levels[0]["error"] if levels else None
    return _finite(values)


def alarm_written(names: Names, alarm: Alarm) -> dict[str, Any]:
    """Return an alarm, with a count of its labels by tenant: false ones often come from one."""
    tally = Tally((entry.report.tenant, entry.correct) for entry in alarm.labels)
    tenants = dict.fromkeys(entry.report.tenant for entry in alarm.labels)
    return {
        "id": str(alarm.id),
        "at": alarm.at,
        **figures_written(names, alarm.figures),
        "labels_by_tenant": {name: {"correct": tally[name, True], "wrong": tally[name, False]} for name in tenants},
        "latest_labels": [
            {"id": entry.id, "label": entry.label, "correct": entry.correct, **asdict(entry.report)}
            for entry in alarm.labels
        ],
        "taken_back": asdict(alarm.taken_back) if alarm.taken_back else None,
    }


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """Replace NaN by None, since JSON has no NaN."""
    return {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in values.items()}


class Outcomes:
    """Remembers answers, takes their labels, and finds promises of accuracy that are broken."""

    def __init__(
        self,
        registry: CollectorRegistry = REGISTRY,
        memory: int = MEMORY,
        clock: Callable[[], float] = time.time,
        names: Names = LEVELS,
        days: float = DAYS,
        writer: OutcomeWriter | None = None,
        trusted: Collection[str] = (),
    ) -> None:
        """`clock` gives seconds since 1970; it may be set back.

        `trusted`: tenants whose labels teach without limit; "" for clients without a key, whose labels else teach nothing.
        """

        self._tracker, self._clock = Tracker(memory, days * DAY, recorded=writer is not None), clock
        self._names, self._writer, self._trusted = names, writer, trusted
        self._lock = threading.Lock()  # held while a label is taken, and while the writer's thread copies what changed
        self._buckets: dict[str, TokenBucket] = {}  # by tenant
        self._last, self._elapsed = clock(), 0.0  # seconds for the buckets, which never go back
        self._of = register(labelled(*names.how), registry)
        self.on_broken: Callable[[Figures], None] = lambda _figures: None
        """Called when a promise is found broken, and would be without any one tenant's labels, too."""
        if writer is not None:
            self._tracker.restore(writer.load())
            for figures in self._tracker.figures():
                self._show(figures)
            writer.start(self._drain)

    def close(self) -> None:
        """Write what is not on disk yet, and end the writer."""
        if self._writer is not None:
            self._writer.close()

    @property
    def keeps_inputs(self) -> bool:
        """Whether `keep_input` keeps anything."""
        return self._writer is not None and self._writer.inputs is not None

    def keep_input(self, id: str, task: str, form: str, content: bytes) -> None:
        """Keep what was sent for an answer, where the settings say so. See `pliant.outcomes.files.KeptInput`."""
        if self._writer is not None and self._writer.inputs is not None:
            self._writer.inputs.keep(id, task, form, content)

    def remember(
        self, id: str, kind: Answered, label: Label, confidence: float, former: tuple[float, ...] = ()
    ) -> None:
        """Keep an answer, whose tenant may report its label from now on. `kind`: what it shares with answers like it;
        `former`: see `pliant.outcomes.answered.Row`."""
        self._tracker.remember_number(id, kind, number_of(kind, label), confidence, self._clock(), former)

    def take(self, id: str, label: Label, client: Client = ANYBODY) -> dict[str, Any]:
        """Count the label of an answer that the client got; an administrator may report any.

        The same label may come again, and counts once. Raises `ApiError` for an unknown id or one of another tenant (404),
        for another label than before (409), for too many a second (429) and while none can be written (503),
        `InputError` for a label that the task does not have.
        """
        if self._writer is not None and self._writer.failing:
            raise ApiError(503, "not_kept", "labels cannot be written at present: report it again later", "id", RETRY)
        now = self._clock()
        self._check_rate(client.tenant, now)
        known = self._known(id, client, now)
        if known is None:
            since = "" if self._writer is not None else ", given since the service started"
            message = f"id is {shorten(id)}, but must be of a recent answer to you{since}"
            raise ApiError(404, "unknown_id", message, "id")
        with self._lock:
            evidence = EVIDENCE.get() if self.teaches(client) else None
            taken = self._tracker.take(known, label, Report(client.tenant, client.key, now), evidence)
            assert taken.answered is not None
            figures = self._tracker.figures_of(taken.answered)
        if taken.status == "contradicted":
            message = f"label is {shorten(label)}, but must be the one reported before: a label cannot be changed"
            raise ApiError(409, "other_label", message, "label")
        if taken.status == "counted":
            self._observe(taken.answered, taken, figures)
        return taken_written(self._names, id, taken.answered, taken, figures)

    async def written(self) -> None:
        """Return when a kill of the process loses no label, and no alarm taken back, of before this call. Raises `ApiError`
        (503) where they cannot be written now; they are kept in memory, and may be reported again."""
        if self._writer is not None and not await self._writer.written():
            raise ApiError(503, "not_kept", "labels cannot be written at present: report it again later", "id", RETRY)

    def teaches(self, client: Client) -> bool:
        """Return whether something may follow from a client's labels: it has a key, or clients without one are trusted."""
        return bool(client.key) or client.tenant in self._trusted

    def alarms(self) -> list[dict[str, Any]]:
        """Return the latest alarms with the labels that led to them, as JSON values."""
        return [alarm_written(self._names, alarm) for alarm in self._tracker.alarms()]

    def take_back(self, id: str, client: Client) -> dict[str, Any]:
        """Take back an alarm, whose candidate is tested anew, and return it. Raises `ApiError` (404) for an unknown id."""
        known = {str(alarm.id): alarm for alarm in self._tracker.alarms()}
        if id not in known:
            raise ApiError(404, "unknown_id", f"id is {shorten(id)}, but must be that of an alarm", "id")
        with self._lock:
            alarm = self._tracker.take_back(known[id].id, Report(client.tenant, client.key, self._clock()))
        assert alarm is not None
        if known[id].taken_back is None:
            figures = alarm.figures
            self._of["alarms"].labels(figures.task, "taken_back").inc()
            self._of["promise_broken"].labels(figures.task, str(figures.version), figures.candidate).set(0)
            by = f"key {client.key} of {client.tenant}" if client.key else "an administrator without a key"
            logger.warning("alarm %d is taken back by %s: %s", alarm.id, by, promise_sentence(figures))
        return alarm_written(self._names, alarm)

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the figures of every candidate with labels, as JSON values."""
        return [figures_written(self._names, figures) for figures in self._tracker.figures()]

    def _drain(self) -> Changes:
        with self._lock:
            return self._tracker.drain()

    def _known(self, id: str, client: Client, now: float) -> str | None:
        """Return the id under which an answer is remembered that the client may label: its own, or chosen by the client."""
        for candidate in (id, chosen_id(client, id)):
            answered = self._tracker.answered(candidate, now)
            if answered is not None and (answered.tenant == client.tenant or "admin" in client.roles):
                return candidate
        return None

    def _check_rate(self, tenant: str, now: float) -> None:
        self._elapsed += max(0.0, now - self._last)
        self._last = now
        seconds = self._buckets.setdefault(tenant, TokenBucket(RATE, MAX_LABELS)).take(self._elapsed)
        if seconds:
            message = f"at most {RATE:g} labels a second can be reported"
            raise ApiError(429, "rate_limited", message, retry_after=seconds)

    def _observe(self, answered: Answered, taken: LabelResult, figures: Figures) -> None:
        how = self._names.how_of(answered.candidate, answered.level)
        self._of["labels"].labels(answered.task, *how, str(taken.correct).lower()).inc()
        self._show(figures, answered.level)
        if taken.broke:
            self._of["alarms"].labels(answered.task, "raised").inc()
            logger.error(promise_sentence(figures))
        if taken.refuted:
            self.on_broken(figures)

    def _show(self, figures: Figures, level: str | None = None) -> None:
        """Set the gauges of a candidate: of one level, or of all."""
        for entry in figures.levels:
            if level in (None, entry.level):
                how = self._names.how_of(figures.candidate, entry.level)
                self._of["calibration_error"].labels(figures.task, str(figures.version), *how).set(entry.error)
        self._of["promise_broken"].labels(figures.task, str(figures.version), figures.candidate).set(figures.broken)


def open_outcomes(settings: OutcomeSettings, registry: CollectorRegistry = REGISTRY, names: Names = LEVELS) -> Outcomes:
    """Return the outcomes of a service, with those that former runs left below `settings.home`."""
    days = settings.outcomes_days or DAYS
    folder = folder_of(settings.home, settings.system)
    writer = open_writer(folder, MEMORY, days * DAY, settings.keep_inputs) if settings.outcomes_days else None
    trusted = trusted_tenants(settings.trusted_labels)
    return Outcomes(registry, clock=PatientClock(), names=names, days=days, writer=writer, trusted=trusted)


def chosen_id(client: Client, id: str) -> str:
    """Return what stands for an id that the client chose for a request: another tenant may choose the same."""
    return f"{client.tenant!r}:{id}"


def broken_event(figures: Figures) -> dict[str, Any]:
    """Return the figures of a broken promise for those who are told of it, as JSON values."""
    return {
        "reason": promise_sentence(figures),
        "stream": f"promise of {figures.candidate} for {figures.task}",
        "evidence": figures.evidence,
        "task": figures.task,
        "version": figures.version,
    }


def promise_sentence(figures: Figures) -> str:
    """Return a sentence that explains a broken promise."""
    return (
        f"the promise of {figures.candidate} for {figures.task} (version {figures.version}) is broken: of "
        f"{figures.labels} labelled answers {figures.accuracy:.1%} are correct, but {figures.promised:.1%} were promised; "
        f"by chance this happens in at most {1 - CONFIDENCE:.0%} of all services"
    )
