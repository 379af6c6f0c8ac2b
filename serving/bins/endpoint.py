"""The bins service apart from HTTP: it reads texts, runs them and returns their outputs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool

from pliant.bins.artifact import Bins, Shape
from pliant.errors import InputError
from pliant.models.text import USUAL
from pliant.serving.bins.answer import shares
from pliant.serving.bins.bodies import Answer, Encoder, Input, TextRequest, TokenIds, TokensRequest, is_reranker
from pliant.serving.bins.catalog import Catalog, ServedEncoder, ServedStream
from pliant.serving.bins.messages import UnpooledPayload
from pliant.serving.bins.reading import Token, TokenReader, Tokens
from pliant.serving.bins.settings import BinsSettings
from pliant.serving.driver import Completed, Rejected
from pliant.serving.http import tei
from pliant.serving.http.api_errors import ApiError, api_error_of_drop
from pliant.serving.http.app import select
from pliant.serving.http.bodies import shorten
from pliant.serving.lifecycle.endpoint import Endpoint, described_devices, run_each, width
from pliant.serving.lifecycle.generation import Generation
from pliant.serving.loop.drift import LENGTHS, Kind, Reading, class_readings
from pliant.serving.loop.observe import Observation, Served
from pliant.watch.binning import logarithmic

WRONG_HEAD = {
    "embedding": "Model is not an embedding model",
    "classification": "Model is not a classifier model",
    "reranker": "model is not a re-ranker model",
}
"""TEI's error message, by what the encoder cannot do."""
MAX_UNPOOLED = 4096  # tokens of a request that get an embedding each: some 20 MB as JSON, at a width of 384
AT_ONCE = 16 * 1024  # characters of a request that are tokenized before other requests have a turn


@dataclass(frozen=True, slots=True)
class Handler:
    """A stream that is served, with its tokenizer."""

    served: ServedStream
    reader: TokenReader
    shapes: Sequence[str]  # names of all streams' shapes, by a launch's setting
    first: int = 0  # setting of the stream's own first shape


def handlers_of(catalog: Catalog) -> dict[str, Handler]:
    """Return the streams of a catalog with their tokenizers. Raises `ArtifactError` for an unusable tokenizer."""
    shapes = [bin_name(shape) for _, shape in catalog.shapes]
    owners = [name for name, _ in catalog.shapes]
    return {
        name: Handler(served, _reader(served.encoder), shapes, owners.index(served.bins.name))
        for name, served in catalog.streams.items()
    }


def _reader(encoder: ServedEncoder) -> TokenReader:
    return TokenReader(encoder.tokenizer, encoder.max_length, encoder.vocabulary)


def bin_name(shape: Shape) -> str:
    """Return length x batch of a shape, or "dynamic"."""
    return "dynamic" if shape.dynamic else f"{shape.length}x{shape.batch}"


