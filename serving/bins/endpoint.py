"""The bins service apart from HTTP: it reads texts, runs them and returns their outputs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pliant.bins.artifact import Shape
from serving.answers import Completed, Rejected
from serving.bins.catalog import Catalog, ServedEncoder, ServedStream
from serving.bins.reading import TokenReader, Tokens
from serving.bins.request import Answer, TextRequest
from serving.bins.settings import BinsSettings
from serving.http import tei
from serving.http.api_errors import ApiError, api_error_of_drop
from serving.http.routing import select, unknown_task
from serving.lifecycle.endpoint import Endpoint, described_devices
from serving.lifecycle.generation import Generation
from serving.window import run_each, width

WRONG_HEAD = {"embedding": "Model is not an embedding model", "classification": "Model is not a classifier model"}
"""TEI's error message, by the head that is missing."""
ORIGINS = ("stream_version", "bin")
"""Labels of the metric pliant_answers."""

AT_ONCE = 16 * 1024  # characters of a request that are tokenized before other requests have a turn


@dataclass(frozen=True, slots=True)
class Handler:
    """A stream that is served, with its tokenizer."""

    served: ServedStream
    reader: TokenReader
    shapes: Sequence[str]  # names of all streams' shapes, by a launch's setting


def handlers_of(catalog: Catalog) -> dict[str, Handler]:
    """Return the streams of a catalog with their tokenizers. Raises `ArtifactError` for an unusable tokenizer."""
    shapes = [bin_name(shape) for _, shape in catalog.shapes]
    return {
        name: Handler(served, TokenReader(served.encoder.tokenizer, served.encoder.max_length), shapes)
        for name, served in catalog.streams.items()
    }


def bin_name(shape: Shape) -> str:
    """Return length x batch of a shape, or "dynamic"."""
    return "dynamic" if shape.dynamic else f"{shape.length}x{shape.batch}"


class BinsEndpoint(Endpoint[BinsSettings, Catalog, Handler]):
    """Embeds and classifies texts."""

    def tasks(self) -> Sequence[str]:
        """Return the names of the streams."""
        return list(self._generations.present.handlers)

    def select(self, name: object, field: str, head: str | None) -> str:
        """Return the stream that a request names in `field`, or else the only one (with this head).

        Raises `InputError` if a name is needed, `ApiError` (404) for a stream that is not served, (424) for another head.
        """
        served = self._generations.present.handlers
        streams = list(served)
        if name is None:
            streams = [stream for stream in served if head in (None, served[stream].served.encoder.head)] or streams
        name = select(name, field, streams)
        if head not in (None, served[name].served.encoder.head):
            raise ApiError(424, "wrong_head", WRONG_HEAD[str(head)], field)
        return name

    def describe(self, task: str) -> ServedEncoder:
        """Return the encoder of a stream that is served."""
        return self._generations.present.handlers[task].served.encoder

    async def run(self, request: TextRequest, arrived: float) -> Answer:
        """Return the outputs of all texts; the deadline counts from `arrived`, on this endpoint's clock.

        Raises `ApiError` if any text gets no output.
        """
        results = None
        while results is None:
            present, handler, tokens = await self._read(request)
            limit = handler.served.bins.slo if request.deadline is None else request.deadline
            results = await self._submit(request, present, tokens, arrived + limit)
        for result in results:
            self._count(request.task, handler, result)
        completed = [result for result in results if isinstance(result, Completed)]
        rejected = [result for result in results if isinstance(result, Rejected)]
        if rejected:
            raise api_error_of_drop(rejected[0], limit)
        return Answer(
            encoder=handler.served.encoder,
            outputs=[result.output for result in completed],
            lengths=[len(text.ids) for text in tokens],
            bins=[handler.shapes[result.setting] for result in completed],
            queue_seconds=max(result.queue_seconds for result in completed),
            run_seconds=max(result.run_seconds for result in completed),
        )

    async def _submit(
        self, request: TextRequest, present: Generation[Catalog, Handler], tokens: list[Tokens], deadline: float
    ) -> list[Completed | Rejected] | None:
        """Return the results of the texts, up to the first that is rejected.

        Return None if another generation takes over before all are submitted.
        """

        rejected = False

        async def submit(text: Tokens) -> Completed | Rejected:
            nonlocal rejected
            left, payload = deadline - self.now, (text.ids, text.types)
            result = await present.driver.submit(request.task, left, 1.0, payload, len(text.ids), client=request.client)
            rejected |= isinstance(result, Rejected)
            return result

        if len(tokens) == 1:
            return [await submit(tokens[0])]
        shapes = present.handlers[request.task].served.bins.shapes
        most = width(self.settings.workers, max(shape.batch for shape in shapes))
        results = await run_each(tokens, submit, most, lambda: not rejected and present is self._generations.present)
        known = [result for result in results if result is not None]
        return known if rejected or len(known) == len(tokens) else None

    async def _read(self, request: TextRequest) -> tuple[Generation[Catalog, Handler], Handler, list[Tokens]]:
        """Return the present generation, the request's handler there, and the tokens of all texts."""
        while True:
            present = self._generations.present
            if request.task not in present.handlers:  # a new generation lacks the stream
                raise unknown_task(request.task, "task", present.handlers)
            handler = present.handlers[request.task]
            tokens, read = [], 0
            for first, second in request.texts:
                if read > AT_ONCE:
                    await asyncio.sleep(0)
                    read = 0
                tokens.append(self._tokens(handler, request, first, second))
                read += len(first) + len(second or "")
            if present is self._generations.present:
                return present, handler, tokens

    def _tokens(self, handler: Handler, request: TextRequest, first: str, second: str | None) -> Tokens:
        tokens = handler.reader.read(first, second, request.left)
        if tokens.truncated:
            max_length = handler.served.encoder.max_length
            if not request.truncate:
                raise tei.too_long(max_length)
            if request.left and second is not None:
                raise tei.not_left(max_length, "a pair")
        return tokens

    def _count(self, task: str, handler: Handler, result: Completed | Rejected) -> None:
        self.metrics.answered(task, result)
        if isinstance(result, Completed):
            origin = {"stream_version": handler.served.version, "bin": handler.shapes[result.setting]}
            self.metrics.originated(task, origin)

    def status(self) -> dict[str, Any]:
        present = self._generations.present
        return {
            **self.common_status(),
            "workers": self.settings.workers,
            "devices": described_devices(self.settings, present.driver),
            "least_workers": self.settings.least_workers or self.settings.workers,
            "pool": self.settings.pool,
            "policy": self.settings.policy,
            "dispatch": self.settings.dispatch,
            "placement": present.catalog.placement,
            "streams": [_stream(handler.served) for handler in present.handlers.values()],
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
        "precision": bins.precision,
        "bins": [bin_name(shape) for shape in bins.shapes],
        "seconds": list(bins.seconds),
    }
