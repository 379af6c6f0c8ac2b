"""Drives transformers' continuous batching one iteration at a time, by plans that are made elsewhere.

This file and paged.py (the cache) are the only ones that touch that engine's internals, as transformers 5.17 to 5.23
have them. Ours are the loop, the choice of sequences, and the way to the host. Transformers' own are the paged cache,
the tensors of a batch, the forward pass and the bookkeeping of a request. Its scheduler (first in, first out) runs here
too, for comparisons. Knows no policy and no thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import fields
from typing import Any, cast

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig
from transformers.generation.continuous_batching import scheduler as schedulers
from transformers.generation.continuous_batching.cb_logits_processors import ContinuousBatchingLogitsProcessorList
from transformers.generation.continuous_batching.requests import FutureRequestState, RequestState, RequestStatus
from transformers.generation.logits_process import LogitsProcessorList

from pliant.errors import InputError, SchedulerError
from pliant.packing.engine.paged import PagedCache
from pliant.packing.engine.step import StepResult
from pliant.packing.engine.swap_space import SwapSpace
from pliant.packing.scheduling.request import Chunk, Memory, StepPlan

NAME = "pliant"  # of our scheduler in the engine's registry, while the engine is created
LEAST_PAGE = 4  # tokens; the engine's own limit
GIB = float(1 << 30)  # bytes


class _PlannedScheduler(schedulers.Scheduler):
    """Gives the engine the batch that was planned, whatever it asks for."""

    def reset(self) -> None:
        super().reset()
        self.batch: list[tuple[RequestState, int]] = []  # each with the tokens to read
        self.started: list[int] = []
        self.preempted: list[tuple[int, int]] = []

    def has_pending_requests(self) -> bool:
        return bool(self.batch)

    def schedule_batch(self, token_budget: int, cache_budget: int) -> tuple[list[FutureRequestState], bool, int, int]:
        del token_budget, cache_budget  # the plan keeps to both
        holder: Any = self.cache if hasattr(self.cache, "max_decode_fast_path_length") else self  # newer, older version
        longest, complete = holder.max_decode_fast_path_length, cast(Any, 0)  # no page is ever shared
        fast, queries, cached, futures = longest > 0, 0, 0, []
        for state, tokens in self.batch:
            fast = fast and tokens == 1 and state.position_offset < longest
            queries, cached = queries + tokens, cached + state.position_offset
            futures.append(FutureRequestState(state, not state.remaining_prefill_tokens, complete, tokens))
        self.batch = []
        return futures, fast, queries, cached


class _FifoScheduler(schedulers.FIFOScheduler):
    """Transformers' own scheduler, recording what it does and the seconds that it takes."""

    def reset(self) -> None:
        super().reset()
        self.started: list[int] = []
        self.preempted: list[tuple[int, int]] = []
        self.seconds = 0.0
        self._known: set[str] = set()
        self._read = 0  # tokens that the request that left last had in the cache

    def finish_request(self, request_id: str) -> None:
        self._read = self.active_requests[request_id].position_offset
        super().finish_request(request_id)

    def add_waiting_request(self, state: RequestState) -> None:
        if state.request_id in self._known:  # it has just been preempted
            self.preempted.append((int(state.request_id), 0 if state.is_cpu_offloaded else self._read))
        super().add_waiting_request(state)

    def _schedule_request(self, state: RequestState, *rest: Any) -> None:
        if state.request_id not in self._known:
            self._known.add(state.request_id)
            self.started.append(int(state.request_id))
        super()._schedule_request(state, *rest)

    def schedule_batch(self, token_budget: int, cache_budget: int) -> Any:
        start = time.perf_counter()
        batch = super().schedule_batch(token_budget, cache_budget)
        self.seconds += time.perf_counter() - start
        return batch


class _NullRouter:
    """Drops the engine's outputs, since tokens are read from its requests."""

    def deliver_batch(self, outputs: object) -> None:
        del outputs


