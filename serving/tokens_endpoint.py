"""What the tokens service does, apart from HTTP: predict, list tasks, register a task, report its status.

Knows the driver, the catalog and the settings; knows nothing of status codes' bodies, BentoML or how a model runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pliant.errors import RegistryError
from serving.driver import Driver, Dropped, Served
from serving.images import decode
from serving.metrics import Metrics
from serving.refusals import Refusal, refusal_of_drop
from serving.settings import Settings
from serving.tokens_catalog import Catalog, Registry, ServedTask, check_gammas, has_task, load_task
from serving.tokens_question import Question, shorten


class TaskScheduler(Protocol):
    def add_task(self, name: str, accuracy: Mapping[int, float]) -> None: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What the endpoint is put together from."""

    settings: Settings
    catalog: Catalog
    gammas: tuple[int, ...]  # that the scheduler may use
    scheduler: TaskScheduler
    driver: Driver
    metrics: Metrics
    open_registry: Callable[[], Registry]


class TokensEndpoint:
    def __init__(self, parts: Parts) -> None:
        self._parts, self._driver, self.settings = parts, parts.driver, parts.settings
        self.metrics = parts.metrics
        self._tasks: dict[str, ServedTask] = {}
        self._by_digest: dict[str, ServedTask] = {}  # also versions replaced while requests were in flight
        self._registering = asyncio.Lock()
        for served in parts.catalog.tasks.values():
            self._serve(served)

    @property
    def now(self) -> float:
        return self._driver.now

    async def predict(self, question: Question, arrived: float) -> dict[str, Any]:
        """The answer to a question whose deadline counts from `arrived` on this endpoint's clock.

        Raises `Refusal` for overload and unknown tasks, `InputError` for what is no usable image.
        """
        if question.task not in self._tasks:
            known = ", ".join(sorted(self._tasks))
            raise Refusal(404, "unknown_task", f"task is {shorten(question.task)}, but must be one of {known}", "task")
        catalog = self._parts.catalog
        pixels = await decode(question.image, catalog.image_size, self.settings.max_image_pixels)
        left = question.deadline - (self._driver.now - arrived)
        answer = await self._driver.submit(question.task, left, question.utility, (question.task, pixels))
        self.metrics.answered(question.task, answer)
        if isinstance(answer, Dropped):
            raise refusal_of_drop(answer, question.deadline)
        return self._answer(answer)

    def _answer(self, served: Served) -> dict[str, Any]:
        digest, probabilities = served.output
        task, catalog = self._by_digest[digest], self._parts.catalog
        shares = [round(share, 6) for share in probabilities.tolist()]
        versions = {"backbone": catalog.backbone_version, "task": task.version, "profile": catalog.profile_version}
        return {
            "task": task.task.name,
            "label": task.task.classes[int(probabilities.argmax())],
            "probabilities": dict(zip(task.task.classes, shares, strict=True)),
            "gamma": served.setting,
            "batch_size": served.batch,
            "queue_seconds": served.queue_seconds,
            "run_seconds": served.run_seconds,
            "on_time": served.on_time,
            "versions": versions,
        }

    async def register(self, name: str, which: str | int | None) -> dict[str, Any]:
        """Serve a further task of the registry, or another version of one (under an alias or number), from now on.

        Raises `Refusal` where the registry lacks it, `RegistryError` where it is out of reach, `BackboneError` and
        `InputError` where the task does not fit.
        """
        async with self._registering:
            served = await asyncio.to_thread(self._fetch, name, which or self.settings.alias)
            check_gammas(served.task, next(iter(self._tasks.values())).task, self._parts.catalog.profile)
            await self._driver.update(served)
            self._parts.scheduler.add_task(name, served.task.accuracy)
            self._serve(served)
        return self._describe(served)

    def tasks(self) -> list[dict[str, Any]]:
        return [self._describe(served) for _, served in sorted(self._tasks.items())]

    def status(self) -> dict[str, Any]:
        catalog, driver = self._parts.catalog, self._driver
        backbone = {"version": catalog.backbone_version, "digest": catalog.backbone_digest, "source": catalog.source}
        device = catalog.profile.device
        profile = {"version": catalog.profile_version, "digest": catalog.profile_digest, "device": device}
        return {
            "ready": driver.ready,
            "policy": self.settings.policy,
            "gammas": list(self._parts.gammas),
            "alias": self.settings.alias,
            "backbone": backbone,
            "profile": profile,
            "tasks": self.tasks(),
            "waiting": driver.waiting,
            "pending": driver.pending,
        }

    def _fetch(self, name: str, which: str | int) -> ServedTask:
        """In a thread: the registry may be slow."""
        registry = self._parts.open_registry()
        if not has_task(registry, name):
            message = f"name is {shorten(name)}, but the registry has no such task"
            raise Refusal(404, "not_in_registry", message, "name")
        try:
            return load_task(registry, name, which, self._parts.catalog.backbone_digest)
        except RegistryError as error:
            raise Refusal(
                404, "not_in_registry", str(error), "version" if isinstance(which, int) else "alias"
            ) from None

    def _serve(self, served: ServedTask) -> None:
        self._tasks[served.task.name] = served
        self._by_digest[served.digest] = served

    @staticmethod
    def _describe(served: ServedTask) -> dict[str, Any]:
        task = served.task
        accuracy = {str(gamma): share for gamma, share in sorted(task.accuracy.items())}
        return {
            "name": task.name,
            "classes": list(task.classes),
            "version": served.version,
            "digest": served.digest,
            "accuracy": accuracy,
        }
