"""What the packing service does, apart from HTTP: read prompts, forecast their outputs, have an engine make them.

Knows generations and models; knows nothing of bodies, BentoML or how an engine runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pliant.errors import InputError
from pliant.packing.engine.submission import Sampling, Submission
from pliant.packing.scheduling.request import FOREVER, Prompt
from serving.answers import Rejected
from serving.clock import Clock
from serving.http.api_errors import refusal_of_drop
from serving.lifecycle.generation import Generation
from serving.lifecycle.refresh import Refresher
from serving.packing.catalog import Catalog, ServedModel
from serving.packing.engine.engine import EngineDriver, Looked
from serving.packing.engine.engine_pool import EnginePool
from serving.packing.engine.forecaster import Forecast, Forecaster
from serving.packing.engine.in_flight import OPEN_CHARACTERS, InFlightOutput
from serving.packing.engine.metrics import PackingMetrics
from serving.packing.engine.observed import ObservedLengths
from serving.packing.openai import unknown_model
from serving.packing.question import Question
from serving.packing.reading import PromptReader, Tokens
from serving.packing.reply import About, Output, Reply
from serving.packing.settings import PackingSettings

AT_ONCE = 16 * 1024  # characters of one request that are read before anybody else has a turn
STRIDE = 0x9E3779B97F4A7C15  # between the seeds of a request's outputs: no small seed of another request is one of them
SEEDS = 1 << 63


@dataclass(frozen=True, slots=True)
class Way:
    """A model as it is served."""

    served: ServedModel
    created: int  # seconds since 1970
    reader: PromptReader
    forecaster: Forecaster
    engine: EngineDriver
    observed: ObservedLengths | None


Served = Generation[Catalog, Way, EnginePool]


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What the endpoint is put together from."""

    settings: PackingSettings
    refresher: Refresher[Catalog, Way, EnginePool]
    metrics: PackingMetrics
    clock: Clock


@dataclass(frozen=True, slots=True)
class _Read:
    """A question as one model reads it."""

    way: Way
    tokens: Sequence[Tokens]  # a prompt
    limits: Sequence[int]
    forecasts: Sequence[Forecast]


