"""Pliant's decisions in vLLM: a scheduler class that vLLM loads by its name.

    vllm serve MODEL --scheduler-cls pliant.packing.vllm.PliantScheduler

Before every step it asks the scheduler of packing who is admitted, in which order, who is preempted and who reads how
many tokens, and lets vLLM's own `AsyncScheduler` carry that out: its queue offers only the requests that were admitted,
the running ones stand in the order in which the step's tokens are to be shared out, and who is preempted has been put
back before. All the rest is vLLM's: blocks, prefix caching, structured outputs, adapters, aborts, streaming. What vLLM
does otherwise than planned is reported back (decisions.py).

vLLM's scheduler is no public interface. What is used of it stands in `USED`, and is checked at the start.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.request_queue import RequestQueue, SchedulingPolicy
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.request import Request, RequestStatus

from pliant.errors import InputError
from pliant.packing.scheduling.forecast import ordered
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import FOREVER, Memory, Prompt
from pliant.packing.vllm import settings as reading
from pliant.packing.vllm.decisions import Decisions, Journal, State
from pliant.packing.vllm.forecasts import LearnedLengths, Predictions
from pliant.packing.vllm.journal import JournalFile


class AdmittedFirst(RequestQueue):
    """Waiting requests by name. Only those of the last `offer` come to the front; without one the queue looks empty."""

    def __init__(self) -> None:
        self._held: dict[str, Any] = {}
        self._offered: deque[Any] = deque()

    def offer(self, names: Sequence[str]) -> None:
        """Offer these waiting requests, in this order, and no others. Names of others than waiting ones are ignored."""
        self._offered = deque(self._held[name] for name in names if name in self._held)

    def add_request(self, request: Any) -> None:
        self._held[request.request_id] = request

    def pop_request(self) -> Any:
        request = self._offered.popleft()
        del self._held[request.request_id]
        return request

    def peek_request(self) -> Any:
        if not self._offered:
            raise IndexError("peek from an empty queue")
        return self._offered[0]

    def prepend_request(self, request: Any) -> None:
        self.add_request(request)

    def prepend_requests(self, requests: Iterable[Any]) -> None:
        for request in requests:
            self.add_request(request)

    def remove_request(self, request: Any) -> None:
        self.remove_requests((request,))

    def remove_requests(self, requests: Iterable[Any]) -> None:
        for request in requests:
            if self._held.pop(request.request_id, None) is not None and request in self._offered:
                self._offered.remove(request)

    def __bool__(self) -> bool:
        return bool(self._offered)

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._held.values()))

    def __contains__(self, request: object) -> bool:
        return getattr(request, "request_id", None) in self._held


logger = logging.getLogger("vllm.pliant")

TESTED = "0.32"
EXTRA = "pliant_prompt"  # in a request's extra arguments: the prompt as an engine of Pliant's has it already
USED = ("schedule", "_preempt_request", "_free_request", "_handle_blocked_waiting_request", "update_from_output")
BITS = 63  # of a number for a page's content


@dataclass(frozen=True, slots=True)
class Embedding:
    """What a process of Pliant's own that runs vLLM says of its scheduler, instead of `Settings`."""

    rules: Rules
    sequences: int  # that run at once, besides those that pause
    journal: Journal | None


