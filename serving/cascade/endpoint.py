"""The cascade service apart from HTTP: it predicts, lists tasks, takes labels of earlier answers, and reports its status.

First the state of a text between the levels of a cascade: what each level reads, the answer so far, and what becomes of it.
The decisions are functions of pliant/cascade (route.py, prune.py) and pliant/models/text.py. The driver calls `read` after
each launch.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from pliant.cascade.artifact import Bag, Candidate
from pliant.cascade.bag import BagModel
from pliant.cascade.prune import kept_words
from pliant.cascade.route import Rows, answers, choose, combine, confidence, judge, number_of
from pliant.cascade.scheduler import CascadeScheduler
from pliant.errors import SchedulerError, WorkerError
from pliant.models.text import Reader, Reading, Span, shorten
from pliant.outcomes.tracker import Answered
from pliant.outcomes.tracker import number_of as label_number
from pliant.protocol import Result
from pliant.serving.cascade.catalog import Catalog, ServedTask, described
from pliant.serving.cascade.messages import Payload
from pliant.serving.cascade.settings import CascadeSettings
from pliant.serving.client import ANYBODY, Client
from pliant.serving.driver import Clock, Completed, Pending, Rejected
from pliant.serving.http.api_errors import api_error_of, api_error_of_drop, error_content
from pliant.serving.http.app import select
from pliant.serving.http.bodies import Texts
from pliant.serving.lifecycle.endpoint import LabelledEndpoint, described_devices, run_each, width
from pliant.serving.lifecycle.refresh import Refresher
from pliant.serving.loop.observe import CONFIDENCE, CONFIDENCES, LENGTHS, Observation, Served, class_readings, labels
from pliant.serving.loop.observe import Reading as DriftReading
from pliant.serving.loop.outcomes import Outcomes
from pliant.serving.metrics import Metrics

BY_BAG = -1  # setting of an answer that no launch gave
Draw = Callable[[], float]
"""Draws a number from [0, 1) uniformly, for the gates of the published baselines that decide at random."""


@dataclass(frozen=True, slots=True)
class Handler:
    """A task that is served, with a tokenizing reader for every level, and its bags by level, which run here.

    Levels with equal tokenizers share a reader.
    """

    served: ServedTask
    readers: tuple[Reader, ...]
    bags: Mapping[int, BagModel] = field(default_factory=dict)


def handler_of(served: ServedTask) -> Handler:
    """Return a task with its readers. Raises `ArtifactError` for an unusable tokenizer."""
    keys = [(trunk.tokenizer, trunk.max_length) for trunk in served.trunks]
    readers = {key: Reader(*key) for key in dict.fromkeys(keys)}
    bags = {at: BagModel(level.artifact) for at, level in enumerate(served.levels) if isinstance(level.artifact, Bag)}
    return Handler(served, tuple(readers[key] for key in keys), bags)


@dataclass(slots=True)
class TextInProgress:
    """A text, or a pair of texts, between launches. `begin` makes it; `read` updates it after each launch."""

    handler: Handler
    candidate: Candidate
    original: tuple[str, str | None]
    text: tuple[str, str | None]  # what the next level reads: without the dropped words
    reading: Reading
    draw: Draw
    levels_done: int = 0
    answers: list[Rows] = field(default_factory=list)  # [1, K] each, after every level that ran, see route.py
    truncated: bool = False  # a level that ran has not read all of its text
    dropped: tuple[Span, ...] = ()  # words of `original` that the last level did not read
    next_dropped: tuple[Span, ...] = ()  # further words that the next level does not read
    former: list[tuple[str | float, float]] = field(
        default_factory=list
    )  # label and confidence after each former level
    positions: tuple[_Position, ...] = ()  # of the words of `text` in `original`; empty: the same as in `text`

    @property
    def payload(self) -> Payload:
        return self.reading.ids, self.reading.types

    @property
    def length(self) -> int:
        return len(self.reading.ids)

    @property
    def label(self) -> str | float:
        """Return the class that is the most probable after the levels that ran, or in a regression the value."""
        classes, answer_K = self.handler.served.cascade.classes, self.answers[-1][0]
        return classes[int(answer_K.argmax())] if classes else float(answer_K[0])

    @property
    def confidence(self) -> float:
        """Return the calibrated probability that `label` is correct (a regression: within the tolerance)."""
        return round(float(confidence(self.answers[-1], not self.handler.served.cascade.classes)[0]), 6)

    def take(self, logits: NDArray[np.float32]) -> float:
        """Take a level's output. Return what the next level is worth; NaN: the text is answered."""
        cascade, candidate, done = self.handler.served.cascade, self.candidate, self.levels_done
        length_1 = np.array([self.length])
        answer = answers(cascade.levels[candidate.levels[done]], cascade.tolerance, logits[None], length_1)
        if done:
            self.former.append((self.label, self.confidence))
            answer = combine(candidate.gates[done - 1], self.answers[-1], answer)
        self.answers.append(answer)
        self.truncated = self.truncated or self.reading.truncated
        self.dropped, self.next_dropped = self.dropped + self.next_dropped, ()
        self.levels_done += 1
        if self.levels_done == len(candidate.levels):
            return math.nan
        gate, draw_1 = candidate.gates[self.levels_done - 1], np.array([self.draw()])
        return float(judge(gate, self.answers, length_1, draw_1, not cascade.classes, cascade.tolerance)[0])

    def prepare_next(self, importance: NDArray[np.float32] | None) -> None:
        """Prune words by the importance of the tokens read, and tokenize the rest for the next level."""
        levels, readers, done = self.candidate.levels, self.handler.readers, self.levels_done
        former, reader = readers[levels[done - 1]], readers[levels[done]]
        pruning = self.candidate.gates[done - 1].pruning
        pruned = False
        if pruning.rule != "none" and importance is not None:
            pruned = self._prune(kept_words(importance, self.reading.words, pruning))
        if pruned or reader is not former:
            self.reading = reader.read(*self.text)

    def _prune(self, kept: NDArray[np.bool_]) -> bool:
        if kept.all():
            return False
        spans, stays = self.reading.spans, kept.tolist()
        self.next_dropped = tuple(self._origin(span) for span, stay in zip(spans, stays, strict=True) if not stay)
        text = shorten(*self.text, spans, kept)
        if self.levels_done < len(self.candidate.gates):  # words may be dropped once more
            left = [span for span, stay in zip(spans, stays, strict=True) if stay]
            words = _locate_words(self.text, text, left)
            self.positions = tuple(_Position(new, *self._origin(old)[1:]) for new, old in words)
        self.text = text
        return True

    def _origin(self, span: Span) -> Span:
        """Return where a word of `text` is in `original`: from the first to the last position that it covers."""
        if not self.positions:
            return span
        which, start, end = span
        covered = [p for p in self.positions if p.here[0] == which and p.here[1] < end and p.here[2] > start]
        return which, min(p.start for p in covered), max(p.end for p in covered)