class ContinuousBatchingEngine:
    """One model with its paged cache. Not thread-safe.

    `margin`: None to run plans of ours; else transformers' scheduler decides and keeps this share of the pages free.
    `processors` change the scores of each request in this order, after which the token of the largest score is taken.
    Raises `InputError` for a model with limited attention windows in some layer, and for pages below 4 tokens.
    """

    shares = False

    def __init__(self, model: Any, memory: Memory, processors: Sequence[Any] = (), margin: float | None = None) -> None:
        if memory.page_tokens < LEAST_PAGE:
            raise InputError("page_tokens", memory.page_tokens, f"at least {LEAST_PAGE}")
        self.memory, self.ours = memory, margin is None
        self.device = torch.device(model.device)
        self._states: dict[int, RequestState] = {}
        self._manager = _manager(model, memory, processors, margin)
        self._processor = self._manager.batch_processor
        self._scheduler, self._cache = self._processor.scheduler, PagedCache(self._processor.cache)
        stream = self._processor.inputs_and_outputs.compute_stream
        on_stream = (lambda: torch.cuda.stream(stream)) if stream is not None else nullcontext
        self.swap_space = SwapSpace(self._cache.views(), memory.host_pages if self.ours else 0, on_stream)
        if not self.ours and memory.host_pages and model.device.type == "cpu":
            self._cache.unpinned_pool(self._processor.offloading_manager, memory.host_pages)

    @property
    def scheduling(self) -> float:
        """Seconds that transformers' scheduler has taken so far; 0 where plans are ours."""
        return float(getattr(self._scheduler, "seconds", 0.0))

    @property
    def running(self) -> int:
        return len(self._scheduler.active_requests)

    @property
    def pages_used(self) -> int:
        return self._cache.used

    def pages_of(self, id: int) -> int:
        """Return the pages of one sequence in the device's cache."""
        return len(self._cache.table.get(str(id), ()))

    def enter(self, threads: int) -> None:
        """Prepare the thread that runs iterations; call it there, once, first. On a GPU this captures graphs."""
        if self.device.type == "cpu":
            torch.set_num_threads(threads)  # a new thread starts with all cores
        elif self.device.index is not None:
            torch.cuda.set_device(self.device)
        self._manager.warmup()

    def add(self, id: int, ids: Iterable[int], limit: int, ends: Iterable[int], sampling: dict[str, Any]) -> None:
        """Add a waiting sequence that generates at most `limit` tokens and stops after one of `ends`."""
        options: dict[str, Any] = {
            "max_new_tokens": limit,
            "eos_token_id": list(ends),
            "logit_processor_kwargs": sampling,
        }
        state = self._states[id] = RequestState(str(id), list(ids), **options)
        if not self.ours:
            self._scheduler.add_waiting_request(state)

    def cancel(self, id: int) -> None:
        """Remove a sequence and free its pages on the device and on the host."""
        if self._states.pop(id, None) is None:
            return
        self.swap_space.free(id)
        self._scheduler.set_request_cancellation(str(id))
        for state in self._scheduler.clear_cancelled_requests():
            self._processor.offloading_manager.free_request_cpu_cache(state)

    def carry_out(self, plan: StepPlan) -> None:
        """Do everything in the plan but the iteration itself. Raises `SchedulerError` if there are too few pages."""
        for id, _ in plan.dropped:
            self.cancel(id)
        for id in plan.offloaded:
            self._offload(id)
        for id in plan.discarded:
            self._discard(id)
        for id in plan.admitted:
            self._admit(id)
        self._scheduler.batch = [*self._decoding(plan.stalled), *map(self._chunk, plan.prefill_chunks)]
        for state, tokens in self._scheduler.batch:
            self._store(state, tokens)

    def step(self) -> StepResult:
        """Run one iteration and return what it did. Raises what the model raises."""
        batch: list[Any] = []
        if self._scheduler.has_pending_requests() and self._processor.prepare_next_batch():
            self._processor._generation_step(self._manager.model)
            self._processor.update_batch()
            batch = self._processor.inputs_and_outputs.requests_in_batch
        tokens = tuple([_token(future.state) for future in batch if future.has_new_token])
        for id, _, last in tokens:
            if last:
                del self._states[id]
        noted = tuple(self._scheduler.started), tuple(self._scheduler.preempted)
        self._scheduler.started, self._scheduler.preempted = [], []
        return StepResult(tokens, *noted, len(batch))

    def close(self) -> None:
        """Release the model's graphs and tensors. Counts and tables can still be read."""
        self._manager = self._processor = None

    def check(self) -> None:
        """Raises AssertionError if pages are lost or belong to no sequence."""
        assert self._cache.free + self._cache.used == self._cache.pages, "pages of the cache"
        assert {int(id) for id, pages in self._cache.table.items() if pages} <= self._states.keys(), "pages of nobody"
        self.swap_space.check()

    def _decoding(self, stalled: Sequence[int]) -> list[tuple[RequestState, int]]:
        """Return the generating sequences that are not stalled, each with one token."""
        out = {str(id) for id in stalled}
        active = self._scheduler.active_requests.values()
        return [(s, 1) for s in active if s._status == RequestStatus.DECODING and s.request_id not in out]

    def _chunk(self, chunk: Chunk) -> tuple[RequestState, int]:
        state = self._states[chunk.id]
        self._scheduler._schedule_request(state, state.remaining_prefill_tokens, chunk.tokens, set())
        return state, chunk.tokens

    def _store(self, state: RequestState, tokens: int) -> None:
        """Allocate the pages for `tokens` more tokens."""
        missing = self.memory.need(state.position_offset + tokens) - len(self._cache.table.get(state.request_id, ()))
        if missing > 0 and not self._cache.allocate(state, tokens, missing):
            raise SchedulerError(f"{missing} pages for sequence {state.request_id} were decided on, but are not free")

    def _admit(self, id: int) -> None:
        state = self._states[id]
        if id in self.swap_space:
            self._store(state, 0)
            self.swap_space.swap_in(id, self._cache.table[str(id)])
            self._scheduler.active_requests[str(id)] = state
        elif not state._true_initial_tokens:  # never discarded
            self._scheduler.started.append(id)

    def _offload(self, id: int) -> None:
        self.swap_space.swap_out(id, self._cache.table[str(id)])
        self._leave(self._states[id])
        self._scheduler.preempted.append((id, 0))

    def _discard(self, id: int) -> None:
        state = self._states[id]
        self._states[id] = state.create_equivalent_initial_request()
        self._leave(state)
        self._scheduler.preempted.append((id, state.position_offset))

    def _leave(self, state: RequestState) -> None:
        self._cache.give_back(state)
        self._scheduler.active_requests.pop(state.request_id, None)


