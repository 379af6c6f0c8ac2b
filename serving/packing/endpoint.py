"""The packing service apart from HTTP: it tokenizes prompts, forecasts lengths, and has an engine generate the outputs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pliant.errors import InputError
from pliant.packing.chat import CallParser, calls_grammar
from pliant.packing.engine.submission import Sampling, Submission
from pliant.packing.scheduling.forecast import Forecast
from pliant.packing.scheduling.request import FOREVER, Prompt
from pliant.serving.driver import Rejected
from pliant.serving.http.api_errors import ApiError, api_error_of_drop
from pliant.serving.lifecycle.endpoint import Endpoint
from pliant.serving.lifecycle.generation import Generation
from pliant.serving.loop.observe import Served
from pliant.serving.packing.catalog import Catalog, ServedModel
from pliant.serving.packing.engine.engine import (
    OPEN_CHARACTERS,
    CannotKeepError,
    EngineGroup,
    EngineReport,
    InFlightOutput,
    merged_report,
)
from pliant.serving.packing.engine.forecaster import Forecaster
from pliant.serving.packing.engine.metrics import PackingMetrics, add_generation, observation
from pliant.serving.packing.engine.observed import ObservedLengths
from pliant.serving.packing.reply import Choice, LogprobsWriter, Reply
from pliant.serving.packing.request import GenerationRequest, PromptInput, unknown_model
from pliant.serving.packing.settings import PackingSettings
from pliant.serving.packing.text import PromptReader, Tokens
from pliant.serving.request_context import current_trace, current_way_back, is_copy, note_decided

AT_ONCE = 16 * 1024  # characters; longer prompts are tokenized in a thread
MAX_PROMPT_LOGPROBS = 1 << 17  # of one request
STRIDE = 0x9E3779B97F4A7C15  # between the seeds of a request's outputs: far from other requests' small seeds
SEEDS = 1 << 63


@dataclass(frozen=True, slots=True)
class Handler:
    """A model that is served."""

    served: ServedModel
    created: int  # seconds since 1970
    reader: PromptReader
    forecaster: Forecaster
    engine: EngineGroup
    observed: ObservedLengths | None


@dataclass(frozen=True, slots=True)
class EnginePool:
    """What starts and stops with the handlers of a generation."""

    handlers: Sequence[Handler]
    forecasters_first: bool  # start the engines after them: an engine takes what is free of a GPU's memory

    @property
    def ready(self) -> bool:
        """Whether all models have an engine that runs."""
        return all(handler.engine.ready for handler in self.handlers)

    @property
    def devices(self) -> int:
        """Return how many engines run."""
        return sum(engine.ready for handler in self.handlers for engine in handler.engine.engines)

    @property
    def alive(self) -> bool:
        """Whether all models have an engine that can be started."""
        return all(handler.engine.alive for handler in self.handlers)

    @property
    def waiting(self) -> int:
        """Return the number of outputs without a token."""
        return sum(handler.engine.waiting for handler in self.handlers)

    @property
    def pending(self) -> int:
        """Return the number of outputs that have not ended."""
        return sum(handler.engine.pending for handler in self.handlers)

    async def start(self) -> None:
        """Start all, and raise the first `PliantError` once each has started or failed."""
        engines = [handler.engine.start for handler in self.handlers]
        forecasters = [handler.forecaster.start for handler in self.handlers]
        for starts in (forecasters, engines) if self.forecasters_first else ([*engines, *forecasters],):
            for error in await asyncio.gather(*(start() for start in starts), return_exceptions=True):
                if error is not None:
                    raise error

    async def stop(self) -> None:
        """Stop all, after the last output has ended."""
        await asyncio.gather(*(handler.engine.stop() for handler in self.handlers))
        for handler in self.handlers:
            await handler.forecaster.stop()
            handler.reader.grammars.stop()
            if handler.observed is not None:
                handler.observed.close()


PackingGeneration = Generation[Catalog, Handler, EnginePool]


class PackingEndpoint(Endpoint[PackingSettings, Catalog, Handler, EnginePool, PackingMetrics]):
    """Generates texts."""

    USUAL_DEADLINE = 10.0  # an output takes seconds by itself

    def models(self) -> Mapping[str, int]:
        """Return when each model was loaded, in seconds since 1970, by name."""
        return {name: handler.created for name, handler in self._generations.present.handlers.items()}

    async def open(self, request: GenerationRequest, arrived: float) -> Reply:
        """Start the generation of all outputs. Deadlines count from `arrived`, on this endpoint's clock.

        Raises `InputError` and `ApiError`; then nothing is generated.
        """
        first = min(request.deadline or FOREVER, _target(request.ttft, self.settings.slo_ttft_ms), self.USUAL_DEADLINE)
        return await self.route_trial(partial(self._open, request), arrived, first, _until_ended)

    async def _open(self, request: GenerationRequest, arrived: float) -> Served[Reply]:
        while True:  # until a generation has read the request that is still the present one then
            present = self._generations.chosen
            handler = _select(present.handlers, request.model)
            reader, sampling, tools = handler.reader, request.sampling, request.tools
            self._surplus(handler, request)
            tokens = []
            for index, text in enumerate(request.prompts):  # the event loop serves other requests meanwhile
                if text.messages or len(text.text) + len(text.ids) > AT_ONCE:  # a template is a program
                    tokens.append(await asyncio.to_thread(reader.read, text))
                else:
                    if index:
                        await asyncio.sleep(0)
                    tokens.append(reader.read(text))
            most = 1 if request.silent else request.max_tokens
            limits = [reader.max_new_tokens(each, most, request.max_tokens_name) for each in tokens]
            reader.check_tokens((token for token, _ in sampling.logit_bias), "logit_bias")
            reader.check_tokens(sampling.stop_tokens, "stop_token_ids")
            numbers = sum(len(each.ids) for each in tokens) * request.best_of * (sampling.prompt_logprobs + 1)
            if numbers > MAX_PROMPT_LOGPROBS:
                shown = f"{numbers} log-probabilities of the prompts' tokens"
                allowed = f"at most {MAX_PROMPT_LOGPROBS}: tokens x (logprobs + 1) x n"
                raise InputError("echo with logprobs", shown, allowed)
            for each, most in zip(tokens, limits, strict=True):
                prompt = self._prompt(request, each, most, Forecast.of_length(1), arrived)
                if (seconds := handler.engine.hopeless(prompt)) is not None:  # whatever the forecast says
                    raise self._cannot_keep(handler, prompt, seconds)
            if tools.forced:
                sampling = replace(sampling, grammar=calls_grammar(reader.tool_format, tools.callable, tools.parallel))
            if sampling.grammar:
                field = "tools" if tools.forced else request.form
                await reader.grammars.check(sampling.grammar, field, request.client)
            if request.known_length:
                forecasts = [Forecast.of_length(limit) for limit in limits]
            else:
                predicted = await handler.forecaster.forecast([each.text for each in tokens])
                forecasts = [forecast.at_least(sampling.min_tokens) for forecast in predicted]
            if present is self._generations.chosen:
                break
        for output in self._surplus(handler, request):  # again: other requests came meanwhile
            handler.engine.drop(output)
        name, digest = handler.served.packing.name, handler.served.digest
        reply = Reply(request, name, f"fp_{digest[:12]}", sum(len(each.ids) for each in tokens), handler.engine.cancel)
        reply.observations = [None] * (len(tokens) * request.best_of)
        choices: list[Choice] = []
        for each, limit, forecast in zip(tokens, limits, forecasts, strict=True):
            for _ in range(request.best_of):
                prompt = self._prompt(request, each, limit, forecast, arrived, handler.engine.next_id())
                choices.append(self._choice(handler, reply, len(choices), prompt, each, forecast, sampling))
        reply.choices = choices
        try:
            handler.engine.submit([choice.output for choice in choices])
        except CannotKeepError as error:
            raise self._cannot_keep(handler, choices[0].output.first.prompt, error.seconds) from None
        for choice in () if is_copy() else choices:
            self.metrics.arrived(name, choice.forecast.origin)
        return Served(reply, reply.observations)

    def _surplus(self, handler: Handler, request: GenerationRequest) -> list[InFlightOutput]:
        """Return the waiting outputs to drop so that the request's own may wait. Raises `ApiError` (429): no room."""
        count, client = len(request.prompts) * request.best_of, request.client
        surplus = handler.engine.surplus(count, self.settings.max_waiting, client.tenant, client.weight)
        if surplus is None:
            self._count_drop(handler, client.tenant, "full", request.utility)
            raise api_error_of_drop(Rejected("full", handler.engine.wait), request.deadline or FOREVER)
        return surplus

    def _cannot_keep(self, handler: Handler, prompt: Prompt, seconds: float) -> ApiError:
        """Return the error for a request that is refused, with its targets and when there may be room for it."""
        self._count_drop(handler, prompt.tenant, "refused", prompt.utility)
        targets = {
            "first token within": prompt.ttft,
            "each further one within": prompt.tpot,
            "all within": prompt.deadline - prompt.arrival,
        }
        named = ", ".join(f"{name} {target:g} s" for name, target in targets.items() if target < FOREVER)
        message = f"the targets ({named}) cannot be kept now: by the forecast they would be missed by {seconds:.2g} s"
        return ApiError(503, "late", message, "deadline", retry_after=seconds)

    def _count_drop(self, handler: Handler, tenant: str, reason: str, utility: float) -> None:
        """Count a request that is refused, unless it is a copy."""
        note_decided()
        if not is_copy():
            self.metrics.dropped(handler.served.packing.name, tenant, reason, utility)

    def _choice(
        self,
        handler: Handler,
        reply: Reply,
        index: int,
        prompt: Prompt,
        tokens: Tokens,
        forecast: Forecast,
        sampling: Sampling,
    ) -> Choice:
        request, reader = reply.request, handler.reader
        if index:  # the first output has the request's own seed
            sampling = replace(sampling, seed=(sampling.seed + index * STRIDE) % SEEDS)
        submission = Submission(prompt, tokens.ids, sampling)
        context, way_back = copy_context(), current_way_back()

        def on_progress(output: InFlightOutput) -> None:
            if way_back is not None:
                way_back.decided()
            if output.finish:  # in a task of the engine
                context.run(self._on_choice_end, handler, choice, reply)
            reply.notify(output)

        max_open = OPEN_CHARACTERS if request.stream else float("inf")
        ends = frozenset(submission.ends(handler.served.generator.artifact.ends))
        writer = reader.writer(tokens.ids, request.stops)
        output = InFlightOutput(submission, writer, ends, on_progress, max_open, silent=request.silent)
        repeated = tokens.ids if request.echo else ()
        logprobs = LogprobsWriter(reader.texts, output, repeated, request.chat) if request.logprobs else None
        parser = None
        if request.tools.tools:
            names = [tool.name for tool in request.tools.callable]
            parser = CallParser(reader.tool_format, names, request.tools.parallel)
        choice = Choice(index, output, forecast, tokens.echo, tokens.text, logprobs, parser)
        return choice

    def _prompt(
        self, request: GenerationRequest, tokens: Tokens, limit: int, forecast: Forecast, arrived: float, id: int = 0
    ) -> Prompt:
        return Prompt(
            id=id,
            arrival=arrived,
            tokens=len(tokens.ids),
            limit=limit,
            forecast=forecast.tokens,
            bucket=forecast.bucket,
            deadline=arrived + (request.deadline or FOREVER),
            ttft=_target(request.ttft, self.settings.slo_ttft_ms),
            tpot=_target(request.tpot, self.settings.slo_tpot_ms),
            utility=request.utility,
            priority=request.priority,
            offline=request.offline,
            tenant=request.client.tenant,
            weight=request.client.weight,
        )

    def _on_choice_end(self, handler: Handler, choice: Choice, reply: Reply) -> None:
        name, generator = handler.served.packing.name, handler.served.generator
        observed = reply.observations[choice.index] = observation(name, generator.version, choice)
        self._observer.observe(observed)
        if is_copy():
            return
        if choice.output.finish == "grammar":
            handler.reader.grammars.refuse(choice.output.first.sampling.grammar)
        self.metrics.ended(name, choice)
        self.metrics.engine(name, handler.engine.status)
        if handler.observed is not None:
            handler.observed.add(choice, generator.digest, reply.id)
        if traced := current_trace():
            operation = "chat" if reply.request.chat else "text_completion"
            add_generation(traced, name, operation, choice.output, self.now)

    def context(self, model: str | None) -> int:
        """Return the most tokens of a prompt and its output. Raises as `_select`."""
        return _select(self._generations.present.handlers, model).reader.context

    def defaults(self, model: object) -> Mapping[str, float]:
        """Return the defaults of a request's fields by its model; none for a model that is not served."""
        handlers = self._generations.present.handlers
        name = next(iter(handlers)) if model is None and len(handlers) == 1 else model
        return handlers[name].reader.defaults if isinstance(name, str) and name in handlers else {}

    async def tokenize(self, model: str | None, prompt: PromptInput) -> Sequence[tuple[int, str]]:
        """Return the tokens of a prompt with their texts. Raises `InputError` and `ApiError`."""
        reader = _select(self._generations.present.handlers, model).reader
        ids = await asyncio.to_thread(reader.encode, prompt)
        return [(id, reader.texts.text_of(id)) for id in ids]

    async def detokenize(self, model: str | None, ids: Sequence[int]) -> str:
        """Return the text of tokens. Raises `InputError` and `ApiError`."""
        reader = _select(self._generations.present.handlers, model).reader
        return await asyncio.to_thread(reader.decode, ids, "tokens")

    async def status(self) -> dict[str, Any]:
        """Return the status of the service, of its models and of their engines."""
        return {
            **self.common_status(),
            "policy": self.settings.policy,
            "models": [await self._model(handler) for handler in self._generations.present.handlers.values()],
        }

    async def _model(self, handler: Handler) -> dict[str, Any]:
        polls = [engine.poll() for engine in handler.engine.engines]
        reports, name = await asyncio.gather(*polls), handler.served.packing.name
        whole = merged_report(reports)
        self.metrics.engine(name, whole.status)
        limits = [
            {"sequences": limit.value, "sequences_planned": limit.planned, "out_of_memory": limit.exhausted}
            for limit in (engine.sequences for engine in handler.engine.engines)
        ]
        summed = {key: sum(each[key] for each in limits) for key in limits[0]}
        engines = [
            {"device": device, **_engine(report), **limit}
            for (device, _), report, limit in zip(handler.engine.on_devices, reports, limits, strict=True)
        ]
        recent = handler.forecaster.recent()
        number = recent.total()
        late, failed = (round(recent[how] / number, 4) if number else 0.0 for how in ("late", "failed"))
        forecasts = {"alive": handler.forecaster.alive, "last_minute": number, "late": late, "failed": failed}
        figures = {"coverage": self.metrics.coverage(name), "forecasts": forecasts}
        engine = {**_engine(whole), **summed}
        return {**_described(handler.served), **figures, "engine": engine, "engines": engines}


