"""What the tokens service does, apart from HTTP: predict, list tasks, register a task, report its status.

Knows the driver and what is live; knows nothing of status codes' bodies, BentoML or how a model runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serving.answers import Completed, Rejected
from serving.driver import Driver
from serving.http.api_errors import refusal_of_drop
from serving.http.questions import unknown
from serving.metrics import Metrics
from serving.tokens.catalog import Servable
from serving.tokens.images import decode
from serving.tokens.live import Live
from serving.tokens.question import Question
from serving.tokens.refresh import Refresher
from serving.tokens.settings import TokensSettings

ORIGINS = ("task_version", "backbone_version", "profile_version", "variant", "variant_version")
"""Labels of the metric that says what gave the answers."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What the endpoint is put together from."""

    settings: TokensSettings
    driver: Driver
    live: Live
    refresher: Refresher
    metrics: Metrics
    used: Callable[[Servable], Sequence[int]]  # settings that the policy may use


class TokensEndpoint:
    def __init__(self, parts: Dependencies) -> None:
        self._parts, self._driver, self._live, self.settings = parts, parts.driver, parts.live, parts.settings
        self.metrics = parts.metrics

    @property
    def now(self) -> float:
        return self._driver.now

    @property
    def ready(self) -> bool:
        return self._driver.ready

    @property
    def alive(self) -> bool:
        return self._driver.alive

    async def predict(self, question: Question, arrived: float) -> dict[str, Any]:
        """The answer to a question whose deadline counts from `arrived` on this endpoint's clock.

        Raises `ApiError` for overload and unknown tasks, `InputError` for what is no usable image.
        """
        self._check_task(question.task)
        pixels = await decode(question.image, self._live.catalog.image_size, self.settings.max_image_pixels)
        self._check_task(question.task)  # decoding may have taken a while
        left = question.deadline - (self._driver.now - arrived)
        answer = await self._driver.submit(question.task, left, question.utility, (question.task, pixels))
        self.metrics.answered(question.task, answer)
        if isinstance(answer, Rejected):
            raise refusal_of_drop(answer, question.deadline)
        return self._answer(question.task, answer)

    def _check_task(self, task: str) -> None:
        if not self._live.accepts(task):
            raise unknown(task, "task", self._live.tasks)

    def _answer(self, task: str, served: Completed) -> dict[str, Any]:
        """The versions are those that the output itself names, whatever is live by now."""
        *digests, probabilities = served.output
        source = self._live.source((digests[0], digests[1]))
        versions = {**source.versions, **(served.known or {})}
        self.metrics.originated(task, _labels(versions, source.variant))
        shares = [round(share, 6) for share in probabilities.tolist()]
        return {
            "task": task,
            "label": source.classes[int(probabilities.argmax())],
            "probabilities": dict(zip(source.classes, shares, strict=True)),
            "gamma": served.setting if source.variant is None else 0,
            "batch_size": served.batch,
            "queue_seconds": served.queue_seconds,
            "run_seconds": served.run_seconds,
            "on_time": served.on_time,
            "variant": source.variant,
            "versions": versions,
        }

    async def register(self, name: str, which: str | int | None) -> dict[str, Any]:
        """Serve a further task of the registry, or another version of one (under an alias or number), from now on.

        Raises as `Refresher.register`.
        """
        await self._parts.refresher.register(name, which)
        return dict(self._live.tasks[name])

    async def refresh(self) -> dict[str, Any]:
        """Take up what the alias points to, now. Raises as `Refresher.refresh`."""
        return (await self._parts.refresher.refresh()).plain()

    def tasks(self) -> list[Mapping[str, Any]]:
        return list(self._live.tasks.values())

    def status(self) -> dict[str, Any]:
        catalog, refresher = self._live.catalog, self._parts.refresher
        return {
            "ready": self.ready,
            "policy": self.settings.policy,
            "gammas": list(self._parts.used(catalog)),
            "alias": self.settings.alias,
            **catalog.described(),
            "tasks": self.tasks(),
            "refresh": refresher.last.plain(),
            "refresh_seconds": refresher.seconds,
            "waiting": self._driver.waiting,
            "pending": self._driver.pending,
        }


def _labels(versions: Mapping[str, int], variant: str | None) -> Mapping[str, object]:
    return {f"{kind}_version": version for kind, version in versions.items()} | {"variant": variant or ""}
