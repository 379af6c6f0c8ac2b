"""Starts vLLM's engine in this process, with Pliant's scheduler and the memory of a plan."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from pliant.packing.scheduling.request import Memory
from pliant.packing.vllm.adapter import Embedding, embedded


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
