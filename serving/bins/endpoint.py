"""The bins service apart from HTTP: it reads texts, runs them and returns their outputs.

A text that need not be truncated is tokenized without offsets, which is faster; any other goes through `Reader`
(pliant/models/text.py), which gives the same tokens. A client may send token ids instead, and ask for the tokens of a text
and for the text of tokens. Shape suffixes: N tokens (special ones included), K classes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from tokenizers import Encoding, Tokenizer

from pliant.bins.artifact import Encoder, Shape
from pliant.errors import InputError
from pliant.models.text import LONGEST, USUAL, Reader
from pliant.serving.bins.catalog import Catalog, ServedStream
from pliant.serving.bins.messages import Output, UnpooledPayload
from pliant.serving.bins.settings import BinsSettings
from pliant.serving.client import ANYBODY, Client
from pliant.serving.driver import Completed, Rejected
from pliant.serving.http import tei
from pliant.serving.http.api_errors import ApiError, api_error_of_drop
from pliant.serving.http.app import select
from pliant.serving.http.bodies import shorten
from pliant.serving.lifecycle.endpoint import Endpoint, described_devices, run_each, width
from pliant.serving.lifecycle.generation import Generation
from pliant.serving.loop.observe import LENGTHS, Kind, Observation, Reading, Served, class_readings
from pliant.watch.binning import logarithmic

WRONG_HEAD = {
    "embedding": "Model is not an embedding model",
    "classification": "Model is not a classifier model",
    "reranker": "model is not a re-ranker model",
}
"""TEI's error message, by what the encoder cannot do."""
MAX_UNPOOLED = 4096  # tokens of a request that get an embedding each: some 20 MB as JSON, at a width of 384
AT_ONCE = 16 * 1024  # characters of a request that are tokenized before other requests have a turn
# A duration over what the profile holds. Launches close in time share what slows them: a machine's other work, its clock.
FACTORS = Kind(logarithmic(0.1, 10))


@dataclass(frozen=True, slots=True)
class TokenIds:
    """A text as token ids of the encoder's own tokenizer. Special tokens are there only if the client put them there."""

    name: str  # in errors
    ids: tuple[int, ...]  # at least one, from 0 on


Input = tuple[str, str | None] | TokenIds
"""A text (its second is None), a pair of texts, or token ids."""


@dataclass(frozen=True, slots=True)
class TextRequest:
    """Texts for one stream. Each is scheduled by itself; all get outputs, or the request fails."""

    task: str
    texts: Sequence[Input]
    deadline: float | None = None  # seconds from arrival; None: the stream's SLO
    truncate: bool = True  # or a text that is too long is an error
    left: bool = False  # truncate at the beginning
    client: Client = ANYBODY
    prompt_name: str | None = None  # of the encoder's prompt that is put before each single text
    unpooled: bool = False  # an embedding [N, H] for each token instead of one


@dataclass(frozen=True, slots=True)
class Answer:
    """One output per text, in order, and how they came about."""

    encoder: Encoder  # without its weights
    version: int  # of the stream
    outputs: Sequence[Output]
    lengths: Sequence[int]  # tokens of each text
    bins: Sequence[str]  # length x batch of the runtime that ran it, or "dynamic"
    queue_seconds: float  # the longest
    run_seconds: float  # the longest


