"""What the cascade service does, apart from HTTP: predict, list tasks, take later labels, report its status.

Knows generations and what is said of a text on its way; knows nothing of bodies, BentoML or how a model runs.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pliant.cascade.route import choose, number_of
from serving.answers import Rejected
from serving.cascade import answer
from serving.cascade.catalog import Catalog
from serving.cascade.described import described
from serving.cascade.outcomes import Outcomes
from serving.cascade.question import Question
from serving.cascade.reading import Way, begin
from serving.cascade.settings import CascadeSettings
from serving.clock import Clock
from serving.http.api_errors import error_content, refusal_of, refusal_of_drop
from serving.http.questions import unknown
from serving.lifecycle.refresh import Refresher
from serving.metrics import Metrics

ORIGINS = ("task_version", "candidate", "level", "reason")
"""Labels of the metric that says what gave the answers."""

AT_ONCE = 16  # texts of one request that are read before anybody else has a turn


@dataclass(frozen=True, slots=True)
class Described:
    """What a question depends on. `max_length`: tokens that every level reads."""

    classes: tuple[str, ...]
    pair: bool
    max_length: int


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What the endpoint is put together from."""

    settings: CascadeSettings
    refresher: Refresher[Catalog, Way]
    metrics: Metrics
    outcomes: Outcomes
    clock: Clock


class CascadeEndpoint:
    def __init__(self, parts: Dependencies, seed: int | None = None) -> None:
        """`seed` of what the published gates toss; None: another one each time."""
        self._parts, self._generations = parts, parts.refresher.generations
        self._draw = random.Random(seed).random
        self.settings, self.metrics = parts.settings, parts.metrics

    @property
    def now(self) -> float:
        return self._parts.clock()

    @property
    def ready(self) -> bool:
        return self._generations.present.driver.ready

    @property
    def alive(self) -> bool:
        return self._generations.present.driver.alive

    async def predict(self, question: Question, arrived: float) -> dict[str, Any]:
        """An answer or an error for each text, in order; deadlines count from `arrived` on this endpoint's clock.

        Raises `ApiError` or `InputError` where no text has an answer: overload, an unknown task, a target out of reach.
        """
        self._choose(question)
        asks = []
        for index, text in enumerate(question.texts):
            asks.append(asyncio.ensure_future(self._ask(question, text, arrived)))
            if index % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
        found = await asyncio.gather(*asks, return_exceptions=True)
        failed = [one for one in found if isinstance(one, BaseException)]
        if len(failed) == len(found):
            raise failed[0]
        return {"task": question.task, "answers": [self._told(one) for one in found]}

    def _choose(self, question: Question) -> tuple[Way, int]:
        way = self._way(question.task)
        if question.candidate is not None:
            return way, number_of(way.cascade, question.candidate)
        return way, choose(way.cascade, question.accuracy, question.latency)

    async def _ask(self, question: Question, text: tuple[str, str | None], arrived: float) -> dict[str, Any]:
        """Nothing is awaited between looking at the present generation and submitting to its driver."""
        driver, (way, number) = self._generations.present.driver, self._choose(question)
        asked = begin(way, number, *text, self._draw)
        left = question.deadline - (self.now - arrived)
        submitted = driver.submit(question.task, left, question.utility, asked.payload, asked.length, number, asked)
        served = await submitted
        self.metrics.answered(question.task, served)
        if isinstance(served, Rejected):
            raise refusal_of_drop(served, question.deadline)
        told = answer.answer(uuid4().hex, asked, served)
        self._parts.outcomes.remember(told["id"], answer.remembered(asked, served))
        labels = {"task_version": told["versions"]["task"], **{name: told[name] for name in ORIGINS[1:]}}
        self.metrics.originated(question.task, labels)
        return told

    def _told(self, found: dict[str, Any] | BaseException) -> dict[str, Any]:
        """Faults of ours are told, too: the other texts have their answers."""
        if isinstance(found, dict):
            return found
        if not isinstance(found, Exception):
            raise found
        refusal = refusal_of(found)
        self.metrics.refused(refusal.code)
        return error_content(refusal)

    def _way(self, task: str) -> Way:
        ways = self._generations.present.ways
        if task not in ways:
            raise unknown(task, "task", ways)
        return ways[task]

    def describe(self, task: str) -> Described:
        """Raises `ApiError` for a task that is not served."""
        served = self._way(task).served
        return Described(served.cascade.classes, served.cascade.pair, served.max_length)

    def outcome(self, id: str, label: str | float) -> dict[str, Any]:
        """Take the right label of an earlier answer. Raises as `Outcomes.take`."""
        return self._parts.outcomes.take(id, label)

    async def refresh(self) -> dict[str, Any]:
        """Take up what the alias points to, now. Raises as a look does."""
        return (await self._parts.refresher.poller.poll()).plain()

    def tasks(self) -> list[Mapping[str, Any]]:
        return [described(way.served) for way in self._generations.present.ways.values()]

    def status(self) -> dict[str, Any]:
        present, poller = self._generations.present, self._parts.refresher.poller
        return {
            "ready": self.ready,
            "alias": self.settings.alias,
            "generation": present.number,
            "leaving": self._generations.leaving,
            "workers": self.settings.workers,
            "placement": self.settings.placement,
            "tasks": self.tasks(),
            "refresh": poller.last.plain(),
            "refresh_seconds": poller.seconds,
            "waiting": present.driver.waiting,
            "pending": present.driver.pending,
            "outcomes": self._parts.outcomes.plain(),
        }
