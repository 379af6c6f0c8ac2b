"""The task that turns counts into alarms every few seconds, tells of them, and keeps what it knows across restarts.

What is usual is learnt for every release, from the first observations after it was taken up, so an alarm means: it is not
any more what it was when this release began. It belongs to the release: one that comes back has its own again. An alarm
stands until a release is served that was made after it, or until a person accepts what has changed (`pliant watch
--accept`); it is told again every day.

Others are told of an alarm only once it would be raised without any one group of tenants, too (pliant/fairness.py): what one
tenant sends shows in the status and the metrics, and starts nothing.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prometheus_client import REGISTRY, CollectorRegistry

from pliant.errors import InputError
from pliant.fairness import GROUPS, Groups, WithoutEach
from pliant.serving.loop.observe import CONFIDENCE, DriftCounter
from pliant.serving.metrics import StateMetrics
from pliant.serving.monitoring.metric_list import DRIFT, register
from pliant.serving.state_file import StateFile
from pliant.watch.detector import Alarm
from pliant.watch.system import AccuracyEstimate, StreamFigures, SystemWatch, mean_confidence, system_watch_from

logger = logging.getLogger("pliant.serving")

SAVE_SECONDS = 30.0
AGAIN = 86_400.0  # seconds after which a standing alarm is told once more
KEPT = 1  # former releases whose reference is kept: the one that a rollback goes back to
RECENT = 4000  # answers; where an estimate rests on more, the older half counts half
Event = Callable[[str, Mapping[str, Any]], None]
"""Tells others what happened: a kind (alarm), and figures."""


class WatchMetrics:
    """What the watch says to Prometheus."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self.state = StateMetrics(registry)
        self._of = register(DRIFT, registry)

    def show(self, rows: Iterable[StreamFigures], estimates: Mapping[str, AccuracyEstimate]) -> None:
        """Show the present figures."""
        for row in rows:
            share = 0.0 if row.evidence <= 1 else min(1.0, math.log(row.evidence) / math.log(row.threshold))
            self._of["drift_evidence"].labels(row.stream).set(share)
            self._of["drift"].labels(row.stream).set(row.state == "alarm")
        for name, estimate in estimates.items():
            self._of["estimated_accuracy"].labels(name).set(estimate.accuracy)

    def raised(self, alarm: Alarm) -> None:
        self._of["drift_alarms"].labels(alarm.stream).inc()


@dataclass(frozen=True, slots=True)
class WatcherParts:
    """`release`: number of the release that is served, and when it was written (ISO 8601, UTC; empty: not known).

    `file`: the state, for the next start and for `pliant watch`.
    """

    system: str
    drift: DriftCounter
    file: StateFile
    release: Callable[[], tuple[int | None, str]]
    metrics: WatchMetrics
    event: Event = lambda _kind, _figures: None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    in_thread: Callable[..., Awaitable[Any]] = asyncio.to_thread


