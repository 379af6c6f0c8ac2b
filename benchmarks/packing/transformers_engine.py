"""The baseline: transformers' own continuous batching with its own scheduler (first in, first out), as it is.

It touches the internals of transformers 5.23, so that an iteration can be run at a time and is measured like one of Pliant's
engine. Greedy. Knows none of Pliant's policies.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig
from transformers.generation.continuous_batching import scheduler as schedulers
from transformers.generation.continuous_batching.requests import RequestState, RequestStatus

from pliant.packing.artifact import Generator
from pliant.packing.engine.model import load_generator
from pliant.packing.engine.paged_engine import StepResult
from pliant.packing.engine.submission import Progress, Status, Submission
from pliant.packing.scheduling.request import Memory

NAME = "recorded fifo"  # of the scheduler in transformers' registry, while its engine is created
GIB = float(1 << 30)  # bytes


class _RecordedScheduler(schedulers.FIFOScheduler):
    """Transformers' scheduler, recording what it preempts and the seconds that it takes."""

    def reset(self) -> None:
        super().reset()
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
        self._known.add(state.request_id)
        super().add_waiting_request(state)

    def schedule_batch(self, token_budget: int, cache_budget: int) -> Any:
        start = time.perf_counter()
        batch = super().schedule_batch(token_budget, cache_budget)
        self.seconds += time.perf_counter() - start
        return batch


class ContinuousBatching:
    """One model with transformers' paged cache, an iteration at a time. `margin`: the share of the pages kept free."""

    def __init__(self, model: Any, memory: Memory, margin: float = 0.0) -> None:
        generation = GenerationConfig(do_sample=False, eos_token_id=-1, max_new_tokens=1)
        self._manager = model.init_continuous_batching(generation, _settings(model, memory, margin))
        mapping: dict[str, Any] = schedulers.SCHEDULER_MAPPING
        mapping[NAME] = _RecordedScheduler
        try:
            self._manager.batch_processor = self._processor = self._manager._create_batch_processor()
        finally:
            del mapping[NAME]
        self._processor.output_router = SimpleNamespace(
            deliver_batch=lambda _outputs: None
        )  # tokens are read from requests
        self.scheduler = self._processor.scheduler

    def enter(self, threads: int) -> None:
        """Prepare the thread that runs iterations; call it there, once, first. On a GPU this captures graphs."""
        torch.set_num_threads(threads)
        self._manager.warmup()

    def add(self, id: int, ids: Iterable[int], limit: int, ends: Iterable[int] = ()) -> None:
        """Add a waiting sequence that generates at most `limit` tokens and stops after one of `ends`."""
        options: dict[str, Any] = {"max_new_tokens": limit, "eos_token_id": list(ends), "logit_processor_kwargs": {}}
        self.scheduler.add_waiting_request(RequestState(str(id), list(ids), **options))

    def cancel(self, id: int) -> None:
        self.scheduler.set_request_cancellation(str(id))
        for state in self.scheduler.clear_cancelled_requests():
            self._processor.offloading_manager.free_request_cpu_cache(state)

    def step(self) -> StepResult:
        """Run one iteration and return what it did. Raises what the model raises."""
        batch: list[Any] = []
        if self.scheduler.has_pending_requests() and self._processor.prepare_next_batch():
            self._processor._generation_step(self._manager.model)
            self._processor.update_batch()
            batch = self._processor.inputs_and_outputs.requests_in_batch
        states = [future.state for future in batch if future.has_new_token]
        tokens = [(int(s.request_id), s.generated_tokens[-1], s._status == RequestStatus.FINISHED) for s in states]
        preempted, self.scheduler.preempted = tuple(self.scheduler.preempted), []
        return StepResult(tuple(tokens), preempted=preempted, sequences=len(batch))


