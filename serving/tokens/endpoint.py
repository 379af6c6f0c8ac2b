"""The tokens service apart from HTTP: it predicts, lists and registers tasks, takes labels, and reports its status."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from pliant.outcomes.figures import Figures
from pliant.serving.answers import Completed, Rejected
from pliant.serving.arms import is_copy
from pliant.serving.client import ANYBODY, Client
from pliant.serving.clock import Clock
from pliant.serving.http.api_errors import api_error_of_drop
from pliant.serving.http.routing import unknown_task
from pliant.serving.lifecycle.endpoint import Endpoint, described_devices
from pliant.serving.lifecycle.poller import join_versions
from pliant.serving.metrics import Metrics
from pliant.serving.outcomes.outcomes import Outcomes, broken_event
from pliant.serving.tokens.bodies import ImageRequest
from pliant.serving.tokens.catalog import Catalog, TaskInfo
from pliant.serving.tokens.decoders import Decoders
from pliant.serving.tokens.judge import TokensJudge
from pliant.serving.tokens.labelled import Labelled
from pliant.serving.tokens.registration import Origins, Registrar, TokensGeneration, TokensRefresher
from pliant.serving.tokens.settings import TokensSettings
from pliant.serving.tokens.watched import TokensWatch

JUDGE = TokensJudge()
ORIGINS = ("task_version", "backbone_version", "profile_version")
"""Labels of the metric pliant_answers."""


class TokensEndpoint(Endpoint[TokensSettings, Catalog, TaskInfo]):
    """Predicts the classes of images."""

    def __init__(
        self,
        settings: TokensSettings,
        refresher: TokensRefresher,
        registrar: Registrar,
        origins: Origins,
        metrics: Metrics,
        clock: Clock,
        outcomes: Outcomes,
    ) -> None:
        super().__init__(settings, refresher, metrics, clock)
        self._outcomes, self._labelled = outcomes, Labelled(outcomes)
        self._registrar, self._origins = registrar, origins
        self._watch = TokensWatch(self.seen, settings.watch_burn_in)
        outcomes.on_broken = self._on_broken
        self._decoders = Decoders(settings.max_image_pixels)

    @property
    def largest_batch(self) -> int:
        """Return how many images the device runs at a time, at most."""
        return self._generations.present.catalog.knowledge().latency.batches[-1]

    async def predict(self, request: ImageRequest, arrived: float) -> dict[str, Any]:
        """Return the answer to a request; its deadline counts from `arrived`, on this endpoint's clock.

        Raises `ApiError` for overload and unknown tasks, `InputError` for an unusable image.
        """
        return await self.tried(partial(self._predict, request), arrived, request.deadline, JUDGE)

    async def _predict(self, request: ImageRequest, arrived: float) -> dict[str, Any]:
        size = self._serving(request.task).catalog.image_size
        try:
            pixels = await self._decoders.decode(request.image, size, request.deadline - (self.now - arrived))
        except TimeoutError:
            answer: Completed | Rejected = Rejected("late")
            generation = self._serving(request.task)
        else:
            generation = self._serving(request.task)  # decoding may have taken a while
            left = request.deadline - (self.now - arrived)
            payload = (request.task, pixels)
            answer = await generation.driver.submit(request.task, left, request.utility, payload, client=request.client)
        self.metrics.answered(request.task, answer)
        if isinstance(answer, Rejected):
            raise api_error_of_drop(answer, request.deadline)
        id = "" if is_copy() else os.urandom(16).hex() if request.id is None else request.id
        content = self._answer(id, request, answer, generation)
        if id:
            self._labelled.keep_pixels(id, request.task, pixels)
        self._watch.count(request.task, content["probabilities"], content["label"], pixels)
        return content

    def _serving(self, task: str) -> TokensGeneration:
        """Return the generation that the request goes to. Raises `ApiError` if it does not serve the task."""
        present = self._generations.chosen
        if task not in present.handlers:
            raise unknown_task(task, "task", present.handlers)
        return present

    def _answer(
        self, id: str, request: ImageRequest, completed: Completed, generation: TokensGeneration
    ) -> dict[str, Any]:
        """Return the answer and remember it, with the versions that the output itself names: others may be served by now."""
        first, second, probabilities = completed.output
        task, key = request.task, (first, second)
        # Two releases may hold the same artifacts under other versions: the one that was asked names its own. What it does
        # not know has joined it since.
        origin, best = generation.catalog.origins.get(key) or self._origins[key], int(probabilities.argmax())
        versions = {**origin.versions, **generation.catalog.planned_by}
        labels = {f"{kind}_version": version for kind, version in versions.items()}
        self.metrics.originated(task, labels)
        shares = [round(share, 6) for share in probabilities.tolist()]
        if id:
            tenant = request.client.tenant
            self._labelled.remember(id, task, key, completed.setting, origin, best, shares[best], tenant)
        return {
            "id": id,
            "task": task,
            "label": origin.classes[best],
            "probabilities": dict(zip(origin.classes, shares, strict=True)),
            "gamma": completed.setting,
            "batch_size": completed.batch,
            "queue_seconds": completed.queue_seconds,
            "run_seconds": completed.run_seconds,
            "on_time": completed.on_time,
            "versions": versions,
        }

    async def refresh(self) -> dict[str, Any]:
        """Poll the registry now, and return the outcome, with the pins, which it leaves. Raises as `Refresher`'s poll."""
        outcome, pins = await super().refresh(), self._registrar.pins.to_dict()
        if pins:
            outcome["message"] += f"; pinned: {join_versions(pins)}"
        return {**outcome, "pins": pins}

    async def register(self, name: str, which: str | int | None, client: Client = ANYBODY) -> TaskInfo:
        """Serve another task of the registry, or another version of a task, and return its description.

        Raises as `Registrar.register`.
        """
        await self._registrar.register(self._refresher, name, which, client)
        return self._generations.present.handlers[name]

    def outcome(self, id: str, label: str | float, client: Client = ANYBODY) -> dict[str, Any]:
        """Record the right class of an earlier answer. Raises as `Outcomes.take`."""
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

    def tasks(self) -> list[TaskInfo]:
        return list(self._generations.present.handlers.values())

    def status(self) -> dict[str, Any]:
        present = self._generations.present
        return {
            **self.common_status(),
            "devices": described_devices(self.settings, present.driver),
            "policy": self.settings.policy,
            "gammas": list(self.settings.used(present.catalog.knowledge().latency.settings)),
            **present.catalog.described(),
            "tasks": self.tasks(),
            "pins": self._registrar.pins.to_dict(),
            "outcomes": self._outcomes.to_dict(),
        }