def _select(handlers: Mapping[str, Handler], model: str | None) -> Handler:
    """Return the model of this name, or the only one if it is None. Raises `InputError` and `ApiError` (404)."""
    if model is None:
        if len(handlers) > 1:
            raise InputError("model", "missing", f"given, as several are served: {', '.join(handlers)}")
        return next(iter(handlers.values()))
    if model not in handlers:
        raise unknown_model(model, handlers)
    return handlers[model]


def _target(requested: float | None, default_ms: float) -> float:
    """Return a target in seconds: that of the request, or the service's."""
    return requested if requested is not None else default_ms / 1000 or FOREVER


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
        "precision": packing.precision,
        "page_tokens": memory.page_tokens,
        "cache_bytes": memory.pages * memory.page_tokens * packing.kv_bytes,
    }


def _engine(report: EngineReport) -> dict[str, Any]:
    status = report.status
    names = ("alive", "waiting", "running", "pages", "pages_used", "host_pages_used", "iterations", "tokens")
    figures = {name: getattr(status, name) for name in (*names, "preemptions", "recomputed", "shared")}
    return {**figures, "books": "unknown" if report.accounting_error is None else report.accounting_error or "balanced"}


async def _until_ended(reply: Reply) -> Exception | None:
    """Return when all choices of a reply have ended, or one has failed, and why. What the client left or did not read is not
    the service's fault."""
    await reply.until_over()
    error = reply.api_error()
    if error is not None and any(choice.output.finish == "cancelled" for choice in reply.choices):
        return ApiError(499, "cancelled", "the client has left")
    return error
