"""The cascade service apart from HTTP: it predicts, lists tasks, takes labels of earlier answers, and reports its status."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast
from uuid import uuid4

from pliant.cascade.route import choose, number_of
from pliant.cascade.scheduler import CascadeScheduler
from pliant.serving.cascade.agreement import Agreement, AgreementCounter
from pliant.serving.cascade.catalog import Catalog, ServedTask, described
from pliant.serving.cascade.reading import Handler, answer, begin, kept, kind_of, observation
from pliant.serving.cascade.settings import CascadeSettings
from pliant.serving.client import ANYBODY, Client
from pliant.serving.driver import Clock, Rejected
from pliant.serving.http.api_errors import api_error_of, api_error_of_drop, error_content
from pliant.serving.http.app import select
from pliant.serving.http.bodies import Texts
from pliant.serving.lifecycle.endpoint import LabelledEndpoint, described_devices, run_each, width
from pliant.serving.lifecycle.refresh import Refresher
from pliant.serving.loop.observe import Observation, Served
from pliant.serving.loop.outcomes import Outcomes
from pliant.serving.metrics import Metrics

Answered = tuple[dict[str, Any], Observation]


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


class CascadeEndpoint(LabelledEndpoint[CascadeSettings, Catalog, Handler]):
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
        super().__init__(settings, refresher, metrics, clock, outcomes)
        self._draw = random.Random().random
        self.agreement = Agreement(
            settings.agreement_share, self._generations, self.drift, counter, clock, self.front_door
        )

    async def predict(self, request: TextRequest, arrived: float) -> dict[str, Any]:
        """Return an answer or an error for each text, in order; deadlines count from `arrived`, on this endpoint's clock.

        Raises `ApiError` or `InputError` if no text has an answer: overload, an unknown task, an accuracy out of reach.
        """
        return await self.route_trial(partial(self._predict, request), arrived, request.deadline)

    async def _predict(self, request: TextRequest, arrived: float) -> Served[dict[str, Any]]:
        cascade = self._choose(request)[0].served.cascade
        most = width(self.settings.workers, max(level.latency.batches[-1] for level in cascade.levels))

        async def answer_or_error(text: tuple[str, str | None]) -> Answered | Exception:
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
        return handler, choose(cascade, request.accuracy, request.latency)

    async def _answer(self, request: TextRequest, text: tuple[str, str | None], arrived: float) -> Answered:
        """Return the answer for one text, and what was observed of it.

        Nothing is awaited between choosing a generation and submitting to its driver.
        """
        driver, (handler, number) = self._generations.chosen.driver, self._choose(request)
        progress = begin(handler, number, *text, self._draw)
        if request.candidate is None and request.latency is None:
            scheduler = cast(CascadeScheduler, driver.scheduler)
            if (better := scheduler.candidate(request.task, number, progress.length)) != number:
                number, progress = better, begin(handler, better, *text, self._draw)
        left, payload = request.deadline - (self.now - arrived), progress.payload
        result = await driver.submit(
            request.task, left, request.utility, payload, progress.length, number, progress, request.client
        )
        if isinstance(result, Rejected):
            self.metrics.dropped(request.task, result.reason)
            raise api_error_of_drop(result, request.deadline)
        content = answer(uuid4().hex, progress, result)
        served, cut_short, tenant = handler.served, bool(result.reason), request.client.tenant
        key = (request.task, served.version, served.digest, number, progress.levels_done, cut_short, tenant)
        kind = self._observer.kind(key, partial(kind_of, progress, cut_short, tenant))
        observed = observation(progress, content, result, kind)
        self._observer.observe(observed, partial(kept, progress))
        self.agreement.answered(progress, result)
        return content, observed

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
            "agreement": self.agreement.to_dict(),
        }