class BinsEndpoint(Endpoint[BinsSettings, Catalog, Handler]):
    """Embeds and classifies texts."""

    def tasks(self) -> Sequence[str]:
        """Return the names of the streams."""
        return list(self._generations.present.handlers)

    def select(self, name: object, field: str, head: str | None) -> str:
        """Return the stream that a request names in `field`, or else the only one (that does what `head` says).

        `head`: a key of `WRONG_HEAD`, or None for any. Raises `InputError` if a name is needed, `ApiError` (404) for a
        stream that is not served, (424) for one that does something else.
        """
        served = self._generations.present.handlers
        streams = list(served)
        if name is None:
            streams = [stream for stream in served if head in _abilities(served[stream].served.encoder)] or streams
        name = select(name, field, streams)
        if head not in _abilities(served[name].served.encoder):
            raise ApiError(424, "wrong_head", WRONG_HEAD[str(head)], field)
        return name

    def describe(self, task: str) -> ServedEncoder:
        """Return the encoder of a stream that is served."""
        return self._generations.present.handlers[task].served.encoder

    def version(self, task: str) -> int:
        """Return the version of a stream that is served."""
        return self._generations.present.handlers[task].served.version

    async def run(self, request: TextRequest, arrived: float) -> Answer:
        """Return the outputs of all texts; the deadline counts from `arrived`, on this endpoint's clock.

        Raises `ApiError` if any text gets no output.
        """
        deadline = request.deadline
        if deadline is None:
            deadline = self.handler(request.task).served.bins.slo
        return await self.route_trial(partial(self._run, request), arrived, deadline)

    async def _run(self, request: TextRequest, arrived: float) -> Served[Answer]:
        results = None
        while results is None:
            present, handler, tokens = await self._read(request)
            if request.unpooled:
                _check_unpooled(handler, tokens)
            limit = handler.served.bins.slo if request.deadline is None else request.deadline
            results = await self._submit(request, present, tokens, arrived + limit)
        rejected = [result for result in results if isinstance(result, Rejected)]
        observed = self._observe(request, handler, tokens, results, whole=not rejected)
        if rejected:
            raise api_error_of_drop(rejected[0], limit)
        completed = [result for result in results if isinstance(result, Completed)]
        answer = Answer(
            encoder=handler.served.encoder,
            version=handler.served.version,
            outputs=[result.output for result in completed],
            lengths=[len(text.ids) for text in tokens],
            bins=[handler.shapes[result.setting] for result in completed],
            queue_seconds=max(result.queue_seconds for result in completed),
            run_seconds=max(result.run_seconds for result in completed),
        )
        return Served(answer, observed)

    def _observe(
        self,
        request: TextRequest,
        handler: Handler,
        tokens: Sequence[Tokens],
        results: Sequence[Completed | Rejected],
        whole: bool,
    ) -> list[Observation]:
        """Count the texts, and return what was observed of those with an output.

        `whole`: the request gets an answer, without which drift detection counts nothing.
        """
        observed, task = [], request.task
        for text, result in zip(tokens, results, strict=False):  # fewer results, of any texts, where one is rejected
            if isinstance(result, Rejected):
                self.metrics.dropped(task, result.reason)
                continue
            bin, number = handler.shapes[result.setting], result.setting - handler.first
            known = observation(task, handler.served, bin, number, len(text.ids), result)
            if not whole or request.unpooled:
                known = replace(known, readings=())
            observed.append(self._observer.observe(known))
        return observed

    async def _submit(
        self, request: TextRequest, present: Generation[Catalog, Handler], tokens: list[Tokens], deadline: float
    ) -> list[Completed | Rejected] | None:
        """Return the results of the texts, up to the first that is rejected.

        Return None if another generation takes over before all are submitted.
        """

        rejected = False

        async def submit(text: Tokens) -> Completed | Rejected:
            nonlocal rejected
            left = deadline - self.now
            payload = UnpooledPayload(text.ids, text.types) if request.unpooled else (text.ids, text.types)
            result = await present.driver.submit(request.task, left, 1.0, payload, len(text.ids), client=request.client)
            rejected |= isinstance(result, Rejected)
            return result

        if len(tokens) == 1:
            return [await submit(tokens[0])]
        shapes = present.handlers[request.task].served.bins.shapes
        most = width(self.settings.workers, max(shape.batch for shape in shapes))
        results = await run_each(tokens, submit, most, lambda: not rejected and present is self._generations.chosen)
        known = [result for result in results if result is not None]
        return known if rejected or len(known) == len(tokens) else None

    async def _read(self, request: TextRequest) -> tuple[Generation[Catalog, Handler], Handler, list[Tokens]]:
        """Return the present generation, the request's handler there, and the tokens of all texts."""
        while True:
            present, handler = self._generations.chosen, self.handler(request.task)
            tokens, read = [], 0
            for text in request.texts:
                if read > AT_ONCE:
                    await asyncio.sleep(0)
                    read = 0
                tokens.append(self._tokens(handler, request, text))
                read += len(text.ids) if isinstance(text, TokenIds) else len(text[0]) + len(text[1] or "")
            if present is self._generations.chosen:
                return present, handler, tokens

    def _tokens(self, handler: Handler, request: TextRequest, text: Input) -> Tokens:
        if isinstance(text, TokenIds):
            check_ids(text, handler.reader.vocabulary)
        if request.prompt_name is not None:
            text = _prompted(handler, text, request.prompt_name, request.left)
        if isinstance(text, TokenIds):
            tokens = handler.reader.read_ids(text.ids, request.left)
        else:
            tokens = handler.reader.read(*text, request.left)
        if tokens.truncated:
            max_length = handler.served.encoder.max_length
            if not request.truncate:
                raise tei.too_long(max_length)
            if request.left and not isinstance(text, TokenIds) and text[1] is not None:
                raise tei.not_left(max_length, "a pair")
        return tokens

    async def tokenize(self, request: TokensRequest) -> list[list[Token]]:
        """Return the tokens of each text, however long. Raises `ApiError` for a prompt that the encoder lacks."""
        handler = self.handler(request.task)
        prompt = "" if request.prompt_name is None else _prompt(handler.served.encoder, request.prompt_name)
        tokens = handler.reader.tokens
        return await run_in_threadpool(lambda: [tokens(prompt + text, request.special) for text in request.texts])

    async def decode(self, task: str, texts: Sequence[Sequence[int]], skip_special: bool) -> list[str]:
        """Return the text of each list of token ids."""
        decode = self.handler(task).reader.decode
        return await run_in_threadpool(lambda: [decode(ids, skip_special) for ids in texts])

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