@dataclass(frozen=True, slots=True)
class _Position:
    here: Span  # in `text`
    start: int  # in `original`
    end: int


def begin(handler: Handler, number: int, first: str, second: str | None, draw: Draw) -> TextInProgress:
    """Return a text before any level ran. `number` is that of its candidate."""
    candidate = handler.served.cascade.candidates[number]
    words = any(gate.pruning.rule != "none" for gate in candidate.gates)
    reading = handler.readers[candidate.levels[0]].read(first, second, words)
    return TextInProgress(handler, candidate, (first, second), (first, second), reading, draw)


def read(pending: Pending, result: Result) -> Result:
    """Update a request after a launch, as the driver's `read`; its `state` is a `TextInProgress`."""
    progress: TextInProgress = pending.state
    logits, importance = pending.last.output
    gain = progress.take(logits)
    if math.isnan(gain):
        return result
    progress.prepare_next(importance)
    pending.payload = progress.payload
    return Result(result.request, gain=gain, length=progress.length)


def _locate_words(
    before: tuple[str, str | None], after: tuple[str, str | None], words: Sequence[Span]
) -> list[tuple[Span, Span]]:
    """Return for each of the remaining words its place in `after` and its place in `before`, in order."""
    pairs, cursor = [], [0, 0]
    for which, start, end in words:
        old, new = before[which], after[which]
        assert old is not None and new is not None, "a word is in a text"
        at = new.index(old[start:end], cursor[which])
        cursor[which] = at + end - start
        pairs.append(((which, at, cursor[which]), (which, start, end)))
    return pairs