class PliantScheduler(AsyncScheduler):
    """vLLM's scheduler with Pliant's decisions. Raises `InputError` for what it does not support."""

    EMBEDDING: ClassVar[Embedding | None] = None
    running: list[Request]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        check_supported(self)
        embedded = self.EMBEDDING
        self.settings = reading.read() if embedded is None else reading.Settings()
        self.waiting = AdmittedFirst()
        pages = self.cache_config.num_gpu_blocks - 1  # one block of vLLM's stands for none
        sequences = self.max_num_active_reqs if embedded is None else embedded.sequences
        self.memory = Memory(pages, self.block_size, step_tokens=self.max_num_scheduled_tokens, sequences=sequences)
        self._journal: JournalFile | None = None
        if embedded is None:
            rules = self.settings.rules(self.max_model_len + 1)
            if self.settings.journal:
                self._journal = JournalFile(self.settings.journal, rules, self.memory)
            self.decisions = Decisions(rules, self.memory, self._journal.add if self._journal is not None else None)
        else:
            rules = replace(embedded.rules, context=self.max_model_len + 1)
            self.decisions = Decisions(rules, self.memory, embedded.journal)
        self._scheduled: dict[int, tuple[int, int]] = {}
        self.lengths = LearnedLengths()
        self._coming: dict[str, float] = {}  # requests that have no forecast or no grammar yet, with the time they came
        self._unrequested: dict[str, None] = {}  # those whose forecasts may not be needed
        self._unforecast: set[str] = set()  # requests whose forecasts had not come in time
        self._discarded: dict[str, int] = {}  # tokens of preempted requests whose pages were given up
        self._given: dict[str, Prompt] = {}  # prompts that came as Pliant's own, with their forecasts
        self._late: list[str] = []
        self.deciding = 0.0  # seconds so far that decisions took, without vLLM's own part
        predictor, tokenizer = self.settings.predictor, self.vllm_config.model_config.tokenizer
        self.forecasts = Predictions(predictor, tokenizer) if predictor else None
        logger.info(
            "Pliant schedules by policy %s: %d pages of %d tokens, %d tokens and %d requests a step; lengths by %s",
            *(rules.policy, pages, self.block_size, self.memory.step_tokens, self.memory.sequences),
            self.settings.predictor or "those of the outputs so far",
        )

    def add_request(self, request: Request) -> None:
        super().add_request(request)
        if request.resumable:
            logger.error(
                "%s is a session of streamed input, which PliantScheduler does not support", request.request_id
            )
            self.encoder_cache_mismatch_reqs.add(request.request_id)  # ends it with an error
            return
        self._coming[request.request_id] = time.monotonic()
        extra = request.sampling_params.extra_args if request.sampling_params is not None else None
        if isinstance(prompt := (extra or {}).get(EXTRA), Prompt):
            self._given[request.request_id] = prompt
        elif self.forecasts is not None:
            self._unrequested[request.request_id] = None
            if not self.decisions.roomy([request.num_prompt_tokens]):
                self._request_forecasts()

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        if self._pause_state != PauseState.UNPAUSED:
            self.waiting.offer(())
            output: SchedulerOutput = super().schedule(throttle_prefills)
            self.decisions.review([request.request_id for request in self.running], self._state)
            return output
        self._arrive()
        began = time.monotonic()
        step = self.decisions.decide(began)
        self._stop({*step.preempted, *step.dropped})
        self._late += step.dropped
        if step.reading:  # the running ones stand in the order in which they get their tokens
            place = {name: at for at, name in enumerate(step.reading)}
            self.running.sort(key=lambda request: place.get(request.request_id, -1))
        self.waiting.offer(step.admitted)
        paused = [request for request in self.running if request.request_id in step.paused] if step.paused else []
        if paused:  # for others; they are put back after the step
            self.running = [request for request in self.running if request.request_id not in step.paused]
        self.deciding += time.monotonic() - began
        output = super().schedule(throttle_prefills)
        began = time.monotonic()
        self.waiting.offer(())
        self.running += paused
        for name in output.num_scheduled_tokens if self._given else ():
            if (prompt := self._given.get(name)) is not None:
                self._scheduled[prompt.id] = self.requests[name].num_preemptions, self._discarded.get(name, 0)
        names = [request.request_id for request in self.running]
        self.decisions.report(step, names, output.num_scheduled_tokens, self._state)
        self.deciding += time.monotonic() - began
        return output

    def update_from_output(self, scheduler_output: SchedulerOutput, model_runner_output: Any) -> dict[int, Any]:
        outputs: dict[int, Any] = super().update_from_output(scheduler_output, model_runner_output)
        late, self._late = self._late, []
        for request in self.finish_requests(late, RequestStatus.FINISHED_ABORTED) if late else ():
            ended = EngineCoreOutput(
                request_id=request.request_id,
                new_token_ids=[],
                finish_reason=request.get_finished_reason(),
                events=request.take_events(),
                trace_headers=request.trace_headers,
            )
            outputs.setdefault(request.client_index, EngineCoreOutputs(outputs=[])).outputs.append(ended)
        return outputs

    def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        running = [request.request_id for request in self.running] if reset_running_requests else []
        done: bool = super().reset_prefix_cache(reset_running_requests, reset_connector)
        self.decisions.came_back(running, self._state)
        return done

    def shutdown(self) -> None:
        if self.forecasts is not None:
            self.forecasts.stop()
        if self._journal is not None:
            self._journal.close()
        super().shutdown()

    def _preempt_request(self, request: Request, timestamp: float, drop_stale_output: bool = False) -> None:
        name = request.request_id
        self._discarded[name] = self._discarded.get(name, 0) + request.num_computed_tokens
        super()._preempt_request(request, timestamp, drop_stale_output)

    def _free_request(self, request: Request, delay_free_blocks: bool = False) -> Any:
        freed = super()._free_request(request, delay_free_blocks)
        name, generated = request.request_id, request.num_output_tokens
        finished = request.status in (RequestStatus.FINISHED_STOPPED, RequestStatus.FINISHED_LENGTH_CAPPED)
        self._coming.pop(name, None)
        self._unrequested.pop(name, None)
        self._given.pop(name, None)
        self._discarded.pop(name, None)
        self._unforecast.discard(name)
        if self.forecasts is not None:
            self.forecasts.forget(name)
        if finished and generated:
            self.lengths.add(request.num_prompt_tokens, generated)
        self.decisions.end(name, generated, finished)
        return freed

    def _arrive(self) -> None:
        """Let the requests arrive whose forecasts are there, are not needed, or have been waited for long enough.

        A forecast that comes later still counts for a request that has not run.
        """
        forecasts = self.forecasts
        for name in forecasts.come() if forecasts is not None and self._unforecast else ():
            if forecasts is not None and name in self._unforecast and (late := forecasts.take(name)) is not None:
                self._unforecast.discard(name)
                self.decisions.reforecast(name, *late)
        if not self._coming:
            return
        roomy = self.forecasts is not None and self.decisions.roomy(
            [self.requests[name].num_prompt_tokens for name in self._coming]
        )
        if not roomy:
            self._request_forecasts()
        if self.forecasts is not None and self.forecasts.alive and not roomy and not len(self.decisions):
            left = min(self._coming.values()) + self.settings.wait - time.monotonic()
            if left > 0:
                self.forecasts.wait(left)  # there is nothing else to do
        now = time.monotonic()
        for name, came in list(self._coming.items()):
            request = self.requests[name]
            if not self._handle_blocked_waiting_request(request):
                continue  # its grammar is being compiled
            prompt = self._given.get(name)
            if prompt is None:
                forecast = self.forecasts.take(name) if self.forecasts is not None else None
                expected = self.forecasts is not None and self.forecasts.alive and now - came < self.settings.wait
                if forecast is None and expected and not roomy:
                    continue
                if self.forecasts is not None and forecast is None and name not in self._unrequested:
                    self._unforecast.add(name)
                prompt = self._prompt(request, came, forecast)
            del self._coming[name]
            self._unrequested.pop(name, None)
            try:
                self.decisions.arrive(name, replace(prompt, beginnings=self._beginnings(request)))
            except InputError as error:
                logger.error("%s cannot run: %s", name, error)
                self.encoder_cache_mismatch_reqs.add(name)

    def _request_forecasts(self) -> None:
        """Request the forecasts of all requests that have come, where that has not been done."""
        names, self._unrequested = self._unrequested, {}
        if self.forecasts is not None:
            for name in names:
                self.forecasts.ask(name, self.requests[name].prompt_token_ids or ())

    def _prompt(self, request: Request, came: float, forecast: tuple[tuple[float, ...], int] | None) -> Prompt:
        tokens = request.num_prompt_tokens
        limit = self.decisions.longest(tokens, request.max_tokens)
        quantiles, bucket = forecast or (self.lengths.forecast(tokens), 0)
        extra = (request.sampling_params.extra_args if request.sampling_params is not None else None) or {}
        seconds = number(extra.get("deadline"), self.settings.deadline)
        return Prompt(
            *(0, came, tokens, limit, ordered(quantiles, limit), min(bucket, limit)),
            deadline=came + seconds if seconds > 0 else FOREVER,
            exact=min(int(number(extra.get("output_tokens"), 0)), limit),
        )

    def _beginnings(self, request: Request) -> tuple[int, ...]:
        """Return a number for each page of the prompt but the last token's, by vLLM's own hash of its content."""
        if not self.cache_config.enable_prefix_caching or request.skip_reading_prefix_cache:
            return ()
        pages = (request.num_prompt_tokens - 1) // self.block_size
        hashes = request.block_hashes[:: self.block_size // self.hash_block_size or 1]
        numbers = [int.from_bytes(bytes(each[:8]), "big") >> (64 - BITS) for each in hashes[:pages]]
        return tuple(numbers) if len(set(numbers)) == len(numbers) else ()

    def check(self) -> None:
        """Raises AssertionError where the books contradict themselves, or count fewer pages than vLLM uses."""
        self.decisions.scheduler.check()
        used, counted = round(self.get_kv_cache_usage() * self.memory.pages), self.decisions.scheduler.pages_used
        assert used <= counted, f"{used} pages in use, {counted} in the books"

    def take_scheduled(self) -> dict[int, tuple[int, int]]:
        """Return what the last step read of Pliant's own prompts: id -> preemptions and discarded tokens so far."""
        scheduled, self._scheduled = self._scheduled, {}
        return scheduled

    def _stop(self, names: set[str]) -> None:
        """Preempt those of these requests that run."""
        gone = [request for request in self.running if request.request_id in names] if names else []
        if gone:
            self.running = [request for request in self.running if request.request_id not in names]
        for request in gone:
            self._preempt_request(request, time.monotonic())

    def _state(self, name: str) -> State:
        request = self.requests[name]
        return State(request.num_computed_tokens, request.num_tokens + request.num_output_placeholders)


def embedded(embedding: Embedding) -> type[PliantScheduler]:
    """Return the scheduler with this instead of the environment's settings."""
    return type("EmbeddedScheduler", (PliantScheduler,), {"EMBEDDING": embedding})


def number(value: Any, default: float) -> float:
    """Return a number that a client gave, or the default where it gave none, or something else."""
    usable = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < FOREVER
    return float(value) if usable else default


def check_supported(scheduler: AsyncScheduler) -> None:
    """Raises `InputError` where vLLM is to do something that Pliant's decisions do not know."""
    lacking = [name for name in USED if not callable(getattr(AsyncScheduler, name, None))]
    if lacking:
        raise InputError("vllm", f"without {', '.join(lacking)} of its scheduler", f"version {TESTED}")
    groups = scheduler.kv_cache_config.kv_cache_groups
    full = len(groups) == 1 and isinstance(groups[0].kv_cache_spec, FullAttentionSpec)
    for name, wrong, limit in (
        ("speculative decoding", scheduler.vllm_config.speculative_config is not None, "off"),
        ("kv_transfer_config", scheduler.connector is not None, "unset: KV connectors are not supported"),
        ("ec_transfer_config", scheduler.ec_connector is not None, "unset: encoder connectors are not supported"),
        ("model", scheduler.num_sampled_tokens_per_step != 1, "one that generates one token a step"),
        ("model", scheduler.is_encoder_decoder, "a decoder alone"),
        ("the model's attention", not full, "full in every layer"),
        ("chunked prefill", not scheduler.scheduler_config.enable_chunked_prefill, "on"),
        ("scheduling-policy", scheduler.policy != SchedulingPolicy.FCFS, "fcfs: Pliant decides the order"),
    ):
        if wrong:
            raise InputError(name, "otherwise", f"{limit} with PliantScheduler")
