"""The tokens service apart from HTTP: it predicts, lists and registers tasks, and reports its status."""

from __future__ import annotations

from typing import Any

from serving.answers import Completed, Rejected
from serving.client import ANYBODY, Client
from serving.clock import Clock
from serving.http.api_errors import api_error_of_drop
from serving.http.routing import unknown_task
from serving.lifecycle.endpoint import Endpoint, described_devices
from serving.lifecycle.poller import join_versions
from serving.metrics import Metrics
from serving.tokens.catalog import Servable, TaskInfo
from serving.tokens.decoders import Decoders
from serving.tokens.registration import Origins, Registrar, TokensGeneration, TokensRefresher
from serving.tokens.request import ImageRequest
from serving.tokens.settings import TokensSettings

ORIGINS = ("task_version", "backbone_version", "profile_version", "variant", "variant_version")
"""Labels of the metric pliant_answers."""


class TokensEndpoint(Endpoint[TokensSettings, Servable, TaskInfo]):
    """Predicts the classes of images."""

    def __init__(
        self,
        settings: TokensSettings,
        refresher: TokensRefresher,
        registrar: Registrar,
        origins: Origins,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        super().__init__(settings, refresher, metrics, clock)
        self._registrar, self._origins = registrar, origins
        self._decoders = Decoders(settings.max_image_pixels)

    @property
    def largest_batch(self) -> int:
        """Return how many images the device runs at a time, at most."""
        return self._generations.present.catalog.knowledge().latency.batches[-1]

    async def predict(self, request: ImageRequest, arrived: float) -> dict[str, Any]:
        """Return the answer to a request; its deadline counts from `arrived`, on this endpoint's clock.

        Raises `ApiError` for overload and unknown tasks, `InputError` for an unusable image.
        """
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
        return self._answer(request.task, answer, generation)

    def _serving(self, task: str) -> TokensGeneration:
        """Return the present generation. Raises `ApiError` if it does not serve the task."""
        present = self._generations.present
        if task not in present.handlers:
            raise unknown_task(task, "task", present.handlers)
        return present

    def _answer(self, task: str, completed: Completed, generation: TokensGeneration) -> dict[str, Any]:
        """Return the answer, with the versions that the output itself names: others may be served by now."""
        *digests, probabilities = completed.output
        origin = self._origins[(digests[0], digests[1])]
        versions = {**origin.versions, **generation.catalog.planned_by}
        labels = {f"{kind}_version": version for kind, version in versions.items()}
        self.metrics.originated(task, {**labels, "variant": origin.variant or ""})
        shares = [round(share, 6) for share in probabilities.tolist()]
        return {
            "task": task,
            "label": origin.classes[int(probabilities.argmax())],
            "probabilities": dict(zip(origin.classes, shares, strict=True)),
            "gamma": completed.setting if origin.variant is None else 0,
            "batch_size": completed.batch,
            "queue_seconds": completed.queue_seconds,
            "run_seconds": completed.run_seconds,
            "on_time": completed.on_time,
            "variant": origin.variant,
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
        }