def answer(id: str, progress: TextInProgress, completed: Completed) -> dict[str, Any]:
    """Return the answer for a text that at least one level ran for. `label` is a class, or a regression's value."""
    cascade, served, answer_K = progress.handler.served.cascade, progress.handler.served, progress.answers[-1][0]
    label, probabilities, interval = progress.label, None, None
    if isinstance(label, str):
        probabilities = dict(zip(cascade.classes, answer_K.round(6).tolist(), strict=True))
    else:
        interval = [label - cascade.tolerance, label + cascade.tolerance]
    names, done = levels_run(progress), progress.candidate.levels[: progress.levels_done]
    pruned = []
    for which, start, end in sorted(progress.dropped):
        word = (progress.original[which] or "")[start:end]
        pruned.append({"text": which, "start": start, "end": end, "word": word})
    earlier = sum(launch.seconds for launch in completed.launches[:-1])
    return {
        "id": id,
        "task": cascade.task,
        "label": label,
        "probabilities": probabilities,
        "interval": interval,
        "confidence": progress.confidence,
        "level": names[-1],
        "levels": names,
        "candidate": progress.candidate.name,
        "cut_short": bool(completed.reason),
        "reason": completed.reason,
        "pruned": pruned,
        "truncated": progress.truncated,
        "on_time": completed.on_time,
        "queue_seconds": max(0.0, completed.queue_seconds - earlier),
        "run_seconds": sum(launch.seconds for launch in completed.launches)
        if completed.launches
        else completed.run_seconds,
        "versions": {
            "task": served.version,
            "models": {cascade.levels[level].name: served.levels[level].version for level in done},
        },
    }


def observation(
    progress: TextInProgress, content: dict[str, Any], completed: Completed, kind: Answered, request: TextRequest
) -> Observation:
    """Return what is known of the answer `content` to a text of a request. `kind`: see `kind_of`."""
    served, cascade, task = (
        progress.handler.served,
        progress.handler.served.cascade,
        progress.handler.served.cascade.task,
    )
    first, second = progress.original
    readings = [DriftReading(f"characters of {task}", len(first) + len(second or ""), LENGTHS)]
    if cascade.classes:
        label = cascade.classes.index(content["label"])
        readings += class_readings(task, cascade.classes, label, content["confidence"])
    else:
        readings.append(DriftReading(CONFIDENCE + task, content["confidence"], CONFIDENCES))
    if len(cascade.levels) > 1:
        levels = tuple(level.name for level in cascade.levels)
        name = f"level of {task} by {content['candidate']}"
        readings.append(DriftReading(name, levels.index(content["level"]), labels(levels)))
    return Observation(
        task=task,
        version=served.version,
        outcome=completed.outcome,
        origin={"task_version": served.version, **{name: content[name] for name in ("candidate", "level", "reason")}},
        measured={"queue_seconds": completed.queue_seconds, "request_seconds": request.deadline + completed.late_by},
        utility=request.utility,
        label=content["label"],
        confidence=content["confidence"],
        late=not completed.on_time,
        readings=readings,
        id=content["id"],
        kind=kind,
        former=tuple(number for label, share in progress.former for number in (label_number(kind, label), share)),
    )