def check_ids(text: TokenIds, vocabulary: int) -> None:
    """Raise `InputError` for a token id that the encoder does not know."""
    highest = max(text.ids)
    if highest >= vocabulary:
        wanted = f"below {vocabulary}, as these are no token ids of this encoder's own tokenizer"
        raise InputError(text.name, f"a list with the id {highest}", wanted)


def _check_unpooled(handler: Handler, texts: Sequence[Tokens]) -> None:
    """Raise `ApiError` (424) if a stream's runtimes give no embeddings of tokens, (413) for too many tokens."""
    bins = handler.served.bins
    if bins.engine == "onnx" and not bins.unpooled:
        message = f"`embed_all` is not available for {bins.name}: its runtimes were compiled without; profile it again"
        raise ApiError(424, "not_compiled", message)
    count = sum(len(text.ids) for text in texts)
    if count > MAX_UNPOOLED:
        message = f"inputs have {count} tokens together, but must have at most {MAX_UNPOOLED}, each with an embedding"
        raise ApiError(413, "too_many_tokens", message, "inputs")


def _abilities(encoder: Encoder) -> tuple[str | None, ...]:
    """Return what an encoder does: its head, and reranking where that gives one score; None stands for anything."""
    return None, encoder.head, *(("reranker",) if is_reranker(encoder) else ())


def _prompted(handler: Handler, text: Input, name: str, left: bool) -> Input:
    """Return the text behind the prompt of this name. Token ids become text for that, as in TEI.

    Ids that are far too many are cut before, at the end (`left`: the beginning) where tokens are cut later.
    """
    prompt = _prompt(handler.served.encoder, name)
    if isinstance(text, TokenIds):
        most = USUAL * handler.served.encoder.max_length
        return prompt + handler.reader.decode(text.ids[-most:] if left else text.ids[:most]), None
    return prompt + text[0], text[1]


def _prompt(encoder: Encoder, name: str) -> str:
    """Return the prompt of this name. Raises `ApiError` with TEI's status if there is none."""
    if name in encoder.prompts:
        return encoder.prompts[name]
    known = ", ".join(map(shorten, encoder.prompts))
    wanted = (
        f"one of {known}" if known else "left out: no prompts were found in the Sentence Transformers configuration"
    )
    raise ApiError(413, "unknown_prompt", f"prompt_name is {shorten(name)}, but must be {wanted}", "prompt_name")


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


# A duration over what the profile holds. Launches close in time share what slows them: a machine's other work, its clock.
FACTORS = Kind(logarithmic(0.1, 10), burst=8.0)


def observation(task: str, served: ServedStream, bin: str, number: int, length: int, result: Completed) -> Observation:
    """Return what is known of a text of `length` tokens. `number`: of its shape among the stream's own, or less than 0 where
    that is not known."""
    classes, readings = served.encoder.classes, [Reading(f"tokens of {task}", length, LENGTHS)]
    if (factor := _factor(served.bins, number, result.run_seconds)) is not None:
        readings.append(Reading(f"time of {task} over its profile", factor, FACTORS))
    label, confidence = result.output, None
    if classes:
        shares_K = shares(result.output)
        best = int(shares_K.argmax())
        label, confidence = classes[best], float(shares_K[best])
        readings += class_readings(task, classes, best, confidence)
    return Observation(
        task=task,
        version=served.version,
        outcome=result.outcome,
        origin={"stream_version": served.version, "bin": bin},
        measured={"queue_seconds": result.queue_seconds},
        label=label,
        confidence=confidence,
        readings=readings,
    )


def _factor(bins: Bins, number: int, seconds: float) -> float | None:
    known = 0 <= number < len(bins.seconds) and bins.seconds[number] > 0
    return seconds / bins.seconds[number] if known else None
