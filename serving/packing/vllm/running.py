"""vLLM as an engine of packing: one thread that runs its steps under Pliant's scheduler and reports the new tokens.

Texts are the same after a crash where they are greedy; sampled
ones go on with other draws, since vLLM's depend on what it has drawn before.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

from pliant.errors import InputError, WorkerError
from pliant.packing.artifact import Generator
from pliant.packing.engine.submission import Status, Submission, TokenLogprobs
from pliant.packing.engine.thread import Deliver, EngineThread, InFlight
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory
from pliant.packing.vllm import folder_of
from pliant.packing.vllm.adapter import Embedding, PliantScheduler, embedded
from pliant.packing.vllm.decisions import Journal
from pliant.registry import codec
from pliant.serving.packing.engine.engine_process import VllmBuild, recorder
from pliant.serving.packing.vllm.model_folder import pages_of, write


def set_variables(memory: Memory, token_bytes: int, device: str, threads: int | None) -> None:
    """Set the variables that vLLM reads when it is imported. `token_bytes`: of one token's keys and values; 0: not known.

    `threads`: of a CPU; 0 or None: one for each that it has.
    """
    # Its core runs in this process, where its scheduler is.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    if device == "cpu":
        gigabytes = math.ceil((memory.pages + 1) * memory.page_tokens * max(token_bytes, 1) / 2**30)
        os.environ["VLLM_CPU_KVCACHE_SPACE"] = str(max(gigabytes, 1))
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        os.environ["OMP_NUM_THREADS"] = str(threads or os.cpu_count() or 1)


def llm_engine(
    folder: Path,
    context: int,
    memory: Memory,
    embedding: Embedding,
    precision: str,
    on_cpu: bool,
    processes: int = 1,
) -> Any:
    """Return vLLM's engine of the model in `folder`. Raises what vLLM raises where it cannot be built."""
    from vllm import EngineArgs, LLMEngine
    from vllm.config import StructuredOutputsConfig

    arguments = EngineArgs(
        str(folder),
        dtype=precision,
        max_model_len=context,
        max_num_seqs=2 * memory.sequences,  # those that pause for others included
        max_num_batched_tokens=max(memory.step_tokens, 2 * memory.sequences),
        num_gpu_blocks_override=memory.pages + 1,  # one stands for none
        block_size=memory.page_tokens,
        enforce_eager=on_cpu,
        tensor_parallel_size=processes,
        scheduler_cls=embedded(embedding),
        generation_config="vllm",
        disable_log_stats=True,
        # The library by which the service has tried each grammar. By itself vLLM would give some to another one.
        structured_outputs_config=StructuredOutputsConfig(backend="guidance"),
    )
    return LLMEngine.from_engine_args(arguments)


ENDS = {"stop": "stop", "length": "length", "abort": "late"}  # by vLLM's finish reason


def logprobs_of(token: int, known: Mapping[int, Any], top: int) -> TokenLogprobs:
    """Return a token's log-probabilities. `known`: vLLM's, by token: of the likeliest ones and of this one."""
    likeliest = sorted(((id, each.logprob) for id, each in known.items()), key=lambda pair: -pair[1])
    return TokenLogprobs(known[token].logprob, tuple(likeliest[:top]))


