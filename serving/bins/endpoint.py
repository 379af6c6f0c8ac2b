"""What the bins service does, apart from HTTP: read texts, have them run, and say how that came about.

Knows generations and streams; knows nothing of bodies, APIs, BentoML or how a runtime runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pliant.bins.artifact import Shape
from serving.answers import Completed, Rejected
from serving.bins.catalog import Catalog, ServedEncoder, ServedStream
from serving.bins.question import Answer, Question
from serving.bins.reading import TokenReader, Tokens
from serving.bins.settings import BinsSettings
from serving.clock import Clock
from serving.http import tei
from serving.http.api_errors import ApiError, refusal_of_drop
from serving.http.questions import unknown, which
from serving.lifecycle.generation import Generation
from serving.lifecycle.refresh import Refresher
from serving.metrics import Metrics

WRONG_HEAD = {"embedding": "Model is not an embedding model", "classification": "Model is not a classifier model"}
"""In TEI's words."""
ORIGINS = ("stream_version", "bin")
"""Labels of the metric that says what gave the answers."""

AT_ONCE = 16 * 1024  # characters of one request that are read before anybody else has a turn


@dataclass(frozen=True, slots=True)
class Way:
    """A stream as it is served, with its tokenizer."""

    served: ServedStream
    reader: TokenReader
    shapes: Sequence[str]  # of all streams, by a launch's setting


def ways(catalog: Catalog) -> dict[str, Way]:
    """Raises `ArtifactError` for a tokenizer that cannot be used."""
    shapes = [bin_name(shape) for _, shape in catalog.shapes]
    return {
        name: Way(served, TokenReader(served.encoder.tokenizer, served.encoder.max_length), shapes)
        for name, served in catalog.streams.items()
    }


def bin_name(shape: Shape) -> str:
    return "dynamic" if shape.dynamic else f"{shape.length}x{shape.batch}"


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What the endpoint is put together from."""

    settings: BinsSettings
    refresher: Refresher[Catalog, Way]
    metrics: Metrics
    clock: Clock


class BinsEndpoint:
    def __init__(self, parts: Dependencies) -> None:
        self._parts, self._generations = parts, parts.refresher.generations
        self.settings, self.metrics, self._clock = parts.settings, parts.metrics, parts.clock

    @property
    def now(self) -> float:
        return self._clock()

    @property
    def ready(self) -> bool:
        return self._generations.present.driver.ready

    @property
    def alive(self) -> bool:
        return self._generations.present.driver.alive

    def tasks(self) -> Sequence[str]:
        return list(self._generations.present.ways)

    def which(self, name: object, field: str, head: str | None) -> str:
        """The stream that `field` names, or the only one (with that head).

        Raises `ApiError` (404) for one that is not served, and (424) for one with another head.
        """
        served = self._generations.present.ways
        choice = list(served)
        if name is None:
            choice = [one for one in choice if head in (None, served[one].served.encoder.head)] or choice
        name = which(name, field, choice)
        if head not in (None, served[name].served.encoder.head):
            raise ApiError(424, "wrong_head", WRONG_HEAD[str(head)], field)
        return name

    def describe(self, task: str) -> ServedEncoder:
        """Of a stream that is served."""
        return self._generations.present.ways[task].served.encoder

    async def run(self, question: Question, arrived: float) -> Answer:
        """Deadlines count from `arrived` on this endpoint's clock.

        Raises `ApiError` where one of the texts has no answer, whatever the others have.
        """
        present, way, tokens = await self._read(question)
        limit = way.served.bins.slo if question.deadline is None else question.deadline
        left = limit - (self.now - arrived)
        # All reach the scheduler in this turn of the loop, or the next generation could have taken over in between.
        submits = [
            present.driver.submit(question.task, left, 1.0, (one.ids, one.types), len(one.ids)) for one in tokens
        ]
        found = [await submits[0]] if len(submits) == 1 else await asyncio.gather(*submits)
        for one in found:
            self._note(question.task, way, one)
        served = [one for one in found if isinstance(one, Completed)]
        dropped = [one for one in found if isinstance(one, Rejected)]
        if dropped:
            raise refusal_of_drop(dropped[0], limit)
        return Answer(
            encoder=way.served.encoder,
            outputs=[one.output for one in served],
            lengths=[len(one.ids) for one in tokens],
            bins=[way.shapes[one.setting] for one in served],
            queue_seconds=max(one.queue_seconds for one in served),
            run_seconds=max(one.run_seconds for one in served),
        )

    async def _read(self, question: Question) -> tuple[Generation[Catalog, Way], Way, list[Tokens]]:
        """Tokens of all texts, as one and the same generation reads them, which is still the present one."""
        while True:
            present = self._generations.present
            if question.task not in present.ways:  # the alias went since it was asked for
                raise unknown(question.task, "task", present.ways)
            way = present.ways[question.task]
            tokens, read = [], 0
            for first, second in question.texts:
                if read > AT_ONCE:
                    await asyncio.sleep(0)
                    read = 0
                tokens.append(self._tokens(way, question, first, second))
                read += len(first) + len(second or "")
            if present is self._generations.present:
                return present, way, tokens

    def _tokens(self, way: Way, question: Question, first: str, second: str | None) -> Tokens:
        tokens = way.reader.read(first, second, question.left)
        if tokens.truncated:
            most = way.served.encoder.max_length
            if not question.truncate:
                raise tei.too_long(most)
            if question.left and second is not None:
                raise tei.not_left(most, "a pair")
        return tokens

    def _note(self, task: str, way: Way, found: Completed | Rejected) -> None:
        self.metrics.answered(task, found)
        if isinstance(found, Completed):
            origin = {"stream_version": way.served.version, "bin": way.shapes[found.setting]}
            self.metrics.originated(task, origin)

    async def refresh(self) -> dict[str, Any]:
        """Take up what the alias points to, now. Raises as a look does."""
        return (await self._parts.refresher.poller.poll()).plain()

    def status(self) -> dict[str, Any]:
        present, poller = self._generations.present, self._parts.refresher.poller
        return {
            "ready": self.ready,
            "alias": self.settings.alias,
            "generation": present.number,
            "leaving": self._generations.leaving,
            "workers": self.settings.workers,
            "least_workers": self.settings.least_workers or self.settings.workers,
            "pool": self.settings.pool,
            "policy": self.settings.policy,
            "dispatch": self.settings.dispatch,
            "placement": present.catalog.placement,
            "streams": [_stream(way.served) for way in present.ways.values()],
            "refresh": poller.last.plain(),
            "refresh_seconds": poller.seconds,
            "waiting": present.driver.waiting,
            "pending": present.driver.pending,
        }


def _stream(served: ServedStream) -> dict[str, Any]:
    bins, encoder = served.bins, served.encoder
    return {
        "name": bins.name,
        "version": served.version,
        "digest": served.digest,
        "encoder": {"version": encoder.version, "digest": encoder.digest},
        "head": encoder.head,
        "classes": list(encoder.classes),
        "max_length": encoder.max_length,
        "slo": bins.slo,
        "device": bins.device_class,
        "engine": bins.engine,
        "bins": [bin_name(shape) for shape in bins.shapes],
        "seconds": list(bins.seconds),
    }