def kv_bytes(model: Any) -> int:
    """Return the bytes of one token's keys and values in all layers."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * int(config.num_hidden_layers * heads * width) * int(model.dtype.itemsize)


def _manager(model: Any, memory: Memory, processors: Sequence[Any], margin: float | None) -> Any:
    """Return transformers' engine, ready to run and without a thread of its own."""
    generation = GenerationConfig(do_sample=False, eos_token_id=-1, max_new_tokens=1)
    manager = model.init_continuous_batching(generation, _settings(model, memory, margin))
    manager.logit_processor = ContinuousBatchingLogitsProcessorList(LogitsProcessorList(processors))
    manager.logit_processor.tensors_required = len(processors)
    mapping: dict[str, Any] = schedulers.SCHEDULER_MAPPING
    mapping[NAME] = _PlannedScheduler if margin is None else _FifoScheduler
    try:
        manager.batch_processor = manager._create_batch_processor()
    finally:
        del mapping[NAME]
    manager.batch_processor.output_router = _NullRouter()
    return manager


def _settings(model: Any, memory: Memory, margin: float | None) -> ContinuousBatchingConfig:
    names = {field.name for field in fields(ContinuousBatchingConfig)}
    page: dict[str, Any] = {"page_size" if "page_size" in names else "block_size": memory.page_tokens}
    if "auto_switch_to_flash" in names:  # flash attention takes no float32, and would end the first iteration
        page["auto_switch_to_flash"] = model.dtype != torch.float32
    on_gpu = model.device.type != "cpu"
    host_pages = memory.host_pages if margin is not None and on_gpu else 0
    return ContinuousBatchingConfig(
        **page,
        num_blocks=memory.pages,
        max_batch_tokens=memory.step_tokens,
        max_requests_per_batch=min(memory.sequences, memory.step_tokens),
        allow_block_sharing=False,
        use_async_batching=False,
        use_cuda_graph=None if on_gpu else False,
        scheduler_type=NAME,
        safety_margin=margin or 0.0,
        cpu_offload_space=host_pages * memory.page_tokens * kv_bytes(model) / GIB,
    )


def _token(state: RequestState) -> tuple[int, int, bool]:
    return int(state.request_id), state.generated_tokens[-1], state._status == RequestStatus.FINISHED