class TransformersEngine:
    """Generates in a thread of its own, with as much of the interface of Pliant's `Engine` as the benchmarks use."""

    def __init__(
        self,
        generator: Generator,
        memory: Memory,
        deliver: Callable[[list[Progress]], None],
        device: str = "cpu",
        margin: float = 0.0,
    ) -> None:
        self._batching = ContinuousBatching(load_generator(generator, device), memory, margin)
        self._ends, self._pages, self._deliver = generator.ends, memory.pages, deliver
        self._inbox: queue.SimpleQueue[Submission | None] = queue.SimpleQueue()
        self._generated: dict[int, int] = {}  # tokens of what is in flight
        self._ends_of: dict[int, tuple[int, ...]] = {}
        self._thread = threading.Thread(target=self._run, name="transformers engine", daemon=True)
        self._error, self._busy = "", 0.0
        self._iterations = self._tokens = self._sequences = self._preemptions = self._recomputed = 0

    def start(self) -> None:
        self._thread.start()

    def submit(self, submission: Submission) -> None:
        self._inbox.put(submission)

    def stop(self) -> None:
        self._inbox.put(None)
        self._thread.join()

    def status(self) -> Status:
        """Return counts and seconds since the start; pages in use are not known."""
        scheduler = self._batching.scheduler
        running = len(scheduler.active_requests)
        return Status(
            self._thread.is_alive(), self._error, running, max(len(self._generated) - running, 0), self._pages, 0, 0,
            self._iterations, self._tokens, self._preemptions, self._recomputed, self._sequences, self._busy,
            float(scheduler.seconds),
        )  # fmt: skip

    def _run(self) -> None:
        try:
            self._batching.enter(1)
            while self._take_up():
                self._deliver(self._iterate())
        except Exception as error:  # anything from the model; every text is reported as failed
            self._error = f"{type(error).__name__}: {error}"
            self._deliver([Progress(id, (), "failed", 0.0, 0, 0, count) for id, count in self._generated.items()])

    def _take_up(self) -> bool:
        """Add what has come, and wait for something if nothing is in flight. Returns False if the engine is to end."""
        while not self._generated or not self._inbox.empty():
            submission = self._inbox.get()
            if submission is None:
                return False
            id, ends = submission.prompt.id, submission.ends(self._ends)
            self._generated[id], self._ends_of[id] = 0, ends
            self._batching.add(id, submission.ids, submission.max_tokens, ends)
        return True

    def _iterate(self) -> list[Progress]:
        start = time.perf_counter()
        step = self._batching.step()
        self._busy += time.perf_counter() - start
        self._iterations += step.sequences > 0
        self._sequences, self._tokens = self._sequences + step.sequences, self._tokens + len(step.tokens)
        self._preemptions += len(step.preempted)
        self._recomputed += sum(again for _, again in step.preempted)
        news = []
        for id, token, last in step.tokens:
            self._generated[id] += 1
            finished = "" if not last else "stop" if token in self._ends_of[id] else "length"
            news.append(Progress(id, (token,), finished, 0.0, 0, 0, self._generated[id]))
            if last:
                del self._generated[id]
        return news


def _settings(model: Any, memory: Memory, margin: float) -> ContinuousBatchingConfig:
    """Return transformers' settings. It pins memory on the host, so without an accelerator it has none."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    token = 2 * int(config.num_hidden_layers * heads * width) * int(model.dtype.itemsize)  # bytes of keys and values
    on_gpu = model.device.type != "cpu"
    return ContinuousBatchingConfig(
        page_size=memory.page_tokens,
        auto_switch_to_flash=model.dtype != torch.float32,  # flash attention takes no float32
        num_blocks=memory.pages,
        max_batch_tokens=memory.step_tokens,
        max_requests_per_batch=min(memory.sequences, memory.step_tokens),
        allow_block_sharing=False,
        use_async_batching=False,
        use_cuda_graph=None if on_gpu else False,
        scheduler_type=NAME,
        safety_margin=margin,
        cpu_offload_space=memory.host_pages * memory.page_tokens * token / GIB if on_gpu else 0.0,
    )
