"""The cascade service apart from HTTP: it predicts, lists tasks, takes labels of earlier answers, and reports its status."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast
from uuid import uuid4

from pliant.cascade.route import choose, number_of
from pliant.cascade.scheduler import CascadeScheduler
from pliant.outcomes.figures import Figures
from pliant.serving.answers import Completed, Rejected
from pliant.serving.arms import is_copy
from pliant.serving.cascade import answer
from pliant.serving.cascade.agreement import Agreement, AgreementCounter
from pliant.serving.cascade.bodies import TextRequest
from pliant.serving.cascade.catalog import Catalog, described
from pliant.serving.cascade.judge import CascadeJudge
from pliant.serving.cascade.reading import Handler, TextInProgress, begin
from pliant.serving.cascade.settings import CascadeSettings
from pliant.serving.cascade.watched import CascadeWatch
from pliant.serving.client import ANYBODY, Client
from pliant.serving.clock import Clock
from pliant.serving.http.api_errors import api_error_of, api_error_of_drop, error_content
from pliant.serving.http.routing import unknown_task
from pliant.serving.lifecycle.endpoint import Endpoint, described_devices
from pliant.serving.lifecycle.refresh import Refresher
from pliant.serving.metrics import Metrics
from pliant.serving.outcomes.outcomes import Outcomes, broken_event
from pliant.serving.window import run_each, width

JUDGE = CascadeJudge()
ORIGINS = ("task_version", "candidate", "level", "reason")
"""Labels of the metric pliant_answers."""


@dataclass(frozen=True, slots=True)
class Described:
    """What a request depends on. `max_length`: tokens that every level reads."""

    classes: tuple[str, ...]
    pair: bool
    max_length: int
    version: int


class CascadeEndpoint(Endpoint[CascadeSettings, Catalog, Handler]):
    """Classifies texts by the levels of a cascade."""

    def __init__(
        self,
        settings: CascadeSettings,
        refresher: Refresher[Catalog, Handler],
        metrics: Metrics,
        outcomes: Outcomes,
        clock: Clock,
        counter: AgreementCounter,
    ) -> None:
        super().__init__(settings, refresher, metrics, clock)
        self._outcomes, self._draw = outcomes, random.Random().random
        self._watch = CascadeWatch(self.seen, settings.watch_burn_in)
        self.agreement = Agreement(
            settings.agreement_share, self._generations, self._watch, counter, clock, self.front_door
        )
        outcomes.on_broken = self._on_broken

    async def predict(self, request: TextRequest, arrived: float) -> dict[str, Any]:
        """Return an answer or an error for each text, in order; deadlines count from `arrived`, on this endpoint's clock.

        Raises `ApiError` or `InputError` if no text has an answer: overload, an unknown task, an accuracy out of reach.
        """
        return await self.tried(partial(self._predict, request), arrived, request.deadline, JUDGE)

    async def _predict(self, request: TextRequest, arrived: float) -> dict[str, Any]:
        cascade = self._choose(request)[0].cascade
        most = width(self.settings.workers, max(level.latency.batches[-1] for level in cascade.levels))

        async def answer_or_error(text: tuple[str, str | None]) -> dict[str, Any] | Exception:
            try:
                return await self._answer(request, text, arrived)
            except Exception as error:
                return error

        answers = await run_each(request.texts, answer_or_error, most)
        results = [answer for answer in answers if answer is not None]
        failed = [result for result in results if isinstance(result, Exception)]
        if len(failed) == len(results):
            raise failed[0]
        return {"task": request.task, "answers": [self._to_dict(result) for result in results]}

    def _choose(self, request: TextRequest) -> tuple[Handler, int]:
        """Return the request's task and the number of its candidate. Raises as `predict`."""
        handler = self._handler(request.task)
        if request.candidate is not None:
            return handler, number_of(handler.cascade, request.candidate)
        return handler, choose(handler.cascade, request.accuracy, request.latency)

    async def _answer(self, request: TextRequest, text: tuple[str, str | None], arrived: float) -> dict[str, Any]:
        """Return the answer for one text. Nothing is awaited between choosing a generation and submitting to its driver."""
        driver, (handler, number) = self._generations.chosen.driver, self._choose(request)
        progress = begin(handler, number, *text, self._draw)
        if request.candidate is None and request.latency is None:
            scheduler = cast(CascadeScheduler, driver.scheduler)
            if (better := scheduler.candidate(request.task, number, progress.length)) != number:
                number, progress = better, begin(handler, better, *text, self._draw)
        left = request.deadline - (self.now - arrived)
        submitted = driver.submit(
            request.task,
            left,
            request.utility,
            progress.payload,
            progress.length,
            number,
            progress,
            request.client,
        )
        result = await submitted
        self.metrics.answered(request.task, result)
        if isinstance(result, Rejected):
            raise api_error_of_drop(result, request.deadline)
        content = answer.answer(uuid4().hex, progress, result)
        self._remember(content["id"], progress, result, request.client)
        labels = {"task_version": content["versions"]["task"], **{name: content[name] for name in ORIGINS[1:]}}
        self.metrics.originated(request.task, labels)
        self._watch.count(request.task, handler, text, content)
        self.agreement.answered(progress, result)
        return content

    def _remember(self, id: str, progress: TextInProgress, result: Completed, client: Client) -> None:
        """Remember an answer until its label comes, and where the settings say so, the text as well; of a copy nothing."""
        if is_copy():
            return
        self._outcomes.remember(id, answer.to_answered(progress, result, client.tenant))
        if self._outcomes.keeps_inputs:
            texts = [text for text in progress.original if text is not None]
            self._outcomes.keep_input(id, progress.handler.cascade.task, "json", json.dumps(texts).encode())

    def _to_dict(self, result: dict[str, Any] | Exception) -> dict[str, Any]:
        """Return an answer, or an error as its text's entry in the list of answers."""
        if isinstance(result, dict):
            return result
        api_error = api_error_of(result)
        self.metrics.errored(api_error.code)
        return error_content(api_error)

    def _handler(self, task: str) -> Handler:
        handlers = self._generations.chosen.handlers
        if task not in handlers:
            raise unknown_task(task, "task", handlers)
        return handlers[task]

    def describe(self, task: str) -> Described:
        """Return what requests depend on. Raises `ApiError` for a task that is not served."""
        served = self._handler(task).served
        return Described(served.cascade.classes, served.cascade.pair, served.max_length, served.version)

    def outcome(self, id: str, label: str | float, client: Client = ANYBODY) -> dict[str, Any]:
        """Record the right label of an earlier answer. Raises as `Outcomes.take`."""
        taken = self._outcomes.take(id, label, client)
        if self._outcomes.teaches(client):
            self.labelled(id, label)
        return taken

    async def labels_written(self) -> None:
        """Wait until the labels taken so far are written. Raises as `Outcomes.written`."""
        await self._outcomes.written()

    def _on_broken(self, figures: Figures) -> None:
        self.tell("promise", broken_event(figures))

    def alarms(self) -> list[dict[str, Any]]:
        """Return the alarms over broken promises."""
        return self._outcomes.alarms()

    def take_back(self, id: str, client: Client) -> dict[str, Any]:
        """Take back an alarm. Raises as `Outcomes.take_back`."""
        return self._outcomes.take_back(id, client)

    def tasks(self) -> list[Mapping[str, Any]]:
        return [described(handler.served) for handler in self._generations.present.handlers.values()]

    def status(self) -> dict[str, Any]:
        return {
            **self.common_status(),
            "workers": self.settings.workers,
            "devices": described_devices(self.settings, self._generations.present.driver),
            "placement": self.settings.placement,
            "tasks": self.tasks(),
            "outcomes": self._outcomes.to_dict(),
            "agreement": self.agreement.to_dict(),
        }