@dataclass(frozen=True, slots=True)
class Tokens:
    """A text, or a pair of texts, as token ids."""

    ids: NDArray[np.int32]  # [N], at least one
    types: NDArray[np.int8]  # [N], the text of a pair that each token belongs to
    truncated: bool  # some of the text is missing


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a text."""

    id: int
    text: str  # the part of the text that it stands for, or the name of a special token
    special: bool
    start: Annotated[int | None, Field(description="its first byte in the UTF-8 of prompt and text; null if special")]
    stop: Annotated[int | None, Field(description="the byte behind its last")]


class TokenReader:
    """The tokenizer of one encoder; immutable. Raises as `Reader`.

    `vocabulary`: the encoder takes token ids below it; 0: those that the tokenizer knows.
    """

    def __init__(self, tokenizer_json: str, max_length: int, vocabulary: int = 0) -> None:
        self._reader = Reader(tokenizer_json, max_length)
        self._tokenizer = Tokenizer.from_str(tokenizer_json)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._max_length = max_length
        self.vocabulary = vocabulary or max(self._tokenizer.get_vocab(True).values(), default=-1) + 1

    def read(self, first: str, second: str | None = None, left: bool = False) -> Tokens:
        """Return at most `max_length` tokens. `left`: truncate at the beginning, which only a single text allows."""
        if len(first) + len(second or "") <= USUAL * self._max_length:
            encoding = self._encode(first, second)
            if 0 < len(encoding) <= self._max_length:
                return Tokens(np.array(encoding.ids, np.int32), np.array(encoding.type_ids, np.int8), False)
        if not left or second is not None:
            reading = self._reader.read(first, second)
            return Tokens(reading.ids, reading.types, reading.truncated)
        tail = first[-LONGEST * self._max_length :]
        encoding = self._encode(tail, None)
        over, kept = len(encoding) - self._max_length, []
        for index, sequence in enumerate(encoding.sequence_ids):  # the last tokens, between the special ones
            if sequence is None or over <= 0:
                kept.append(index)
            else:
                over -= 1
        ids, types = np.array(encoding.ids, np.int32)[kept], np.array(encoding.type_ids, np.int8)[kept]
        return Tokens(ids, types, len(kept) < len(encoding) or len(tail) < len(first))

    def read_ids(self, ids: Sequence[int], left: bool = False) -> Tokens:
        """Return token ids as they are, without further special tokens; at most `max_length`, from either end."""
        kept = ids[-self._max_length :] if left else ids[: self._max_length]
        return Tokens(np.array(kept, np.int32), np.zeros(len(kept), np.int8), len(kept) < len(ids))

    def tokens(self, text: str, special: bool = True) -> list[Token]:
        """Return all tokens of a text, however long. `special`: with the special tokens that the tokenizer adds."""
        encoding = self._tokenizer.encode(text, add_special_tokens=special)
        places = None if text.isascii() else [0, *accumulate(len(character.encode()) for character in text)]
        values = zip(encoding.ids, encoding.tokens, encoding.offsets, encoding.special_tokens_mask, strict=True)
        tokens = []
        for id, name, (start, stop), is_special in values:
            if is_special:
                tokens.append(Token(id, name, True, None, None))
            else:
                span = (start, stop) if places is None else (places[start], places[stop])
                tokens.append(Token(id, text[start:stop], False, *span))
        return tokens

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Return the text of token ids; ids that the tokenizer lacks are left out."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=skip_special)

    def _encode(self, first: str, second: str | None) -> Encoding:
        (encoding,) = self._tokenizer.encode_batch_fast([first if second is None else (first, second)])
        return encoding


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
    handlers = {}
    for name, served in catalog.tasks.items():
        encoder = served.encoder.artifact
        vocabulary = int(json.loads(encoder.config).get("vocab_size", 0))
        reader = TokenReader(encoder.tokenizer, served.max_length, vocabulary)
        handlers[name] = Handler(served, reader, shapes, owners.index(name))
    return handlers


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
            streams = [stream for stream in served if _can(served[stream].served.encoder.artifact, head)] or streams
        name = select(name, field, streams)
        if not _can(served[name].served.encoder.artifact, head):
            raise ApiError(424, "wrong_head", WRONG_HEAD[str(head)], field)
        return name

    def served(self, task: str) -> ServedStream:
        """Return a stream that is served."""
        return self._generations.present.handlers[task].served

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
        observed = []
        for text, result in zip(tokens, results, strict=False):  # fewer results, of any texts, where one is rejected
            if isinstance(result, Rejected):
                self.metrics.dropped(request.task, result.reason)
                continue
            known = observation(request.task, handler, len(text.ids), result, limit)
            if rejected or request.unpooled:  # drift detection counts nothing of a request that gets no answer
                known = replace(known, readings=())
            observed.append(self._observer.observe(known))
        if rejected:
            raise api_error_of_drop(rejected[0], limit)
        completed = [result for result in results if isinstance(result, Completed)]
        answer = Answer(
            encoder=handler.served.encoder.artifact,
            version=handler.served.version,
            outputs=[result.output for result in completed],
            lengths=[len(text.ids) for text in tokens],
            bins=[handler.shapes[result.setting] for result in completed],
            queue_seconds=max(result.queue_seconds for result in completed),
            run_seconds=max(result.run_seconds for result in completed),
        )
        return Served(answer, observed)

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
                tokens.append(_tokens(handler, request, text))
                read += len(text.ids) if isinstance(text, TokenIds) else len(text[0]) + len(text[1] or "")
            if present is self._generations.chosen:
                return present, handler, tokens

    async def tokenize(
        self, task: str, texts: Sequence[str], special: bool, prompt_name: str | None
    ) -> list[list[Token]]:
        """Return the tokens of each text, however long. Raises `ApiError` for a prompt that the encoder lacks."""
        handler = self.handler(task)
        prompt = "" if prompt_name is None else _prompt(handler.served.encoder.artifact, prompt_name)
        tokens = handler.reader.tokens
        return await run_in_threadpool(lambda: [tokens(prompt + text, special) for text in texts])

    async def decode(self, task: str, texts: Sequence[Sequence[int]], skip_special: bool) -> list[str]:
        """Return the text of each list of token ids."""
        decode = self.handler(task).reader.decode
        return await run_in_threadpool(lambda: [decode(ids, skip_special) for ids in texts])

    def status(self) -> dict[str, Any]:
        present, settings = self._generations.present, self.settings
        return {
            **self.common_status(),
            "workers": settings.workers,
            "devices": described_devices(settings, present.driver),
            "least_workers": settings.least_workers or settings.workers,
            "pool": settings.pool,
            "policy": settings.policy,
            "dispatch": settings.dispatch,
            "placement": present.catalog.placement,
            "streams": [_stream(handler.served) for handler in present.handlers.values()],
        }


def is_reranker(encoder: Encoder) -> bool:
    """Whether the encoder gives one score for a pair of texts: it classifies, and has a single class."""
    return encoder.head == "classification" and len(encoder.classes) < 2


def _can(encoder: Encoder, head: str | None) -> bool:
    """Whether an encoder does what `head` says; None stands for anything."""
    return head in (None, encoder.head) or (head == "reranker" and is_reranker(encoder))


def _tokens(handler: Handler, request: TextRequest, text: Input) -> Tokens:
    """Return what the encoder reads of a text. Raises `InputError` for an id that it does not know, and `ApiError`."""
    vocabulary, max_length = handler.reader.vocabulary, handler.served.max_length
    if isinstance(text, TokenIds) and (highest := max(text.ids)) >= vocabulary:
        wanted = f"below {vocabulary}, as these are no token ids of this encoder's own tokenizer"
        raise InputError(text.name, f"a list with the id {highest}", wanted)
    if request.prompt_name is not None:
        prompt = _prompt(handler.served.encoder.artifact, request.prompt_name)
        if isinstance(
            text, TokenIds
        ):  # they become text, as in TEI; far too many are cut before, where tokens are later
            most = USUAL * max_length
            ids = text.ids[-most:] if request.left else text.ids[:most]
            text = prompt + handler.reader.decode(ids), None
        else:
            text = prompt + text[0], text[1]
    if isinstance(text, TokenIds):
        tokens = handler.reader.read_ids(text.ids, request.left)
    else:
        tokens = handler.reader.read(*text, request.left)
    if tokens.truncated and not request.truncate:
        raise tei.too_long(max_length)
    if tokens.truncated and request.left and not isinstance(text, TokenIds) and text[1] is not None:
        raise tei.not_left(max_length, "a pair")
    return tokens


def _prompt(encoder: Encoder, name: str) -> str:
    """Return the prompt of this name. Raises `ApiError` with TEI's status if there is none."""
    if name in encoder.prompts:
        return encoder.prompts[name]
    known = ", ".join(map(shorten, encoder.prompts))
    wanted = (
        f"one of {known}" if known else "left out: no prompts were found in the Sentence Transformers configuration"
    )
    raise ApiError(413, "unknown_prompt", f"prompt_name is {shorten(name)}, but must be {wanted}", "prompt_name")


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