def kind_of(progress: TextInProgress, cut_short: bool, tenant: str) -> Answered:
    """Return what answers to a tenant share that came about like this one. One that was cut short has no promise."""
    served, candidate, (*former, last) = progress.handler.served, progress.candidate, levels_run(progress)
    return Answered(
        task=served.cascade.task,
        version=served.version,
        candidate=candidate.name,
        level=last,
        label="",
        confidence=0.0,
        promised=None if cut_short else candidate.promised,
        tolerance=served.cascade.tolerance,
        classes=served.cascade.classes,
        tenant=tenant,
        former_levels=tuple(former),
    )


def kept(progress: TextInProgress) -> tuple[str, bytes]:
    """Return form and bytes of the texts, where they are kept for the label."""
    return "json", json.dumps([text for text in progress.original if text is not None]).encode()


def levels_run(progress: TextInProgress) -> list[str]:
    """Return the names of the levels that ran, in order."""
    levels = progress.handler.served.cascade.levels
    return [levels[level].name for level in progress.candidate.levels[: progress.levels_done]]


Observed = tuple[dict[str, Any], Observation]
"""An answer, and what was observed of it."""


@dataclass(frozen=True, slots=True)
class TextRequest:
    """One or more texts, or pairs of texts, of one task; the other fields apply to each of them."""

    task: str
    texts: Texts  # the second of each is None if the task takes single texts
    accuracy: float | None = None  # the least that the plan must promise, from 0 to 1
    latency: float | None = None  # at most, in seconds, of one request alone on the device
    deadline: float = 60.0  # seconds from arrival
    utility: float = 1.0
    candidate: str | None = None  # by name, instead of choosing it by accuracy and latency
    client: Client = ANYBODY


class Auditor(Protocol):
    """What audits early answers by those of the large model (audit.py)."""

    async def run(self) -> None: ...
    def answered(self, progress: TextInProgress, result: Completed, utility: float) -> None: ...
    def safest(self, handler: Handler) -> int: ...
    def to_dict(self) -> list[dict[str, Any]]: ...