class PackingEndpoint:
    def __init__(self, parts: Dependencies) -> None:
        self._parts, self._generations = parts, parts.refresher.generations
        self.settings, self.metrics, self._clock = parts.settings, parts.metrics, parts.clock

    @property
    def now(self) -> float:
        return self._clock()

    @property
    def ready(self) -> bool:
        return all(way.engine.ready for way in self._generations.present.ways.values())

    @property
    def alive(self) -> bool:
        return all(way.engine.alive for way in self._generations.present.ways.values())

    def models(self) -> Mapping[str, int]:
        """Name -> when it was taken up."""
        return {name: way.created for name, way in self._generations.present.ways.items()}

    async def open(self, question: Question, arrived: float) -> Reply:
        """Have the outputs made. Deadlines count from `arrived` on this endpoint's clock.

        Raises `InputError` and `ApiError`, and then nothing is made.
        """
        read = await self._read(question)
        way = read.way
        self._check_room(way, question)  # once more: others came while this one was read
        reply = self._reply(question, read, arrived)
        way.engine.submit([output.flight for output in reply.outputs])
        for output in reply.outputs:
            self.metrics.arrived(way.served.packing.name, output.forecast.origin)
        return reply

    def _check_room(self, way: Way, question: Question) -> None:
        """Raises `ApiError` (429)."""
        if way.engine.waiting + len(question.prompts) * question.choices > self.settings.max_waiting:
            self.metrics.dropped(way.served.packing.name, "full")
            raise refusal_of_drop(Rejected("full"), question.deadline or FOREVER)

    async def _read(self, question: Question) -> _Read:
        """By one and the same generation, which is still the present one at the end."""
        while True:
            present = self._generations.present
            way = _which(present.ways, question.model)
            self._check_room(way, question)
            tokens = [await self._tokens(way, question, place) for place in range(len(question.prompts))]
            limits = [way.reader.most(one, question.most, question.most_name) for one in tokens]
            forecasts = await way.forecaster.forecast([one.text for one in tokens])
            if present is self._generations.present:
                return _Read(way, tokens, limits, forecasts)

    async def _tokens(self, way: Way, question: Question, place: int) -> Tokens:
        given = question.prompts[place]
        size = len(given.text) + sum(len(message["content"]) for message in given.messages)
        if size > AT_ONCE:  # the loop serves the others meanwhile
            return await asyncio.to_thread(way.reader.read, given)
        if place:
            await asyncio.sleep(0)
        return way.reader.read(given)

    def _reply(self, question: Question, read: _Read, arrived: float) -> Reply:
        served = read.way.served
        about = About(
            model=served.packing.name,
            fingerprint=f"fp_{served.digest[:12]}",
            prompt_tokens=sum(len(one.ids) for one in read.tokens),
            deadline=question.deadline or FOREVER,
            usage=question.usage,
            echo=question.echo,
        )
        reply = Reply(about, read.way.engine.cancel)
        count = len(read.tokens) * question.choices
        reply.outputs = [self._output(question, read, reply, index, arrived) for index in range(count)]
        return reply

    def _output(self, question: Question, read: _Read, reply: Reply, index: int, arrived: float) -> Output:
        way, place = read.way, index // question.choices
        tokens, forecast = read.tokens[place], read.forecasts[place]
        prompt = Prompt(
            id=way.engine.fresh_id(),
            arrival=arrived,
            tokens=len(tokens.ids),
            limit=read.limits[place],
            forecast=forecast.tokens,
            bucket=forecast.bucket,
            deadline=arrived + reply.about.deadline,
            utility=question.utility,
            offline=question.offline,
        )
        submission = Submission(prompt, tokens.ids, _seeded(question.sampling, index))
        writer = way.reader.writer(tokens.ids, question.stops)

        def hear(flight: InFlightOutput) -> None:
            if flight.finish:
                self._ended(way, output)
            reply.hear(flight)

        most_open = OPEN_CHARACTERS if question.stream else float("inf")
        flight = InFlightOutput(submission, writer, frozenset(way.served.generator.ends), hear, most_open)
        output = Output(index, flight, forecast, tokens.echo, tokens.text)
        return output

    def _ended(self, way: Way, output: Output) -> None:
        name = way.served.packing.name
        self.metrics.ended(name, way.served.generator.version, output)
        self.metrics.engine(name, way.engine.status)
        if way.observed is not None:
            way.observed.add(output, way.served.generator.digest)

    async def refresh(self) -> dict[str, Any]:
        """Take up what the alias points to, now. Raises as a look does."""
        return (await self._parts.refresher.poller.poll()).plain()

    async def status(self) -> dict[str, Any]:
        present, poller = self._generations.present, self._parts.refresher.poller
        return {
            "ready": self.ready,
            "alias": self.settings.alias,
            "generation": present.number,
            "leaving": self._generations.leaving,
            "policy": self.settings.policy,
            "models": [await self._model(way) for way in present.ways.values()],
            "refresh": poller.last.plain(),
            "refresh_seconds": poller.seconds,
            "waiting": sum(way.engine.waiting for way in present.ways.values()),
            "pending": sum(way.engine.pending for way in present.ways.values()),
        }

    async def _model(self, way: Way) -> dict[str, Any]:
        looked = await way.engine.look()
        name = way.served.packing.name
        self.metrics.engine(name, looked.status)
        return {**_described(way.served), "coverage": self.metrics.coverage(name), "engine": _engine(looked)}


def _which(ways: Mapping[str, Way], model: str | None) -> Way:
    """Raises `ApiError` (404) for one that is not served."""
    if model is None:
        if len(ways) > 1:
            raise InputError("model", "missing", f"given, as there is not just one: {', '.join(ways)}")
        return next(iter(ways.values()))
    if model not in ways:
        raise unknown_model(model, ways)
    return ways[model]


def _seeded(sampling: Sampling, index: int) -> Sampling:
    """Each output of a request draws by a seed of its own; the first by the one that was told."""
    return replace(sampling, seed=(sampling.seed + index * STRIDE) % SEEDS) if index else sampling


def _described(served: ServedModel) -> dict[str, Any]:
    packing, memory = served.packing, served.packing.memory
    generator, predictor = served.generator, served.predictor
    return {
        "name": packing.name,
        "version": served.version,
        "digest": served.digest,
        "generator": {"version": generator.version, "digest": generator.digest},
        "predictor": {"version": predictor.version, "digest": predictor.digest},
        "context": served.context,
        "device": packing.device_class,
        "page_tokens": memory.page_tokens,
        "cache_bytes": memory.pages * memory.page_tokens * packing.kv_bytes,
    }


def _engine(looked: Looked) -> dict[str, Any]:
    status = looked.status
    names = ("alive", "waiting", "running", "pages", "pages_used", "host_pages_used", "iterations", "tokens")
    told = {name: getattr(status, name) for name in (*names, "preemptions", "recomputed")}
    return {**told, "books": "unknown" if looked.books is None else looked.books or "balanced"}