def _stream(served: ServedStream) -> dict[str, Any]:
    bins, encoder = served.bins, served.encoder
    return {
        "name": bins.name,
        "version": served.version,
        "digest": served.digest,
        "encoder": {"version": encoder.version, "digest": encoder.digest},
        "head": encoder.artifact.head,
        "classes": list(encoder.artifact.classes),
        "max_length": served.max_length,
        "slo": bins.slo,
        "device": bins.device_class,
        "engine": bins.engine,
        "precision": bins.precision,
        "bins": [bin_name(shape) for shape in bins.shapes],
        "seconds": list(bins.seconds),
    }


def observation(task: str, handler: Handler, length: int, result: Completed, limit: float) -> Observation:
    """Return what is known of a text of `length` tokens, which had `limit` seconds."""
    served, number = handler.served, result.setting - handler.first  # of the shape among the stream's own
    classes, seconds = served.encoder.artifact.classes, served.bins.seconds
    readings = [Reading(f"tokens of {task}", length, LENGTHS)]
    if 0 <= number < len(seconds) and seconds[number] > 0:  # the profile knows no seconds of the dynamic shape
        readings.append(Reading(f"time of {task} over its profile", result.run_seconds / seconds[number], FACTORS))
    label, confidence = result.output, None
    if classes:
        probabilities_K = probabilities(result.output)
        best = int(probabilities_K.argmax())
        label, confidence = classes[best], float(probabilities_K[best])
        readings += class_readings(task, classes, best, confidence)
    return Observation(
        task=task,
        version=served.version,
        outcome=result.outcome,
        origin={"stream_version": served.version, "bin": handler.shapes[result.setting]},
        measured={"queue_seconds": result.queue_seconds, "request_seconds": limit + result.late_by},
        label=label,
        confidence=confidence,
        readings=readings,
    )


def sigmoid(logits: Output) -> NDArray[np.float32]:
    """Return the sigmoid of each number."""
    with np.errstate(over="ignore"):  # exp may be inf, and 1 / inf is the 0 that is right
        return np.asarray(1 / (1 + np.exp(-logits)), np.float32)


def probabilities(logits_K: Output) -> NDArray[np.float32]:
    """Return the softmax over classes, or the sigmoid of a single output."""
    if len(logits_K) == 1:
        return sigmoid(logits_K)
    powers_K = np.exp(logits_K - logits_K.max())
    return np.asarray(powers_K / powers_K.sum(), np.float32)