class VllmEngine(EngineThread):
    """Generates texts by vLLM. Raises what vLLM raises where it cannot be built."""

    def __init__(
        self,
        folder: Path,
        generator: Generator,
        memory: Memory,
        rules: Rules,
        deliver: Deliver,
        precision: str,
        on_cpu: bool,
        processes: int = 1,
        journal: Journal | None = None,
    ) -> None:
        super().__init__(deliver)
        embedding = Embedding(rules, memory.sequences, journal)
        self._engine = llm_engine(folder, generator.context, memory, embedding, precision, on_cpu, processes)
        self._scheduler: PliantScheduler = self._engine.engine_core.engine_core.scheduler
        self._generator, self._memory = generator, memory

    def _validate(self, submission: Submission) -> None:
        prompt, context = submission.remaining(), self._generator.context
        if prompt.tokens + prompt.limit > context:
            raise InputError("prompt and max_tokens", f"{prompt.tokens + prompt.limit} tokens", f"at most {context}")
        self._scheduler.decisions.scheduler.validate(prompt)
        vocabulary = self._engine.model_config.get_vocab_size()
        outside = next((id for id in submission.ids if not 0 <= id < vocabulary), None)
        if outside is not None:
            raise InputError("ids", outside, f"from 0 to {vocabulary - 1}")

    def status(self) -> Status:
        """Return counts and seconds since the start. Any thread may call this."""
        books = self._scheduler.decisions.scheduler
        running = max(len(self._flights) - books.waiting, 0)  # the books learn of an end with the next step
        used = round(self._scheduler.get_kv_cache_usage() * self._memory.pages)
        return Status(
            *(self._alive, self._error, running, books.waiting, self._memory.pages, used, 0),
            *(self._iterations, self._tokens, self._preemptions, books.discarded, self._sequences, self._busy),
            *(self._scheduler.deciding, self._out_of_memory, books.tokens_taken),
        )

    def _iterate(self) -> bool:
        began = time.perf_counter()
        self._take_up()
        outputs = self._engine.step() if self._flights else []
        now, scheduled = time.monotonic(), self._scheduler.take_scheduled()
        self._note(scheduled, now, time.perf_counter() - began)
        for output in outputs:
            self._progress(output, now)
        return False

    def _take_up(self) -> None:
        """Hand over what came, and end what was cancelled."""
        submitted, cancelled = self._take_inbox()
        now = time.monotonic()
        for submission in submitted:
            id = submission.prompt.id
            self._flights[id] = InFlight(submission, now, submission.generated)
            prompt: dict[str, Any] = {"prompt_token_ids": list(submission.ids)}
            if submission.prompt.tenant:
                # Tenants share no pages: times to the first token would show what others send.
                prompt["cache_salt"] = submission.prompt.tenant
            self._engine.add_request(str(id), prompt, self._sampling(submission))
        for id in cancelled:
            if id in self._flights:
                self._engine.abort_request([str(id)])
                self._end(id, (), "cancelled", now)

    def _sampling(self, submission: Submission) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

        wanted, left = submission.sampling, submission.max_tokens - submission.generated
        return SamplingParams(
            temperature=wanted.temperature,
            top_p=wanted.top_p,
            top_k=wanted.top_k or -1,
            min_p=wanted.min_p,
            repetition_penalty=wanted.repetition_penalty,
            frequency_penalty=wanted.frequency_penalty,
            presence_penalty=wanted.presence_penalty,
            logit_bias=dict(wanted.logit_bias) or None,
            logprobs=wanted.logprobs if wanted.logprobs >= 0 else None,
            prompt_logprobs=wanted.prompt_logprobs
            if wanted.prompt_logprobs >= 0 and not submission.generated
            else None,
            seed=wanted.seed if wanted.temperature > 0 else None,
            min_tokens=min(max(wanted.min_tokens - submission.generated, 0), left),
            max_tokens=left,
            stop_token_ids=list(submission.ends(self._generator.ends)),
            ignore_eos=True,  # the generator's own ends count
            detokenize=False,
            structured_outputs=StructuredOutputsParams(grammar=wanted.grammar) if wanted.grammar else None,
            output_kind=RequestOutputKind.DELTA,
            extra_args={"pliant_prompt": submission.remaining()},
        )

    def _note(self, scheduled: dict[int, tuple[int, int]], now: float, seconds: float) -> None:
        """Note which texts a step read (id -> preemptions and discarded tokens so far)."""
        self._iterations += bool(scheduled)
        self._sequences += len(scheduled)
        for id, (preemptions, discarded) in scheduled.items():
            flight = self._flights.get(id)
            if flight is None:
                continue
            flight.started = flight.started or now
            self._preemptions += preemptions - flight.preemptions
            flight.preemptions, flight.recomputed = preemptions, discarded
            flight.seconds += seconds / len(scheduled)

    def _progress(self, output: Any, now: float) -> None:
        id, first = int(output.request_id), output.outputs[0]
        flight = self._flights.get(id)
        if flight is None:
            return
        tokens = tuple(first.token_ids)
        flight.generated += len(tokens)
        self._tokens += len(tokens)
        wanted = flight.submission.sampling
        if first.logprobs:
            flight.logprobs = tuple(map(logprobs_of, tokens, first.logprobs, repeat(wanted.logprobs)))
        if tokens and flight.generated == len(tokens) and wanted.prompt_logprobs >= 0:
            known = output.prompt_logprobs or ()
            ids = flight.submission.ids
            of_prompt = map(logprobs_of, ids[1:], known[1:], repeat(wanted.prompt_logprobs))
            flight.prompt_logprobs = dict(enumerate(of_prompt))
        if not output.finished:
            if tokens:
                self._news.append(flight.report(tokens, "", now))
        elif first.finish_reason in ENDS:
            self._end(id, tokens, ENDS[first.finish_reason], now)
        else:
            raise WorkerError(f"vLLM ended a text with the reason {first.finish_reason}")

    def _compare(self) -> None:
        self._scheduler.check()

    def _close(self, gone: Sequence[int], now: float) -> None:
        """Nothing: vLLM ends with its process."""


def build(spec: VllmBuild, deliver: Deliver) -> VllmEngine:
    """Return a started engine.

    Raises `DigestError` if the generator has changed since it was published, `InputError` for a memory that vLLM cannot
    use, and what vLLM raises.
    """
    generator = codec.load(Generator, spec.folder, spec.digest)
    memory, on_cpu = pages_of(spec.memory, spec.plan.device), spec.plan.device == "cpu"
    set_variables(memory, spec.token_bytes, spec.plan.device, spec.plan.threads)
    journal = recorder(spec.journal) if spec.journal else None
    folder = write(generator, folder_of(spec.home, spec.digest))
    engine = VllmEngine(folder, generator, memory, spec.rules, deliver, spec.precision, on_cpu, spec.processes, journal)
    engine.start()
    return engine
