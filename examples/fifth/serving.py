"""The service: what a generation is made of, and the endpoint."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeAlias

from fifth.config import WordsSettings
from fifth.model import MODEL, Build, Task
from fifth.scheduler import WordsScheduler
from pliant.serving.client import Client
from pliant.serving.http.bodies import Closed, VisibleText, deadline
from pliant.serving.lifecycle.catalog import Artifacts, Held, TaskCatalog, load_tasks
from pliant.serving.lifecycle.endpoint import Endpoint
from pliant.serving.lifecycle.system import Blueprint, Dependencies, ServedSystem
from pliant.serving.loop.observe import Observation, Served, class_readings
from pliant.serving.workers.devices import DevicePlan, device_of

Catalog: TypeAlias = TaskCatalog[Held[Task]]
Handler: TypeAlias = Held[Task]


class PredictBody(Closed):
    task: str
    text: VisibleText
    deadline: float = 1.0  # seconds from arrival


class WordsEndpoint(Endpoint[WordsSettings, Catalog, Handler]):
    async def predict(self, body: PredictBody, client: Client, arrived: float) -> dict[str, Any]:
        limit = deadline(body.deadline, self.settings.max_deadline)
        return await self.route_trial(partial(self._predict, body, client, limit), arrived, limit)

    async def _predict(self, body: PredictBody, client: Client, limit: float, arrived: float) -> Served[dict[str, Any]]:
        task = body.task
        held, result = await self.run_one(task, (task, body.text), limit, arrived, client)
        classes, best = held.artifact.classes, int(result.output.argmax())
        confidence, version = float(result.output[best]), held.version
        observation = Observation(
            task=task,
            version=version,
            outcome=result.outcome,
            origin={"task_version": version, "words": result.setting},
            measured={"queue_seconds": result.queue_seconds},
            label=classes[best],
            confidence=confidence,
            late=not result.on_time,
            readings=class_readings(task, classes, best, confidence),
        )
        answer = {"label": classes[best], "confidence": confidence, "words": result.setting, "version": version}
        return Served(answer, [self._observer.observe(observation)])


class WordsSystem(ServedSystem[WordsSettings, Catalog, Handler, WordsEndpoint]):
    setting, origins = "words", ("task_version", "words")

    def load(self, registry: Artifacts, alias: str, running: Catalog | None) -> Catalog:
        return load_tasks(Task, MODEL, registry, alias, running)

    def blueprint(self, catalog: Catalog) -> Blueprint[Handler]:
        settings, first = self.settings, next(iter(catalog.tasks.values()))
        tasks = {name: (held.folder, held.digest) for name, held in catalog.tasks.items()}
        return Blueprint(
            make_scheduler=lambda: WordsScheduler(first.artifact.latency, max_waiting=settings.max_waiting),
            handlers=catalog.tasks,
            builds=[Build(tasks, DevicePlan(device_of(settings, 0), settings.threads, None, ()))],
        )

    def endpoint(self, parts: Dependencies[Catalog, Handler]) -> WordsEndpoint:
        return WordsEndpoint(self.settings, parts.refresher, parts.metrics, parts.clock)


SERVED = WordsSystem