class Watcher:
    """Watches one service. `run` is a task for as long as it lives."""

    def __init__(self, parts: WatcherParts) -> None:
        self._parts = parts
        self._release: int | None = None
        self._alarms: list[dict[str, Any]] = []
        self._watch = WithoutEach(SystemWatch())
        self._untold: dict[str, dict[str, Any]] = {}  # alarms by stream that one group alone has raised, as events
        self._former: dict[int, WithoutEach[SystemWatch]] = {}  # what was usual to former releases, the latest last
        self._recent: dict[str, NDArray[np.int64]] = {}  # counts of the latest confidences by stream
        self._restore()
        self._rows = (
            self._watch.whole.figures()
        )  # of the latest look: another thread may be at the next one while a status is read

    async def run(self, seconds: float) -> None:
        """Look at what was counted every `seconds` until cancelled; 0: never. No exception ends it."""
        clock = asyncio.get_running_loop().time
        saved = clock()
        while seconds:
            await asyncio.sleep(seconds)
            try:
                raised = await self.look()
                if raised or clock() - saved >= SAVE_SECONDS:
                    saved = clock()
                    await self._parts.in_thread(self._parts.file.write, self._content())
            except Exception as error:
                logger.error("what was seen could not be watched", exc_info=error)

    async def look(self) -> list[Alarm]:
        """Take the counts since the last look, and return the alarms that they raise."""
        release, created = self._parts.release()
        if release != self._release:
            if self._release is not None:
                self._take_up(release, created)
            self._release = release
        elif accepted(self._parts.file).exists():
            accepted(self._parts.file).unlink()
            logger.warning("what has changed is accepted by hand, and is usual from now on")
            self._former.clear()
            self._take_up(release, self._at())
        blocks = self._parts.drift.take()
        for name, counts in _sum(blocks.values()).items():
            if name.startswith(CONFIDENCE):
                recent = self._recent.get(name, 0) + counts
                self._recent[name] = recent // 2 if recent.sum() > RECENT else recent
        alarms: list[Alarm] = list(await self._parts.in_thread(self._update, blocks)) if blocks else []
        for alarm in alarms:
            self._parts.metrics.raised(alarm)
            logger.warning("what is served has changed: %s", alarm.sentence)
            entry = {"at": self._at(), "release": self._release, **asdict(alarm)}
            self._alarms.append(entry)
            self._untold[alarm.stream] = {"reason": alarm.sentence, **entry}
        for stream in list(self._untold):  # told once it was raised without any one group's requests, too
            others = [watch.detectors.get(stream) for watch in self._watch.without.values()]
            if all(other is not None and other.alarm for other in others):
                self._tell(self._untold.pop(stream))
        for entry in self._alarms:
            age = self._parts.now() - datetime.fromisoformat(entry.get("told") or entry["at"])
            if entry["stream"] not in self._untold and age.total_seconds() >= AGAIN:
                self._tell({"reason": entry["sentence"], **entry})
        self._rows = self._watch.whole.figures()
        self._parts.metrics.show(self._rows, self.estimates())
        return alarms

    def _tell(self, event: dict[str, Any]) -> None:
        """Tell others of an alarm, and note when."""
        for entry in self._alarms:
            if entry["stream"] == event["stream"]:
                entry["told"] = self._at()
        self._parts.event("alarm", event)

    def _take_up(self, release: int | None, created: str) -> None:
        """Watch for another release: with its own reference, where that is known, and the alarms that are later than it."""
        if self._release is not None and self._release != release:
            self._former[self._release] = self._watch
        own = None if release is None else self._former.pop(release, None)
        self._watch = own or WithoutEach(SystemWatch())
        while len(self._former) > KEPT:
            del self._former[next(iter(self._former))]
        self._alarms = [entry for entry in self._alarms if created and entry["at"] > created]
        standing = {entry["stream"] for entry in self._alarms}
        self._untold = {stream: event for stream, event in self._untold.items() if stream in standing}
        self._recent.clear()
        self._parts.drift.forget()

    def _update(self, blocks: Mapping[int, Mapping[str, list[int]]]) -> list[Alarm]:
        """Update each watch with what it sees; return the alarms that all of it together raises."""
        parts: dict[SystemWatch, list[Mapping[str, list[int]]]] = {}
        for group in blocks:
            self._watch.seeing(group)  # makes what a new group is not seen by, before anything is updated
        for group, block in blocks.items():
            for watch in self._watch.seeing(group):
                parts.setdefault(watch, []).append(block)
        raised: list[Alarm] = []
        for watch, seen in parts.items():
            counts = _sum(seen)
            for name in counts:
                stream, detector = self._parts.drift.streams[name], watch.detectors.get(name)
                if detector is None:
                    watch.add(stream)
                elif detector.state == "learning":  # the setting may be another one since a restart
                    detector.stream = replace(detector.stream, burn_in=stream.burn_in)
            alarms = watch.update(counts, self._parts.now().timestamp())
            raised += alarms if watch is self._watch.whole else ()
        return raised

    def estimates(self) -> dict[str, AccuracyEstimate]:
        """Return the accuracy of the latest answers of each stream of confidences, estimated without labels."""
        return {name.removeprefix(CONFIDENCE): mean_confidence(counts) for name, counts in self._recent.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return what a status says: a row for each stream, alarms, and estimated accuracies."""
        return {
            "streams": [asdict(row) for row in self._rows],
            "alarms": list(self._alarms),
            "estimated_accuracy": {name: asdict(each) for name, each in self.estimates().items() if each.answers},
        }

    def save(self) -> None:
        """Keep what is known, as before the service ends."""
        self._parts.file.write(self._content())

    def _at(self) -> str:
        return self._parts.now().isoformat(timespec="seconds")

    def _content(self) -> dict[str, Any]:
        return {
            "system": self._parts.system,
            "release": self._release,
            "at": self._at(),
            **self.to_dict(),
            **_watches(self._watch),
            "former": {str(number): _watches(watches) for number, watches in self._former.items()},
            "tenants": self._parts.drift.groups.tenants,
            "untold": self._untold,
        }

    def _restore(self) -> None:
        """Take up what was known before the service was restarted."""
        content = self._parts.file.read()
        if content is None:
            return
        try:
            watch = _watches_from(content)
            former = {int(number): _watches_from(each) for number, each in content.get("former", {}).items()}
            kept = content["release"], [dict(alarm) for alarm in content["alarms"]], dict(content.get("untold", {}))
            tenants = {str(tenant): at % GROUPS for at, tenant in enumerate(content.get("tenants", ()))}
        except (KeyError, TypeError, ValueError, AttributeError, InputError) as error:
            logger.warning("what was watched before cannot be read, and is learnt anew: %s", error)
            return
        self._watch, self._former, (self._release, self._alarms, self._untold) = watch, former, kept
        self._parts.drift.groups = Groups(tenants)


def accepted(file: StateFile) -> Path:
    """Return the file by which a person tells the service that what has changed is usual from now on."""
    return file.path.with_suffix(".accepted")


def _watches(watches: WithoutEach[SystemWatch]) -> dict[str, Any]:
    without = {str(group): watch.to_dict() for group, watch in watches.without.items()}
    return {"watch": watches.whole.to_dict(), "without": without}


def _watches_from(content: Mapping[str, Any]) -> WithoutEach[SystemWatch]:
    watches = WithoutEach(system_watch_from(content["watch"]), {})
    watches.without |= {int(group): system_watch_from(each) for group, each in content.get("without", {}).items()}
    return watches


def _sum(blocks: Iterable[Mapping[str, list[int]]]) -> dict[str, NDArray[np.int64]]:
    """Return the counts of blocks together, by stream."""
    total: dict[str, NDArray[np.int64]] = {}
    for block in blocks:
        for name, counts in block.items():
            total[name] = total.get(name, 0) + np.asarray(counts)
    return total