class CascadeEndpoint(LabelledEndpoint[CascadeSettings, Catalog, Handler]):
    """Classifies texts by the levels of a cascade. `audit` takes note of its answers."""

    audit: Auditor

    def __init__(
        self,
        settings: CascadeSettings,
        refresher: Refresher[Catalog, Handler],
        metrics: Metrics,
        outcomes: Outcomes,
        clock: Clock,
    ) -> None:
        super().__init__(settings, refresher, metrics, clock, outcomes)
        self._draw = random.Random().random

    async def predict(self, request: TextRequest, arrived: float) -> dict[str, Any]:
        """Return an answer or an error for each text, in order; deadlines count from `arrived`, on this endpoint's clock.

        Raises `ApiError` or `InputError` if no text has an answer: overload, an unknown task, an accuracy out of reach.
        """
        return await self.route_trial(partial(self._predict, request), arrived, request.deadline)

    async def _predict(self, request: TextRequest, arrived: float) -> Served[dict[str, Any]]:
        if len(request.texts) == 1:  # as most requests have it
            content, seen = await self._answer(request, request.texts[0], arrived)
            return Served({"task": request.task, "answers": [content]}, [seen])
        cascade = self._choose(request)[0].served.cascade
        most = width(self.settings.workers, max(level.latency.batches[-1] for level in cascade.levels))

        async def answer_or_error(text: tuple[str, str | None]) -> Observed | Exception:
            try:
                return await self._answer(request, text, arrived)
            except Exception as error:
                return error

        answers = await run_each(request.texts, answer_or_error, most)
        results = [answer for answer in answers if answer is not None]
        failed = [result for result in results if isinstance(result, Exception)]
        if len(failed) == len(results):
            raise failed[0]
        contents, observed = [], list[Observation | None]()
        for result in results:
            if isinstance(result, Exception):
                api_error = api_error_of(result)
                self.metrics.errored(api_error.code)
                contents.append(error_content(api_error))
                observed.append(None)
            else:
                contents.append(result[0])
                observed.append(result[1])
        return Served({"task": request.task, "answers": contents}, observed)

    def _choose(self, request: TextRequest) -> tuple[Handler, int]:
        """Return the request's task and the number of its candidate. Raises as `predict`."""
        handler = self.handler(request.task)
        cascade = handler.served.cascade
        if request.candidate is not None:
            return handler, number_of(cascade, request.candidate)
        if request.accuracy is None and request.latency is None:
            return handler, self.audit.safest(handler)
        return handler, choose(cascade, request.accuracy, request.latency)

    async def _answer(self, request: TextRequest, text: tuple[str, str | None], arrived: float) -> Observed:
        """Return the answer for one text, and what was observed of it.

        Nothing is awaited between choosing a generation and submitting to its driver.
        """
        driver, (handler, number) = self._generations.chosen.driver, self._choose(request)
        began, progress, early, worth = self.now, begin(handler, number, *text, self._draw), None, 1.0
        if (bag := handler.bags.get(progress.candidate.levels[0])) is not None:
            early, worth = progress, progress.take(bag.logits(*progress.payload))
        if math.isnan(worth):
            result: Completed | Rejected = self._by_bag(request, arrived, began)
        else:
            if early is not None:
                progress.prepare_next(None)
            if request.candidate is None and request.latency is None:
                scheduler = cast(CascadeScheduler, driver.scheduler)
                if (better := scheduler.candidate(request.task, number, progress.length)) != number:
                    number, progress = better, begin(handler, better, *text, self._draw)
            left, payload = request.deadline - (self.now - arrived), progress.payload
            try:  # who has an answer waits no longer than is left for its way back
                async with asyncio.timeout(None if early is None else left * (1 - self.settings.margin)):
                    result = await driver.submit(
                        *(request.task, left, request.utility * worth, payload, progress.length),
                        *(number, progress, request.client),
                    )
            except TimeoutError:
                result = Rejected("late")
            except (SchedulerError, WorkerError):
                if early is None:
                    raise
                result = Rejected("failed")
        if isinstance(result, Rejected):
            if early is None:
                self.metrics.dropped(request.task, result.reason, request.utility)
                raise api_error_of_drop(result, request.deadline)
            if not progress.levels_done:
                progress, number = early, handler.served.cascade.candidates.index(early.candidate)
            result = self._by_bag(request, arrived, began, result.reason)
        content = answer(secrets.token_hex(16), progress, result)
        served, cut_short, tenant = handler.served, bool(result.reason), request.client.tenant
        key = (request.task, served.version, served.digest, number, progress.levels_done, cut_short, tenant)
        kind = self._observer.kind(key, partial(kind_of, progress, cut_short, tenant))
        observed = observation(progress, content, result, kind, request)
        self._observer.observe(observed, partial(kept, progress))
        self.audit.answered(progress, result, request.utility)
        return content, observed

    def _by_bag(self, request: TextRequest, arrived: float, began: float, reason: str = "") -> Completed:
        """Return how the answer of a bag came about. `began`: when it ran; `reason`: why no device did."""
        now = self.now
        return Completed(None, BY_BAG, 1, began - arrived, now - began, now - arrived - request.deadline, reason)

    def select(self, name: object) -> ServedTask:
        """Return the task of this name, or the only one if it is None. Raises `InputError` and `ApiError` (404)."""
        handlers = self._generations.present.handlers
        return handlers[select(name, "task", list(handlers))].served

    def tasks(self) -> list[Mapping[str, Any]]:
        return [described(handler.served) for handler in self._generations.present.handlers.values()]

    def status(self) -> dict[str, Any]:
        return {
            **self.common_status(),
            "workers": self.settings.workers,
            "devices": described_devices(self.settings, self._generations.present.driver),
            "placement": self.settings.placement,
            "tasks": self.tasks(),
            "outcomes": self.outcomes.to_dict(),
            "agreement": self.audit.to_dict(),
        }
