"""Takes the right labels of earlier answers, and reports whether the promised accuracy holds.

With an `OutcomeWriter` answers, figures and alarms survive a restart; without one they are in memory only. What is kept by
default holds nothing that people wrote or sent: ids, versions, classes, confidences, tenants and times alone.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sqlite3
import threading
import time
from collections import Counter as Tally
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry

from pliant.fairness import trusted_tenants
from pliant.outcomes.echoes import Echoes
from pliant.outcomes.files import folder_of
from pliant.outcomes.labels import Label
from pliant.outcomes.record import CONFIDENCE, FLOOR, Figures
from pliant.outcomes.tracker import DAY, Alarm, Changes, Report, Tracker, digest_of
from pliant.serving.client import ANYBODY, Client
from pliant.serving.driver import PatientClock
from pliant.serving.http.access.access import TokenBucket
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.bodies import shorten
from pliant.serving.loop.outcome_store import OutcomeWriter, open_writer
from pliant.serving.monitoring.metric_list import labelled, register
from pliant.serving.request_context import EVIDENCE
from pliant.serving.settings import OutcomeSettings

MAX_LABELS = 1_000  # in one request, and at once
RATE = 100.0  # labels a second of one tenant
MEMORY = 100_000  # answers that can still be labelled without the disk: 8 MB from the start on
WANTED = 200.0  # answers a day of each task and tenant that are drawn to be labelled
DAYS = 30.0  # that an answer can be labelled, where nothing is kept on disk
RETRY = 10.0  # seconds until a label that could not be written is worth another attempt
logger = logging.getLogger("pliant.serving")


@dataclass(frozen=True, slots=True)
class Names:
    """How a system calls a candidate, and the level that answered; None: each candidate has one level, not named.

    The names stand in answers and are labels of metrics.
    """

    candidate: str
    level: str | None

    def how(self, candidate: str, level: str) -> dict[str, str]:
        """Return what says how an answer came about, by its names."""
        return {self.candidate: candidate} | ({} if self.level is None else {self.level: level})

    def figures(self, figures: Figures) -> dict[str, Any]:
        """Return figures as JSON values. Where levels are not named, those of the one level stand beside the others."""
        values = {self.candidate if name == "candidate" else name: value for name, value in asdict(figures).items()}
        if self.level is None:
            levels = values.pop("levels")
            values["confidence"] = levels[0]["confidence"] if levels else None
            values["calibration_error"] = levels[0]["error"] if levels else None
        return _finite(values)

    def alarm(self, alarm: Alarm) -> dict[str, Any]:
        """Return an alarm as JSON values, with a count of its labels by tenant: false ones often come from one."""
        tally = Tally((entry.tenant, entry.correct) for entry in alarm.labels)
        tenants = dict.fromkeys(entry.tenant for entry in alarm.labels)
        return {
            "id": str(alarm.id),
            "at": alarm.at,
            **self.figures(alarm.figures),
            "labels_by_tenant": {name: {"correct": tally[name, True], "wrong": tally[name, False]} for name in tenants},
            "latest_labels": [entry._asdict() for entry in alarm.labels],
            "taken_back": asdict(alarm.taken_back) if alarm.taken_back else None,
        }


LEVELS = Names("candidate", "level")


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """Replace NaN by None, since JSON has no NaN."""
    return {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in values.items()}


class Outcomes:
    """Remembers answers, takes their labels, and finds promises of accuracy that are broken.

    An `Observer` puts answers into `tracker`, whose times are of `clock`, and what was sent into `inputs`, where the
    settings say that it is kept.
    """

    def __init__(
        self,
        registry: CollectorRegistry = REGISTRY,
        memory: int = MEMORY,
        clock: Callable[[], float] = time.time,
        names: Names = LEVELS,
        days: float = DAYS,
        writer: OutcomeWriter | None = None,
        trusted: Collection[str] = (),
        wanted: float = WANTED,
        floor: float = FLOOR,
    ) -> None:
        """`clock` gives seconds since 1970; it may be set back. `wanted`: answers a day of each task and tenant; `floor`: by
        which a slice may be below the promise.

        `trusted`: tenants whose labels teach without limit; "" for clients without a key, whose labels else teach nothing.
        """
        self.tracker, self.clock = Tracker(memory, days * DAY, writer is not None, wanted, floor), clock
        self.inputs = None if writer is None else writer.inputs
        self._names, self._writer, self._trusted = names, writer, trusted
        self.echoes = Echoes()
        """Tenants that report the service's own answers: nothing follows from their labels."""
        self._lock = threading.Lock()  # held while a label is taken, and while the writer's thread copies what changed
        self._buckets: dict[str, TokenBucket] = {}  # by tenant
        self._last, self._elapsed = clock(), 0.0  # seconds for the buckets, which never go back
        self._of = register(labelled(*names.how("", "")), registry)
        self.on_broken: Callable[[dict[str, Any]], None] = lambda _event: None
        """Called when a promise is found broken, and would be without any one tenant's labels, too. It takes an event."""
        if writer is not None:
            self.tracker.restore(*writer.store.load())
            for figures in self.tracker.figures():
                self._show(figures)
            writer.start(self._drain)

    def close(self) -> None:
        """Write what is not on disk yet, and end the writer."""
        if self._writer is not None:
            self._writer.close()

    async def recall(self, ids: Collection[str], client: Client = ANYBODY) -> None:
        """Bring answers back that are on disk alone, for their labels. Raises `ApiError` (503) where it cannot be read."""
        if self._writer is None:
            return
        known = {*ids, *(chosen_id(client, id) for id in ids)}
        missing = [digest_of(id) for id in known if self.tracker.remembered(id, self.clock()) is None]
        try:
            self.tracker.recall(await asyncio.to_thread(self._writer.store.find, missing) if missing else ())
        except sqlite3.Error as error:
            logger.error("outcomes cannot be read: %s", error)
            raise _not_kept() from None

    def wanted(self, most: int, client: Client = ANYBODY) -> list[dict[str, Any]]:
        """Return at most so many answers whose labels are wanted, as JSON values: to a client its own."""
        own, admin = chosen_id(client, ""), "admin" in client.roles
        with self._lock:
            rows = self.tracker.wanted(most, self.clock(), lambda tenant: admin or tenant == client.tenant)
        return [
            {
                "id": row.id.removeprefix(own),
                "task": row.common.task,
                "version": row.common.version,
                **self._names.how(row.common.candidate, row.common.level),
                "label": row.answered.label,
                "confidence": row.confidence,
                "at": row.at,
                "inclusion": row.inclusion,
            }
            for row in rows
        ]

    def take(self, id: str, label: Label, client: Client = ANYBODY, declared: str = "") -> dict[str, Any]:
        """Take the label of an answer that the client got; an administrator may report any. `declared`: its slice.

        The same label may come again, and counts once: see `Tracker.take`. Raises `ApiError` for an unknown id or one of
        another tenant (404), for another label than before (409), for too many a second (429) and while none can be written
        (503), `InputError` for a label that the task does not have, and for a slice too many.
        """
        if self._writer is not None and self._writer.failing:
            raise _not_kept()
        now = self.clock()
        self._elapsed += max(0.0, now - self._last)
        self._last = now
        seconds = self._buckets.setdefault(client.tenant, TokenBucket(RATE, MAX_LABELS)).take(self._elapsed)
        if seconds:
            message = f"at most {RATE:g} labels a second can be reported"
            raise ApiError(429, "rate_limited", message, retry_after=seconds)
        for known in (id, chosen_id(client, id)):
            row = self.tracker.remembered(known, now)
            if row is not None and (row.common.tenant == client.tenant or "admin" in client.roles):
                break
        else:
            since = "" if self._writer is not None else ", given since the service started"
            message = f"id is {shorten(id)}, but must be of a recent answer to you{since}"
            raise ApiError(404, "unknown_id", message, "id")
        with self._lock:
            evidence = EVIDENCE.get() if self.teaches(client) else None
            taken = self.tracker.take(known, label, Report(client.tenant, client.key, now), evidence, declared)
            figures = self.tracker.figures_of(row.common.key)
        if taken.status == "contradicted":
            message = f"label is {shorten(label)}, but must be the one reported before: a label cannot be changed"
            raise ApiError(409, "other_label", message, "label")
        how = self._names.how(row.common.candidate, row.common.level)
        if taken.status == "taken":
            if taken.answered is not None and taken.answered.classes and taken.correct is not None:
                self._look_for_echo(client.tenant, taken.correct, taken.answered.confidence)
            self._of["labels"].labels(figures.task, *how.values(), str(taken.correct).lower()).inc()
        if taken.counted:
            self._show(figures, row.common.level)
            if taken.broke:
                self._of["alarms"].labels(figures.task, "raised").inc()
                logger.error(promise_sentence(figures))
            if taken.refuted:
                self.on_broken(broken_event(figures))
        promise = {name: getattr(figures, name) for name in ("promised", "accuracy", "labels", "evidence", "broken")}
        return {
            "id": id,
            "task": figures.task,
            "version": figures.version,
            **how,
            "correct": taken.correct,
            "repeated": taken.status == "repeated",
            "counted": taken.counted,
            "promise": _finite(promise),
        }

    async def written(self) -> None:
        """Return when a kill of the process loses no label, and no alarm taken back, of before this call. Raises `ApiError`
        (503) where they cannot be written now; they are kept in memory, and may be reported again."""
        if self._writer is not None and not await self._writer.written():
            raise _not_kept()

    def teaches(self, client: Client) -> bool:
        """Return whether something may follow from a client's labels: it has a key, or clients without one are trusted.

        Nothing does where they are the service's own answers.
        """
        return (bool(client.key) or client.tenant in self._trusted) and client.tenant not in self.echoes.named

    def _look_for_echo(self, tenant: str, agreed: bool, confidence: float) -> None:
        if self.echoes.add(tenant, agreed, confidence):
            logger.error(
                "the labels of %s agree with the service's answers more often than these are right: they seem to be the "
                "answers themselves (noticed after %d), and nothing is learnt from them",
                *(tenant or "clients without a key", self.echoes.named[tenant]),
            )

    def alarms(self) -> list[dict[str, Any]]:
        """Return the latest alarms with the labels that led to them, as JSON values."""
        return [self._names.alarm(alarm) for alarm in self.tracker.alarms()]

    def take_back(self, id: str, client: Client) -> dict[str, Any]:
        """Take back an alarm, whose candidate is tested anew, and return it. Raises `ApiError` (404) for an unknown id."""
        known = {str(alarm.id): alarm for alarm in self.tracker.alarms()}
        if id not in known:
            raise ApiError(404, "unknown_id", f"id is {shorten(id)}, but must be that of an alarm", "id")
        with self._lock:
            alarm = self.tracker.take_back(known[id].id, Report(client.tenant, client.key, self.clock()))
        assert alarm is not None
        if known[id].taken_back is None:
            figures = alarm.figures
            self._of["alarms"].labels(figures.task, "taken_back").inc()
            self._of["promise_broken"].labels(figures.task, str(figures.version), figures.candidate).set(0)
            by = f"key {client.key} of {client.tenant}" if client.key else "an administrator without a key"
            logger.warning("alarm %d is taken back by %s: %s", alarm.id, by, promise_sentence(figures))
        return self._names.alarm(alarm)

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the figures of every candidate with labels, as JSON values."""
        return [self._names.figures(figures) for figures in self.tracker.figures()]

    def _drain(self) -> Changes:
        with self._lock:
            return self.tracker.drain()

    def _show(self, figures: Figures, level: str | None = None) -> None:
        """Set the gauges of a candidate: of one level, or of all."""
        for entry in figures.levels:
            if level in (None, entry.level):
                how = self._names.how(figures.candidate, entry.level).values()
                self._of["calibration_error"].labels(figures.task, str(figures.version), *how).set(entry.error)
        broken = figures.broken or bool(figures.slices)
        self._of["promise_broken"].labels(figures.task, str(figures.version), figures.candidate).set(broken)


def _not_kept() -> ApiError:
    return ApiError(503, "not_kept", "labels cannot be written at present: report it again later", "id", RETRY)


def open_outcomes(settings: OutcomeSettings, registry: CollectorRegistry = REGISTRY, names: Names = LEVELS) -> Outcomes:
    """Return the outcomes of a service, with those that former runs left below `settings.home`."""
    days, floor = settings.outcomes_days or DAYS, settings.promise_floor
    folder = folder_of(settings.home, settings.system)
    writer = open_writer(folder, MEMORY, days * DAY, settings.keep_inputs) if settings.outcomes_days else None
    trusted = trusted_tenants(settings.trusted_labels)
    return Outcomes(registry, clock=PatientClock(), names=names, days=days, writer=writer, trusted=trusted, floor=floor)


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
    slices = "".join(
        f"; of {each.labels} of {each.name} {each.accuracy:.1%}, where at least {each.least:.1%} should be"
        for each in figures.slices
    )
    return (
        f"the promise of {figures.candidate} for {figures.task} (version {figures.version}) is "
        f"{'broken' if figures.broken else 'kept on the whole only'}: of {figures.labels} labelled answers "
        f"{figures.accuracy:.1%} are correct, {'but ' * figures.broken}{figures.promised:.1%} were promised{slices}; "
        f"by chance this happens in at most {1 - CONFIDENCE:.0%} of all services"
    )
