"""The cascade's HTTP routes over an endpoint that answers by rote: what their tests share."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from prometheus_client import CollectorRegistry

from pliant.cascade.outcomes import Answered
from serving.cascade_api import create_app
from serving.cascade_outcomes import Outcomes
from serving.cascade_question import Question
from serving.refusals import Refusal, error_content
from serving.settings import Settings


@dataclass
class Described:
    classes: tuple[str, ...]
    pair: bool
    max_length: int = 128


REVIEWS = Described(("negative", "neutral", "positive"), False)
TASKS = {"reviews": REVIEWS, "paraphrase": Described(("no", "yes"), True), "similarity": Described((), True)}
SHARES = (0.125, 0.25, 0.625)


@dataclass
class Refused:
    counts: Counter = field(default_factory=Counter)

    def refused(self, code: str) -> None:
        self.counts[code] += 1


class RoteEndpoint:
    """Answers the last class (a regression: 0.5), and to "late" with an error; cuts texts of more than 1,000 characters.

    `trouble` is raised for whole questions.
    """

    def __init__(self, tasks: dict[str, Described], settings: Settings) -> None:
        self.settings, self.metrics, self.now = settings, Refused(), 1.0
        self.served, self.asked, self.ready = tasks, [], True
        self.counted = CollectorRegistry()
        self.outcomes = Outcomes(self.counted)
        self.trouble: Refusal | None = None

    def tasks(self) -> list[dict[str, Any]]:
        return [{"name": name, "classes": list(task.classes)} for name, task in self.served.items()]

    def describe(self, task: str) -> Described:
        return self.served[task]

    def status(self) -> dict[str, Any]:
        return {"ready": self.ready, "outcomes": self.outcomes.plain()}

    async def refresh(self) -> dict[str, Any]:
        return {"outcome": "unchanged", "message": "", "changed": {}}

    def outcome(self, id: str, label: str | float) -> dict[str, Any]:
        return self.outcomes.take(id, label)

    async def predict(self, question: Question, arrived: float) -> dict[str, Any]:
        self.asked.append(question)
        if self.trouble:
            raise self.trouble
        return {"task": question.task, "answers": [self._answer(question.task, *text) for text in question.texts]}

    def _answer(self, task: str, first: str, second: str | None) -> dict[str, Any]:
        assert first.encode() and (second is None or second.encode()), "UTF-8 can hold it"
        if first == "late":
            return error_content(Refusal(503, "late", "deadline is 1 second, within which there is no way", "deadline"))
        classes = self.served[task].classes
        id, label = f"rote-{len(self.asked)}", classes[-1] if classes else 0.5
        answered = Answered(task, 3, "default", "small", label, 0.625, 0.75, 0.25, classes)
        self.outcomes.remember(id, answered)
        return {
            "id": id,
            "label": label,
            "confidence": 0.625,
            "level": "small",
            "probabilities": dict(zip(classes, SHARES[-len(classes) :], strict=True)) if classes else None,
            "truncated": len(first) > 1000,
            "reason": "",
        }


class Service:
    """The app over the endpoint."""

    def __init__(self, *tasks: str, settings: Settings | None = None) -> None:
        chosen = {name: TASKS[name] for name in tasks or TASKS}
        self.endpoint = RoteEndpoint(chosen, settings or Settings(max_body_bytes=2_000_000, max_texts=8))
        self.app = create_app(Path(__file__).parent)
        self.app.state.endpoint = self.endpoint

    def call(self, method: str, path: str, content: bytes | None = None, kind: str = "application/json"):
        async def main() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.request(method, path, content=content, headers={"content-type": kind})

        return asyncio.run(main())

    def post(self, path: str, value: object) -> httpx.Response:
        return self.call("POST", path, json.dumps(value).encode())

    def ask(self, **fields: Any) -> httpx.Response:
        return self.post("/predict", fields)
